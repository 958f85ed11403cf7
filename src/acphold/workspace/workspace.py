"""Files and terminals for an agent whose client has none: answers to `fs/*` and `terminal/*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acphold.errors import MethodNotFoundError
from acphold.schema import (
    CREATE_TERMINAL,
    KILL_TERMINAL,
    READ_TEXT_FILE,
    RELEASE_TERMINAL,
    TERMINAL_OUTPUT,
    WAIT_FOR_TERMINAL_EXIT,
    WRITE_TEXT_FILE,
    CreateTerminalResponse,
    KillTerminalResponse,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
    decode,
    encode,
)
from acphold.workspace.files import Files
from acphold.workspace.terminals import Terminals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from acphold.workspace.roots import Roots


class Workspace:
    """Files and terminals of one session, inside its roots; to be closed.

    The session ids in what is asked are not looked at: whoever asks has found this session.
    """

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.files = Files(roots)
        self.terminals = Terminals(roots)
        self._answers: dict[str, Callable[[bytes], Awaitable[object]]] = {
            READ_TEXT_FILE.name: self._read,
            WRITE_TEXT_FILE.name: self._write,
            CREATE_TERMINAL.name: self._create,
            TERMINAL_OUTPUT.name: self._output,
            WAIT_FOR_TERMINAL_EXIT.name: self._wait,
            KILL_TERMINAL.name: self._kill,
            RELEASE_TERMINAL.name: self._release,
        }

    def serves(self, method: str) -> bool:
        """Whether `answer` knows `method`."""
        return method in self._answers

    async def answer(self, method: str, params: bytes) -> bytes:
        """The result of an ACP client method as JSON; raises AcpholdError with the code for it.

        Cancelling it leaves a file as it was or written, and no terminal that nobody knows.
        """
        if method not in self._answers:
            raise MethodNotFoundError(method)
        return encode(await self._answers[method](params))

    async def aclose(self) -> None:
        """End what runs; may be called again."""
        await self.terminals.aclose()

    async def _read(self, params: bytes) -> ReadTextFileResponse:
        asked = decode(READ_TEXT_FILE.params, params).value
        text = await self.files.read(asked.path, line=asked.line, limit=asked.limit)
        return ReadTextFileResponse(content=text)

    async def _write(self, params: bytes) -> WriteTextFileResponse:
        asked = decode(WRITE_TEXT_FILE.params, params).value
        await self.files.write(asked.path, asked.content)
        return WriteTextFileResponse()

    async def _create(self, params: bytes) -> CreateTerminalResponse:
        asked = decode(CREATE_TERMINAL.params, params).value
        terminal = await self.terminals.create(
            asked.command,
            asked.args,
            env={variable.name: variable.value for variable in asked.env},
            cwd=asked.cwd,
            output_byte_limit=asked.output_byte_limit,
        )
        return CreateTerminalResponse(terminal_id=terminal.id)

    async def _output(self, params: bytes) -> object:
        asked = decode(TERMINAL_OUTPUT.params, params).value
        return self.terminals[asked.terminal_id].output()

    async def _wait(self, params: bytes) -> WaitForTerminalExitResponse:
        asked = decode(WAIT_FOR_TERMINAL_EXIT.params, params).value
        status = await self.terminals[asked.terminal_id].wait()
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def _kill(self, params: bytes) -> KillTerminalResponse:
        asked = decode(KILL_TERMINAL.params, params).value
        await self.terminals[asked.terminal_id].kill()
        return KillTerminalResponse()

    async def _release(self, params: bytes) -> ReleaseTerminalResponse:
        asked = decode(RELEASE_TERMINAL.params, params).value
        await self.terminals.release(asked.terminal_id)
        return ReleaseTerminalResponse()
