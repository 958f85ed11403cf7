"""A client that costs next to nothing: it writes lines and reads lines, and understands neither."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from time import perf_counter
from types import TracebackType

from acphold.journal_location import VARIABLE
from bench.programs import Command

END_SECONDS = 20.0
FOLDER = "/tmp"
"""The working directory of every session; nothing is done in it."""


class Wire:
    """One agent at the other end of two pipes."""

    def __init__(
        self, command: Command, stderr: Path | None = None, journal: str | Path | None = None
    ) -> None:
        env = None if journal is None else {**os.environ, VARIABLE: os.fspath(journal)}
        self._stderr = open(stderr, "wb") if stderr else None  # noqa: SIM115
        self.started = perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=env
        )
        self.last_id = 0
        self.session_id = ""

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.read()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    # -- asking ---------------------------------------------------------------------------

    def ask(self, method: str, params: dict[str, object]) -> int:
        """Send a request; its id."""
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        self.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        return self.last_id

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> bytes:
        """The next line; EOFError when the program has ended."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.process.args!r} ended")
        return line

    def call(self, method: str, params: dict[str, object]) -> dict[str, object]:
        """Ask and wait for the result; what comes before it is passed over."""
        self.ask(method, params)
        *_, answer = self.until_answer()
        result: dict[str, object] = json.loads(answer)["result"]
        return result

    def until_answer(self) -> Iterator[bytes]:
        """The lines up to and with the answer to the last request."""
        while True:
            line = self.line()
            yield line
            if self._is_answer(line):
                return

    def count_until_answer(self) -> int:
        """How many lines come before the answer; as fast as a pipe can be read."""
        assert isinstance(self.process.stdout, BufferedReader)
        lines, tail = 0, b""
        while True:
            data = self.process.stdout.read1(1 << 20)
            if not data:
                raise EOFError(f"{self.process.args!r} ended")
            lines += data.count(b"\n")
            tail = tail[-1000:] + data[-1000:]
            if tail.endswith(b"\n") and self._is_answer(tail.splitlines()[-1]):
                return lines - 1

    def _is_answer(self, line: bytes) -> bool:
        if b'"id":%d' % self.last_id not in line:
            return False
        message = json.loads(line)
        if message.get("id") != self.last_id or "method" in message:
            return False
        if "error" in message:  # what fails is quick: it must not pass for a figure
            raise RuntimeError(f"{self.process.args!r}: {message['error']}")
        return True

    # -- ACP ------------------------------------------------------------------------------

    def initialize(self) -> float:
        """Introduce this client; seconds from the start of the program to its answer."""
        capabilities = {"fs": {"readTextFile": True, "writeTextFile": True}}
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})
        return perf_counter() - self.started

    def new_session(self, servers: Sequence[dict[str, object]] = ()) -> str:
        """Open a session for `prompt`, with these MCP servers."""
        params: dict[str, object] = {"cwd": FOLDER, "mcpServers": list(servers)}
        self.session_id = str(self.call("session/new", params)["sessionId"])
        return self.session_id

    def prompt_line(self, words: str) -> bytes:
        """The line of one prompt, for whoever sends many."""
        self.last_id += 1
        prompt = [{"type": "text", "text": words}]
        params = {"sessionId": self.session_id, "prompt": prompt}
        message = {
            "jsonrpc": "2.0",
            "id": self.last_id,
            "method": "session/prompt",
            "params": params,
        }
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def prompt(self, words: str) -> int:
        """Run a turn; the number of lines before its answer."""
        self.write(self.prompt_line(words))
        return self.count_until_answer()


@contextmanager
def session_with(
    command: Command, stderr: Path | None = None, journal: str | Path | None = None
) -> Iterator[Wire]:
    """A program with an open session in which one turn is over already."""
    with Wire(command, stderr, journal) as wire:
        wire.initialize()
        wire.new_session()
        wire.prompt("flood 500")
        yield wire
