'use strict';

// Echo and broadcast with ws on Node: one HTTP server, two WebSocket servers told apart by the path.

const fs = require('fs');
const http = require('http');
const https = require('https');
const { WebSocket, WebSocketServer } = require('ws');

function createServer() {
  const { TLS_CERT, TLS_KEY } = process.env;
  if (TLS_CERT && TLS_KEY) {
    return https.createServer({ cert: fs.readFileSync(TLS_CERT), key: fs.readFileSync(TLS_KEY) });
  }
  return http.createServer();
}

// Its own defaults, or what all servers are told to do for a comparison of the same.
function deflate() {
  if (process.env.DEFLATE !== '1' || process.env.DEFLATE_SAME !== '1') {
    return process.env.DEFLATE === '1';
  }
  return {
    serverNoContextTakeover: true,
    clientNoContextTakeover: true,
    threshold: 512,
    zlibDeflateOptions: { level: 1 },
  };
}

function echoServer(options) {
  const server = new WebSocketServer(options);
  server.on('connection', (socket) => {
    socket.on('error', () => {});
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
  return server;
}

function broadcastServer(options) {
  const server = new WebSocketServer(options);
  server.on('connection', (socket) => {
    socket.on('error', () => {});
    socket.on('message', (data, isBinary) => {
      for (const client of server.clients) {
        if (client.readyState === WebSocket.OPEN) {
          client.send(data, { binary: isBinary });
        }
      }
    });
  });
  return server;
}

function main() {
  const [host, port] = process.argv.slice(2);
  if (!port) {
    console.error(`usage: ${process.argv[1]} HOST PORT`);
    process.exit(2);
  }
  const options = { noServer: true, perMessageDeflate: deflate() };
  const paths = { '/connect': echoServer(options), '/broadcast': broadcastServer(options) };
  const server = createServer();
  server.on('upgrade', (request, socket, head) => {
    const target = paths[new URL(request.url, 'http://peer').pathname];
    if (!target) {
      socket.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
      return;
    }
    target.handleUpgrade(request, socket, head, (connection) => target.emit('connection', connection, request));
  });
  server.on('error', (error) => {
    console.error(error.message);
    process.exit(1);
  });
  server.listen(Number(port), host, () => console.log(`listening on ${host}:${port}`));
}

main();
