'use strict';

// Random messages through permessage-deflate to echo servers of this library, with npm's ws as the client.
// TWS_ECHO has the servers' addresses, one a line: "WHAT ws://HOST:PORT/". Ends with 0 when all came back.

const { WebSocket } = require('ws');

const MESSAGES = 40;
const PATIENCE_MS = 60000;
const SIZES = [0, 1, 125, 126, 511, 512, 1000, 4096, 65535, 65536, 200000];
const WORDS = 'the message "id": room { } null grüße мир 日本語 🚀 0.25 true [1,2,3]'.split(' ');
const SETTINGS = {
  'as it is': {},
  'no takeover': { serverNoContextTakeover: true, clientNoContextTakeover: true },
  'small windows': { serverMaxWindowBits: 9, clientMaxWindowBits: 9, threshold: 0 },
  'best': { zlibDeflateOptions: { level: 9, memLevel: 9 }, threshold: 0 },
  'least': { zlibDeflateOptions: { level: 1, memLevel: 1 }, serverMaxWindowBits: 12, threshold: 0 },
};

let seed = 7692;
function below(n) {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return Math.floor((seed / 0x100000000) * n);
}

function someMessage() {
  const size = SIZES[below(SIZES.length)];
  const kind = below(3);
  if (kind === 0) {
    let text = '';
    while (text.length < size) {
      text += WORDS[below(WORDS.length)] + ' ';
    }
    return text;
  }
  if (kind === 1) {
    return Buffer.alloc(size);
  }
  const piece = Buffer.from(Array.from({ length: 1 + below(40000) }, () => below(256)));
  return Buffer.alloc(size, piece);
}

function trips(url, deflate) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { perMessageDeflate: deflate });
    const timer = setTimeout(() => reject(new Error('no answer')), PATIENCE_MS);
    let left = MESSAGES;
    let sent;
    const next = () => {
      sent = someMessage();
      socket.send(sent, { compress: below(4) !== 0 });
    };
    socket.on('open', () => {
      if (!socket.extensions.startsWith('permessage-deflate')) {
        reject(new Error(`not agreed on compression: ${socket.extensions}`));
      }
      next();
    });
    socket.on('message', (data, isBinary) => {
      const expected = Buffer.isBuffer(sent) ? sent : Buffer.from(sent);
      if (isBinary !== Buffer.isBuffer(sent) || !expected.equals(data)) {
        reject(new Error(`${expected.length} bytes sent, ${data.length} came back, or others`));
      }
      left -= 1;
      if (left > 0) {
        next();
      } else {
        socket.close(1000);
      }
    });
    socket.on('error', reject);
    socket.on('close', (code) => {
      clearTimeout(timer);
      if (code === 1000 && left === 0) {
        resolve();
      } else {
        reject(new Error(`closed with ${code}, ${left} messages left`));
      }
    });
  });
}

async function main() {
  for (const line of process.env.TWS_ECHO.trim().split('\n')) {
    const [what, url] = line.split(' ');
    for (const [name, deflate] of Object.entries(SETTINGS)) {
      try {
        await trips(url, deflate);
      } catch (error) {
        console.log(`ws ${name}, server ${what}: ${error.message}`);
        process.exitCode = 1;
      }
    }
  }
  console.log(process.exitCode ? 'failed' : 'ok');
  process.exit();
}

main();
