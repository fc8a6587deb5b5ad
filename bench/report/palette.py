"""One colour per server, everywhere: charts, HTML report and Grafana dashboard.

A server that is not in the table gets a colour from SPARE, chosen by its name, so that it keeps that colour from run
to run.
"""

import zlib

SERVERS = {
    "libtws-kernel": "#e02f44",
    "libtws-light": "#ff780a",
    "gws": "#1f60c4",
    "gorilla": "#37872d",
    "coder": "#8f3bb8",
    "gobwas": "#c4a000",
    "nbio": "#0a9c9c",
    "melody": "#5794f2",
    "libwebsockets": "#7d64d5",
    "beast-sync": "#8a5a2b",
    "beast-async": "#c98a4b",
    "websocketpp": "#d683ce",
    "websockets": "#7f7f7f",
    "ws": "#73bf69",
}

SPARE = ["#3d6b8e", "#a05195", "#665191", "#2f9e77", "#b5651d", "#556b2f", "#b03060", "#4682b4"]


def colour(server):
    """Colour of one server as #rrggbb."""
    if server in SERVERS:
        return SERVERS[server]
    return SPARE[zlib.crc32(server.encode()) % len(SPARE)]
