"""Questions to a daemon whose loop hangs, as on a disk that does not answer: see `server.hung`."""

from __future__ import annotations

import socket
from contextlib import suppress

from acp_wire.processes import process_tree
from acphold.live.reading import bounds
from acphold.machine.runtime_folder import SUFFIX
from acphold.machine.unix import credentials

STATUS, STOP_NOW = b"status\n", b"stop\n"
"""What runs, answered as `one_question.PRESENCE` is; and the end of all agents and the daemon."""


def hung_socket(path: str) -> str:
    """Return the path of the second socket of the daemon at this one."""
    return path.removesuffix(SUFFIX) + ".hung"


def ask_hung(path: str, question: bytes) -> bytes:
    """Ask the daemon at this socket one of the above; b"" if nothing listens, its loop goes on, or
    it is stopped as a whole.

    Blocks for at most `bounds.HUNG_SECONDS` and as long for each piece of the answer.
    """
    answer = b""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(bounds.HUNG_SECONDS)
        asking.connect(hung_socket(path))
        pid = credentials(asking).pid
        if pid is not None and process_tree.condition(pid) == "stopped":
            return b""  # no thread of it would answer
        asking.sendall(question)
        while piece := asking.recv(1 << 16):
            answer += piece
            if len(answer) > bounds.HUNG_BYTES:
                return b""
    return answer
