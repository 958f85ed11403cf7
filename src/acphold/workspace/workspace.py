"""Files and terminals for an agent whose client has none: answers to `fs/*` and `terminal/*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acphold import schema
from acphold.errors import MethodNotFoundError
from acphold.workspace.files import Files
from acphold.workspace.terminals import Terminals

if TYPE_CHECKING:
    from msgspec import Struct

    from acphold.workspace.roots import Roots


class Workspace:
    """Files and terminals of one session, inside its roots; close it at the end.

    Session ids in requests are ignored: the caller has found this session.
    """

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.files: Files = Files(roots)
        self.terminals: Terminals = Terminals(roots)

    async def answer(self, method: str, params: bytes) -> bytes:
        """Return the result of an ACP client method as JSON; raises AcpholdError with the code for
        it.

        Cancelling it leaves a file either unchanged or written, and no unknown terminal.
        """
        return schema.encode(await self._answer(method, params))

    async def aclose(self) -> None:
        """End the running commands; may be called again."""
        await self.terminals.aclose()

    async def _answer(self, method: str, params: bytes) -> Struct:
        files, terminals = self.files, self.terminals
        if method == schema.READ_TEXT_FILE.name:
            read = schema.decode(schema.READ_TEXT_FILE.params, params).value
            words = await files.read(read.path, line=read.line, limit=read.limit)
            return schema.ReadTextFileResponse(content=words)
        if method == schema.WRITE_TEXT_FILE.name:
            write = schema.decode(schema.WRITE_TEXT_FILE.params, params).value
            await files.write(write.path, write.content)
            return schema.WriteTextFileResponse()
        if method == schema.CREATE_TERMINAL.name:
            create = schema.decode(schema.CREATE_TERMINAL.params, params).value
            terminal = await terminals.create(
                create.command,
                create.args,
                env={variable.name: variable.value for variable in create.env},
                cwd=create.cwd,
                output_byte_limit=create.output_byte_limit,
            )
            return schema.CreateTerminalResponse(terminal_id=terminal.id)
        if method == schema.TERMINAL_OUTPUT.name:
            return terminals[
                schema.decode(schema.TERMINAL_OUTPUT.params, params).value.terminal_id
            ].output()
        if method == schema.WAIT_FOR_TERMINAL_EXIT.name:
            wait = schema.decode(schema.WAIT_FOR_TERMINAL_EXIT.params, params).value
            status = await terminals[wait.terminal_id].wait()
            return schema.WaitForTerminalExitResponse(
                exit_code=status.exit_code, signal=status.signal
            )
        if method == schema.KILL_TERMINAL.name:
            await terminals[
                schema.decode(schema.KILL_TERMINAL.params, params).value.terminal_id
            ].kill()
            return schema.KillTerminalResponse()
        if method == schema.RELEASE_TERMINAL.name:
            await terminals.release(
                schema.decode(schema.RELEASE_TERMINAL.params, params).value.terminal_id
            )
            return schema.ReleaseTerminalResponse()
        raise MethodNotFoundError(method)
