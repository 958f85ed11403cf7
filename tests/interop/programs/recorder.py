"""Stands between a client and an agent, passes every line on, and writes it down.

    python recorder.py FILE -- CMD…

FILE gets one JSON object for each line: `{"by": "client"|"agent", "line": …}`, the line as text.
Records of several runs follow each other, each begun by `{"by": "recorder", "line": "start"}`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import IO


def main() -> int:
    """Run CMD until it ends; its exit status, negative for a signal."""
    path, dashes, *command = sys.argv[1:]
    assert dashes == "--"
    record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    _write(record, "recorder", b"start")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    inward = (sys.stdin.buffer, child.stdin, record, "client")
    threading.Thread(target=_pass_on, args=inward, daemon=True).start()
    _pass_on(child.stdout, sys.stdout.buffer, record, "agent")
    return child.wait()


def _pass_on(source: IO[bytes], sink: IO[bytes], record: int, by: str) -> None:
    for line in source:
        _write(record, by, line)  # first: everything that arrived is on record
        try:
            sink.write(line)
            sink.flush()
        except BrokenPipeError:
            break
    try:
        sink.close()
    except BrokenPipeError:
        return


def _write(record: int, by: str, line: bytes) -> None:
    text = line.decode(errors="replace").rstrip("\n")
    os.write(record, json.dumps({"by": by, "line": text}).encode() + b"\n")


if __name__ == "__main__":
    code = main()
    # At once: the thread that still reads stdin would keep the interpreter from ending.
    os._exit(code if code >= 0 else 128 - code)
