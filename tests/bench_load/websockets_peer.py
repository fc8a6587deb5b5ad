#!/usr/bin/env python3
"""An echo server by the websockets library that counts: what the load generator says is compared with it.

  websockets_peer.py [--cert FILE --key FILE] [--deflate JSON] [--broadcast]

Prints "listening PORT", and one line of JSON with its counts when SIGTERM ends it.
"""

import argparse
import asyncio
import json
import signal
import ssl

import websockets
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--deflate", help="arguments of ServerPerMessageDeflateFactory; absent: no compression")
    parser.add_argument("--broadcast", action="store_true")
    args = parser.parse_args()
    counts = {"connections": 0, "messages": 0, "bytes": 0, "close_codes": {}}
    members = set()

    async def handler(socket, _path=None):
        counts["connections"] += 1
        members.add(socket)
        try:
            async for message in socket:
                counts["messages"] += 1
                counts["bytes"] += len(message.encode() if isinstance(message, str) else message)
                if args.broadcast:
                    websockets.broadcast(members, message)
                else:
                    await socket.send(message)
        except websockets.ConnectionClosed:
            pass
        finally:
            members.discard(socket)
            code = str(socket.close_code)
            counts["close_codes"][code] = counts["close_codes"].get(code, 0) + 1

    context = None
    if args.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.cert, args.key)
    extensions = [ServerPerMessageDeflateFactory(**json.loads(args.deflate))] if args.deflate else None
    stop = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set_result, None)
    server = await websockets.serve(handler, "127.0.0.1", 0, ssl=context, compression=None, extensions=extensions,
                                    max_size=None, ping_interval=None)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    await stop
    server.close()
    await server.wait_closed()  # so that the last connections are in the counts
    print(json.dumps(counts), flush=True)


asyncio.run(main())
