"""The checker's services for an agent: permissions, files, terminals and forms.

Only offered services are available; the rest is refused with -32601, as any client would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from acphold.conformance.record import Json, objects
from acphold.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    AcpholdError,
)
from acphold.schema import TerminalExitStatus, TerminalOutputResponse, encode
from acphold.schema.update_kinds import offered
from acphold.workspace.roots import Roots
from acphold.workspace.terminals import Terminals

BARE: Json = {}
"""Client capabilities of an editor that offers nothing."""

EQUIPPED: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "elicitation": {"form": {}, "url": {}},
    "auth": {"terminal": True},
}
"""Client capabilities of an editor that offers everything."""

Decision = Literal["allow", "reject", "hold"]
"""Answers to permissions: `hold` gives none until the turn is over."""


class Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Shell(Protocol):
    """Runs terminal commands; like `workspace.Terminals`, with a fake in tests."""

    async def call(self, method: str, params: Json) -> Json:
        """Return the result of a `terminal/…` method; raises AcpholdError if it is refused."""

    async def aclose(self) -> None:
        """End the running commands."""


class Host:
    """Answers an agent's requests.

    `decision` may be changed at any time; `on_hold` is called when a permission begins to wait.
    """

    def __init__(self, offers: Json, shell: Callable[[], Shell]) -> None:
        self.decision: Decision = "allow"
        self.is_broken = False
        """True if files and terminals fail, as on a full disk."""
        self.on_hold: Callable[[], None] = lambda: None
        self._offers = offers
        self._new_shell = shell
        self._shell: Shell | None = None
        self._held: list[asyncio.Future[Json]] = []

    async def answer(self, method: str, params: Json) -> Json:
        """Return the result; raises Refused for an error."""
        match method:
            case "session/request_permission":
                if self.decision == "hold":
                    question: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
                    self._held.append(question)
                    self.on_hold()
                    return {"outcome": await question}
                for option in objects(params.get("options")):
                    if option.get("kind") == f"{self.decision}_once":
                        chosen = {"outcome": "selected", "optionId": option.get("optionId")}
                        return {"outcome": chosen}
                return {"outcome": {"outcome": "cancelled"}}
            case _ if self.is_broken and method.startswith(("fs/", "terminal/")):
                raise Refused(INTERNAL_ERROR, "this client is out of order")
            case "fs/read_text_file" if self.offers("fs", "readTextFile"):
                return read(params)
            case "fs/write_text_file" if self.offers("fs", "writeTextFile"):
                return write(params)
            case "elicitation/create" if self.offers("elicitation"):
                return {"action": "decline"}
            case _ if method.startswith("terminal/") and self.offers("terminal"):
                if self._shell is None:
                    self._shell = self._new_shell()
                try:
                    return await self._shell.call(method, params)
                except AcpholdError as error:
                    raise Refused(error.code, str(error)) from None
        raise Refused(METHOD_NOT_FOUND, f"this client has no {method}")

    @contextmanager
    def deciding(self, decision: Decision) -> Iterator[None]:
        """Answer permissions like this for the block."""
        self.decision = decision
        try:
            yield
        finally:
            self.decision = "allow"

    def offers(self, *path: str) -> bool:
        """Return True if this was offered: present, and neither null nor false."""
        return offered(self._offers, *path)

    def release(self) -> None:
        """Answer every held permission as cancelled, because the turn is."""
        held, self._held = self._held, []
        for question in held:
            if not question.done():
                question.set_result({"outcome": "cancelled"})

    @property
    def holds(self) -> bool:
        """True if a permission waits for an answer."""
        return bool(self._held)

    async def aclose(self) -> None:
        """End the commands that are still running."""
        self.release()
        if self._shell is not None:
            await self._shell.aclose()


def read(params: Json) -> Json:
    """Return the result of `fs/read_text_file`; raises Refused."""
    try:
        lines = _path(params).read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError as error:
        raise Refused(RESOURCE_NOT_FOUND, f"no file {error.filename}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(INTERNAL_ERROR, str(error)) from None
    first = max(_number(params.get("line"), 1), 1) - 1
    limit = _number(params.get("limit"), len(lines))
    return {"content": "".join(lines[first : first + limit])}


def write(params: Json) -> Json:
    """Return the result of `fs/write_text_file`; raises Refused."""
    path = _path(params)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(params.get("content", "")), encoding="utf-8")
    except OSError as error:
        raise Refused(INTERNAL_ERROR, str(error)) from None
    return {}


def _path(params: Json) -> Path:
    path = params.get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        raise Refused(INVALID_PARAMS, f"path: {path!r} is not absolute")
    return Path(path)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


class RealShell:
    """Runs commands in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terminals = Terminals(Roots(str(folder)))

    async def call(self, method: str, params: Json) -> Json:
        """See `Shell`."""
        terminal_id = str(params.get("terminalId", ""))
        match method:
            case "terminal/create":
                terminal = await self._terminals.create(
                    str(params.get("command", "")),
                    [str(word) for word in params.get("args") or ()],
                    cwd=params.get("cwd"),
                    env={str(it["name"]): str(it["value"]) for it in params.get("env") or ()},
                    output_byte_limit=params.get("outputByteLimit"),
                )
                return {"terminalId": terminal.id}
            case "terminal/output":
                return _json(self._terminals[terminal_id].output())
            case "terminal/wait_for_exit":
                return _json(await self._terminals[terminal_id].wait())
            case "terminal/kill":
                await self._terminals[terminal_id].kill()
            case "terminal/release":
                await self._terminals.release(terminal_id)
        return {}

    async def aclose(self) -> None:
        """End the running commands."""
        await self._terminals.aclose()


def _json(value: TerminalOutputResponse | TerminalExitStatus) -> Json:
    found: Json = msgspec.json.decode(encode(value))
    return found
