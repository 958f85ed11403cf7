"""Files and terminals for an agent whose client has none: answers to `fs/*` and `terminal/*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_wire import schema
from acp_wire.errors import MethodNotFoundError
from acp_wire.schema.client_services import TerminalFields
from acp_wire.surroundings import Surroundings
from acp_wire.workspace.files import Files
from acp_wire.workspace.terminals import TerminalCommand, Terminals

if TYPE_CHECKING:
    from msgspec import Struct

    from acp_wire.workspace.roots import Roots


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
        answer: Struct
        match method:
            case schema.READ_TEXT_FILE.name:
                read = schema.decode(schema.ReadTextFileRequest, params).value
                text = await self.files.read(read.path, line=read.line, limit=read.limit)
                answer = schema.ReadTextFileResponse(content=text)
            case schema.WRITE_TEXT_FILE.name:
                write = schema.decode(schema.WriteTextFileRequest, params).value
                await self.files.write(write.path, write.content)
                answer = schema.WriteTextFileResponse()
            case schema.CREATE_TERMINAL.name:
                create = schema.decode(schema.CreateTerminalRequest, params).value
                terminal = await self.terminals.create(
                    create.command,
                    create.args,
                    env={variable.name: variable.value for variable in create.env},
                    cwd=create.cwd,
                    output_byte_limit=create.output_byte_limit,
                )
                answer = schema.CreateTerminalResponse(terminal_id=terminal.id)
            case schema.TERMINAL_OUTPUT.name:
                answer = self._terminal_in(params).output()
            case schema.WAIT_FOR_TERMINAL_EXIT.name:
                # The status has the fields of the answer.
                answer = await self._terminal_in(params).wait()
            case schema.KILL_TERMINAL.name:
                await self._terminal_in(params).kill()
                answer = schema.KillTerminalResponse()
            case schema.RELEASE_TERMINAL.name:
                await self.terminals.release(self._terminal_in(params).id)
                answer = schema.ReleaseTerminalResponse()
            case _:
                raise MethodNotFoundError(method)
        return schema.encode(answer)

    async def aclose(self) -> None:
        """End the running commands; may be called again."""
        await self.terminals.aclose()

    def _terminal_in(self, params: bytes) -> TerminalCommand:
        """Return the terminal that these params name; raises AcpError."""
        return self.terminals[schema.decode(TerminalFields, params).value.terminal_id]
