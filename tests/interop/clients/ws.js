'use strict';

// npm's ws as a client against an echo server: sizes, fragments, a ping, the closing handshake.
//
// usage: node ws.js URL [CA.pem]    prints "ok" and ends with 0 when everything came back as it left

const fs = require('fs');
const { WebSocket } = require('ws');

const PATIENCE = 30000;

function fail(error) {
  console.log(`ws: ${error.message || error}`);
  process.exit(1);
}

// The next event of one of these names, as [name, ...arguments].
function next(socket, ...names) {
  return new Promise((resolve) => {
    const listeners = names.map((name) => [name, (...args) => {
      listeners.forEach(([other, listener]) => socket.off(other, listener));
      resolve([name, ...args]);
    }]);
    listeners.forEach(([name, listener]) => socket.on(name, listener));
  });
}

async function expect(socket, sent, binary) {
  const [name, data, isBinary] = await next(socket, 'message', 'close');
  if (name !== 'message' || isBinary !== binary || !data.equals(sent)) {
    throw new Error(`sent ${sent.length} bytes, got ${name} of ${data.length} bytes`);
  }
}

async function echo(socket, data, binary) {
  const back = expect(socket, data, binary);
  socket.send(data, { binary });
  await back;
}

async function main() {
  const [url, ca] = process.argv.slice(2);
  const socket = new WebSocket(url, ca ? { ca: fs.readFileSync(ca) } : {});
  socket.on('error', fail);
  await next(socket, 'open');
  for (const size of [0, 1, 125, 126, 65535, 65536, 1 << 20]) {
    await echo(socket, Buffer.alloc(size, 't'), false);
    await echo(socket, Buffer.alloc(size, 0xff), true);
  }
  const whole = expect(socket, Buffer.from('fragümented'), false);
  socket.send('fragü', { fin: false });
  socket.send('', { fin: false });
  socket.send('mented', { fin: true });
  await whole;
  const pong = next(socket, 'pong');
  socket.ping('are you there');
  const [, payload] = await pong;
  if (payload.toString() !== 'are you there') {
    throw new Error(`pong ${payload}`);
  }
  const closed = next(socket, 'close');
  socket.close(1000, 'bye');
  const [, code, reason] = await closed;
  if (code !== 1000 || reason.toString() !== 'bye') {
    throw new Error(`closed with ${code} ${reason}`);
  }
  console.log('ok');
}

setTimeout(() => fail('nothing happened any more'), PATIENCE).unref();
main().catch(fail);
