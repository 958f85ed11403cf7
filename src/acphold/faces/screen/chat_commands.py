"""The commands that a person types into a chat, and the shell behind `!`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from rich.text import Text

from acp_wire.schema import ImageContent, TextContent
from acphold.conversation.history.prompt_queue import moment_first
from acphold.conversation.presentation.visible_text import visible
from acphold.faces.screen import session_options
from acphold.faces.screen.layout import Passage
from acphold.faces.screen.queued_prompts import change_by_words, page, prompt_at
from acphold.faces.screen.turns import ChatHost, ChatScreen, ShownTurns
from acphold.faces.screen.typed import help_page
from acphold.machine.clipboard import picture
from acphold.machine.foreground import ForegroundProgram


class ChatCommands:
    """Runs the commands; each shows its result, or says in a hint why there is none.

    `goes_to` is where the person went from here, `new` or `resume` with its arguments.
    """

    def __init__(
        self, screen: ChatScreen, turns: ShownTurns, host: ChatHost, *, reads_only: bool = False
    ) -> None:
        self.goes_to: tuple[str, str] | None = None
        self._reads_only = reads_only
        self._screen = screen
        self._turns = turns
        self._host = host
        self._is_taking_back = False
        self._pasted: list[str] = []

    def start(self, name: str, words: str = "") -> None:
        """Run a command in a task; the shown hint is outdated then."""
        self._screen.show_hint("")
        self._screen.start(self._run(name, words), name)

    async def _run(self, name: str, words: str) -> None:
        screen, turns, flow = self._screen, self._turns, self._screen.flow
        match name:
            case "help":
                flow.put(help_page())
            case "quit":
                screen.face.close()
            case "new" | "resume" if self._reads_only:  # a watcher would begin something elsewhere
                screen.show_hint(
                    "not available here: leave, then run `acphold continue` or `acphold chat`"
                )
            case "new" | "resume" if turns.in_turn:
                screen.show_hint("a turn is running: Ctrl-C cancels it")
            case "new" | "resume":
                self.goes_to = name, words if name == "resume" else ""
                screen.face.close()
            case "model":
                await session_options.set_model(turns.session, screen, words)
            case "mode":
                await session_options.set_mode(turns.session, screen, words)
            case "next mode":
                await session_options.next_mode(turns.session, screen)
            case "options":
                await session_options.set_option(turns.session, screen)
            case "now":
                await turns.steer(words)
            case "later":
                try:
                    at, text = moment_first(words)
                    if text:
                        await turns.later(text, at, f"/later {words}")
                    else:
                        usage = "/later [02:00] TEXT: sends TEXT after this turn, not before 02:00"
                        screen.show_hint(usage)
                except ValueError as error:
                    screen.face.put_back(f"/later {words}")
                    screen.show_hint(str(error))
            case "queue":
                await self._change_queue(words)
            case "take back" if not self._is_taking_back:
                await self._change_queue("back")
            case "leave as it was":
                await turns.give_back()
            case "calls" if calls := flow.whole_calls():
                await screen.face.read(calls)
            case "calls":
                screen.show_hint("no tool calls yet")
            case "stderr" if (output := visible(self._host.stderr() or "")).strip():
                lines = [Text(line) for line in output.splitlines()]
                await screen.face.read([Passage("stderr", "faint", lines)])
            case "stderr":
                screen.show_hint("no stderr of the agent is available")
            case "paste picture":
                await self._paste_picture()
            case "export":
                flow.tell(await self._host.export(turns.session.id, words))
            case "fork":
                for line in (await self._host.fork(turns.session.id, words)).splitlines():
                    flow.tell(line)
        flow.attributes_changed = True

    async def _change_queue(self, words: str) -> None:
        """Carry out `/queue` with its arguments."""
        queue = self._turns.queue
        waiting = queue.state.waiting
        command, _, number = words.partition(" ")
        try:
            if words in ("", "back") and not waiting:
                self._screen.show_hint("no queued prompts")
            elif not words:
                self._screen.flow.put(page(queue.state))
            elif command == "back":
                await self._take_back(number.strip() or str(len(waiting)))
            elif hint := await change_by_words(queue, words):
                self._screen.show_hint(hint)
        except ValueError as error:
            self._screen.show_hint(str(error))

    async def _take_back(self, number: str) -> None:
        """Take the prompt with this number into the input; ValueError if there is none, or it is
        more than what could be typed again."""
        queue = self._turns.queue
        waits = prompt_at(queue.state, number)
        self._is_taking_back = True
        try:
            await self._turns.give_back()
            blocks = await queue.take(waits.id)
            text = "\n".join(block.text for block in blocks if isinstance(block, TextContent))
            is_text = all(isinstance(block, TextContent) for block in blocks)
            if not (is_text or self._turns.content_of(text) == blocks):
                has_picture = any(isinstance(block, ImageContent) for block in blocks)
                what = "pictures" if has_picture else "files"
                await queue.edit(waits.id)
                raise ValueError(
                    f"prompt {number} has {what} and cannot be edited; /queue drop {number}"
                )
            self._turns.edited = waits.id
        finally:
            self._is_taking_back = False
        self._screen.face.put_back(text)
        self._screen.show_hint("Enter puts it back; an empty line leaves it as it was")

    async def shell(self, command: str) -> None:
        """Run the person's shell command in the folder of the session."""
        flow, face = self._screen.flow, self._screen.face
        shell = os.environ.get("SHELL") or "/bin/sh"
        flow.put(Passage("shell", "acphold", [Text(visible(f"$ {command}"))]))
        folder = self._turns.folder
        code = await face.in_front(ForegroundProgram((shell, "-c", command), cwd=folder))
        if code:
            flow.tell(f"exit code {code}")

    async def _paste_picture(self) -> None:
        """Insert a reference to the clipboard's picture into the line of input."""
        if not (found := await picture()):
            self._screen.show_hint(
                "no picture in the clipboard, or no wl-paste, xclip or pngpaste on PATH"
            )
            return
        descriptor, path = mkstemp(suffix=".png", prefix="acphold-")
        os.close(descriptor)
        Path(path).write_bytes(found)  # noqa: ASYNC240 - as quick as the clipboard is small
        self._pasted.append(path)
        self._screen.face.insert(f"@{path} ")

    def drop_pasted(self) -> None:
        """Delete the files of pasted pictures."""
        for path in self._pasted:
            with suppress(OSError):  # gone already
                os.unlink(path)
        self._pasted.clear()
