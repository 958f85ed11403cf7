"""What no durable server of a WebSocket can be quicker than: frames handed on unread, one bare
commit for each read.

`python bare_socket_relay.py DATABASE CMD ARGS...`. It prints its port, and has an agent for each
connection. As `bare_relay.py`, it has asyncio, sockets, pipes and SQLite as acphold has them, and
nothing of acphold. What comes from the agent is committed before it is handed on; a prompt, behind
it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import sqlite3
import subprocess
import sys

READ_SIZE = 64 * 1024
KEY = b"Sec-WebSocket-Key: "
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def main() -> None:
    """Serve until somebody ends it."""
    database = sqlite3.connect(sys.argv[1], isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
        database.execute(f"PRAGMA {setting}")
    database.execute("CREATE TABLE read (number INTEGER PRIMARY KEY, raw BLOB)")
    asyncio.run(serve(database))


async def serve(database: sqlite3.Connection) -> None:
    """Take in whoever comes."""
    server = await asyncio.get_running_loop().create_server(lambda: Relay(database), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Relay(asyncio.Protocol):
    """One connection, and its agent."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._is_upgraded = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = transport
        self._agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._agent.stdin
        assert self._agent.stdout
        self._to_agent = self._agent.stdin.fileno()
        self._from_agent = self._agent.stdout.fileno()
        self._loop.add_reader(self._from_agent, self._to_client)

    def data_received(self, data: bytes) -> None:
        if not self._is_upgraded:  # the head of a client that waits for the answer, in one read
            key = data.split(KEY, 1)[1].split(b"\r\n", 1)[0]
            accepted = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
            self._client.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n" % accepted
            )
            self._is_upgraded = True
            return
        size = data[1] & 0x7F  # a short message in one frame, which comes with one read
        place = 2 if size < 126 else 4
        mask, payload = data[place : place + 4], data[place + 4 :]
        whole = mask * (len(payload) // 4 + 1)
        number = int.from_bytes(payload, "big") ^ int.from_bytes(whole[: len(payload)], "big")
        said = number.to_bytes(len(payload), "big")
        os.write(self._to_agent, said + b"\n")
        self._commit(said)

    def _to_client(self) -> None:
        data = os.read(self._from_agent, READ_SIZE)
        if not data:
            self._client.close()
            self._loop.remove_reader(self._from_agent)
            return
        self._commit(data)
        frames = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:  # none of them is long
            size = len(line)
            length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
            frames.append(b"\x81" + length + line)
        self._client.write(b"".join(frames))

    def _commit(self, data: bytes) -> None:
        self._database.execute("INSERT INTO read (raw) VALUES (?)", (data,))

    def connection_lost(self, exc: Exception | None) -> None:
        self._loop.remove_reader(self._from_agent)
        self._agent.kill()
        self._agent.communicate()


main()
