"""Services of `chat` and `continue` for a chat: our commands, our log, the agent's stderr."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from acphold.faces.cli.log import with_log
from acphold.faces.cli.terminal_text import on_one_line
from acphold.faces.screen.sign_in import SignInProgram
from acphold.faces.screen.turns import ChatHost
from acphold.machine.own_program import own_command, run_beside


class CommandHost(ChatHost):
    """The command that shows the chat.

    `program` is the agent's, None if it runs elsewhere; `logged` is what we logged while the screen
    was drawn.
    """

    def __init__(self, program: SignInProgram | None, logged: StringIO) -> None:
        self._program = program
        self._logged = logged

    def with_log(self, words: str) -> str:
        return with_log(words)

    def stderr(self) -> str | None:
        if self._program is None:
            return None
        return f"{self._program.stderr()}\n{self._logged.getvalue()}"

    async def export(self, session_id: str, words: str) -> str:
        file = str(Path(words).expanduser()) if words else f"{session_id[:12]}.md"
        told, _ = await self._output_of("export", f"--output={file}", session_id)
        return on_one_line(told) or f"written: {on_one_line(file)}"

    async def fork(self, session_id: str, words: str) -> str:
        files, _, folder = words.partition(" ")
        options = []
        if files == "before":
            options.append("--before")
            files, _, folder = folder.strip().partition(" ")
        if files not in ("", "files"):
            return (
                "/fork copies this session, /fork before without its last turn; "
                "add files [FOLDER] to copy its files, too"
            )
        if files:
            options.append("--files")
        if folder:
            options.append(str(Path(folder.strip()).expanduser()))
        told, copy = await self._output_of("continue", session_id, "--from=last", *options)
        lines = [*told.splitlines(), *([f"/resume {copy} goes on in the copy"] if copy else [])]
        return "\n".join(map(on_one_line, lines))

    async def _output_of(self, name: str, *words: str) -> tuple[str, str]:
        """Run a command of ours; return what it says on stderr, and what it prints."""
        _, printed, told = await run_beside(own_command(name, *words))
        return told.decode(errors="replace").strip(), printed.decode(errors="replace").strip()
