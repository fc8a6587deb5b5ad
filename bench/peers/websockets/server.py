"""Echo and broadcast with Python's websockets, on asyncio."""
import asyncio
import os
import ssl
import sys
from http import HTTPStatus

from websockets.asyncio.server import broadcast, serve
from websockets.exceptions import ConnectionClosed

MAX_MESSAGE = 16 << 20
room = set()


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def join_room(connection):
    room.add(connection)
    try:
        async for message in connection:
            broadcast(room, message)
    finally:
        room.remove(connection)


PATHS = {"/connect": echo, "/broadcast": join_room}


def route(connection, request):
    if request.path not in PATHS:
        return connection.respond(HTTPStatus.NOT_FOUND, "there are /connect and /broadcast\n")
    return None


async def handle(connection):
    try:
        await PATHS[connection.request.path](connection)
    except ConnectionClosed:
        pass


def tls():
    if not os.environ.get("TLS_CERT"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    return context


async def main(host, port):
    async with serve(handle, host, int(port), process_request=route, max_size=MAX_MESSAGE, ssl=tls()) as server:
        print(f"listening on {host}:{port}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} HOST PORT")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(str(error))
