"""Files and terminals for an agent whose client has none: answers to `fs/*` and `terminal/*`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from acp_wire import schema
from acp_wire.errors import MethodNotFoundError
from acp_wire.surroundings import Surroundings
from acp_wire.workspace.files import Files
from acp_wire.workspace.terminals import Terminals

if TYPE_CHECKING:
    from msgspec import Struct

    from acp_wire.workspace.roots import Roots

_Request: TypeAlias = (
    schema.ReadTextFileRequest
    | schema.WriteTextFileRequest
    | schema.CreateTerminalRequest
    | schema.TerminalOutputRequest
    | schema.WaitForTerminalExitRequest
    | schema.KillTerminalRequest
    | schema.ReleaseTerminalRequest
)

_REQUESTS: dict[str, type[_Request]] = {
    method.name: method.params
    for method in (
        schema.READ_TEXT_FILE,
        schema.WRITE_TEXT_FILE,
        schema.CREATE_TERMINAL,
        schema.TERMINAL_OUTPUT,
        schema.WAIT_FOR_TERMINAL_EXIT,
        schema.KILL_TERMINAL,
        schema.RELEASE_TERMINAL,
    )
}
"""The type of the params of each method that is answered here."""


class Workspace:
    """Files and terminals of one session, inside its roots; close it at the end.

    Its commands run in these `surroundings`. Session ids in requests are ignored: the caller has
    found this session.
    """

    def __init__(self, roots: Roots, surroundings: Surroundings) -> None:
        self.roots = roots
        self.files: Files = Files(roots)
        self.terminals: Terminals = Terminals(roots, surroundings)

    async def answer(self, method: str, params: bytes) -> bytes:
        """Return the result of an ACP client method as JSON; raises AcpError with the code for
        it.

        Cancelling it leaves a file either unchanged or written, and no unknown terminal.
        """
        return schema.encode(await self._answer(method, params))

    async def aclose(self) -> None:
        """End the running commands; may be called again."""
        await self.terminals.aclose()

    async def _answer(self, method: str, params: bytes) -> Struct:
        if method not in _REQUESTS:
            raise MethodNotFoundError(method)
        files, terminals = self.files, self.terminals
        match schema.decode(_REQUESTS[method], params).value:
            case schema.ReadTextFileRequest(path=path, line=line, limit=limit):
                text = await files.read(path, line=line, limit=limit)
                return schema.ReadTextFileResponse(content=text)
            case schema.WriteTextFileRequest(path=path, content=content):
                await files.write(path, content)
                return schema.WriteTextFileResponse()
            case schema.CreateTerminalRequest() as create:
                terminal = await terminals.create(
                    create.command,
                    create.args,
                    env={variable.name: variable.value for variable in create.env},
                    cwd=create.cwd,
                    output_byte_limit=create.output_byte_limit,
                )
                return schema.CreateTerminalResponse(terminal_id=terminal.id)
            case schema.TerminalOutputRequest(terminal_id=id_):
                return terminals[id_].output()
            case schema.WaitForTerminalExitRequest(terminal_id=id_):
                status = await terminals[id_].wait()
                return schema.WaitForTerminalExitResponse(
                    exit_code=status.exit_code, signal=status.signal
                )
            case schema.KillTerminalRequest(terminal_id=id_):
                await terminals[id_].kill()
                return schema.KillTerminalResponse()
            case schema.ReleaseTerminalRequest(terminal_id=id_):
                await terminals.release(id_)
                return schema.ReleaseTerminalResponse()
