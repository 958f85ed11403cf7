"""The demo's agent at work in its scratch repository: a real edit, and a real run."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

import msgspec

from acp_check.bounds import CANCEL_LOOK_SECONDS
from acp_check.errands import InVainError, Script, content
from acp_wire.surroundings import Surroundings
from acp_wire.workspace.roots import Roots
from acp_wire.workspace.terminals import Terminals
from acphold.errors import AcpError
from acphold.faces.cli import bounds
from acphold.faces.cli.demo_folder import FILE, HELLO

COMMAND: Final = f"python3 {FILE}"

CHANGES: Final = (
    ('return f"hi {name}"', 'return f"Hello, dear {name}!"', "the greeting becomes friendlier"),
    (
        'print(greeting("world"))',
        'for name in ("world", "moon"):\n        print(greeting(name))',
        "it greets the moon as well",
    ),
    ('"""Says hello."""', '"""Says hello to everybody."""', "its first line says whom it greets"),
)
"""Old text, new text, and what that does; the first one that fits is made."""

NO: Final = "You said no, so nothing was written."
NO_RUN: Final = "The change is made; you said no to running it."

NEXT: Final = (
    "Next, after `cd {folder}`: `acphold diff -` shows the changes, and `acphold continue "
    "- --files` continues in a copy with its own files. Each further prompt makes another change."
)
MORE: Final = (
    f"More to try in that folder: `acphold rules add 'run {COMMAND}'` lets me run it without "
    "asking, `acphold serve --phone` shows this conversation on your phone, and in `acphold chat` "
    "`/later` and words queue a prompt."
)


class Work(Script):
    """A turn that changes a file and runs it, each after a question that shows what it is about."""

    async def work(self) -> None:
        """Edit, run, and name what to try next."""
        end = time.monotonic() + bounds.DEMO_THOUGHT_SECONDS
        while time.monotonic() < end:
            if self.turn.cancelled:
                return
            await asyncio.sleep(CANCEL_LOOK_SECONDS)
        if await self.edit_file():
            await self.run_file()
            if not self.turn.cancelled:
                # Said once in a conversation, also by a process that it was handed over to.
                is_said = b"acphold diff -" in msgspec.json.encode(self.kept.history)
                words = MORE if is_said else NEXT.format(folder=self.kept.cwd)
                self.say(f"\n\n{words}")

    async def edit_file(self) -> bool:
        """Make the next change; return False if it was not made."""
        path = self.absolute(FILE)
        try:
            old = await self.own_text(path)
        except InVainError as error:
            self.say(f"It came to nothing: {error}.")
            return False
        new, words = next_text(old)
        self.say(f"I am a script: whatever you write, my next change is that {words}. ")
        call = self.tool(f"Edit {FILE}", "edit", status="pending", locations=[{"path": path}])
        with self.failing(call):
            diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
            shown = {"content": [diff], "rawInput": {"path": path}}
            self.change(call, **shown)
            if not await self.consent(call, NO, title=f"Edit {FILE}", kind="edit", **shown):
                return False
            if await self.own_text(path) != old:
                raise InVainError(f"{FILE} has changed since I asked, so nothing was written")
            await self.save(path, new)
            self.change(call, status="completed")
            return True
        return False

    async def run_file(self) -> None:
        """Run the file and show its output."""
        given = {"command": COMMAND}
        call = self.tool(COMMAND, "execute", status="pending", rawInput=given)
        with self.failing(call):
            if not await self.consent(call, NO_RUN, title=COMMAND, kind="execute", rawInput=given):
                return
            if in_terminal := self.offers("terminal"):
                output = await self.in_terminal(call, COMMAND)
            else:
                output = await self.output_of(*COMMAND.split())
            if self.turn.cancelled:
                self.change(call, status="failed")
                return
            block = f"```\n{output.rstrip()}\n```"
            shows = {} if in_terminal else {"content": [content(block)]}
            self.change(call, status="completed", rawOutput={"output": output}, **shows)
            self.say(f"It is written, and the program prints:\n\n{block}")

    async def consent(self, call: str, no: str, **shown: object) -> bool:
        """Ask for permission for a call, of which this is shown; a no ends it, with the words
        `no`."""
        is_given = await self.permits({"toolCallId": call, **shown})
        if is_given and not self.turn.cancelled:
            self.change(call, status="in_progress")
            return True
        self.change(call, status="failed")
        if not self.turn.cancelled:
            self.say(no)
        return False

    async def own_text(self, path: str) -> str | None:
        """Return the text of the file, None if there is none; raises InVainError."""
        if not os.path.lexists(path):
            return None
        if os.path.islink(path) or not os.path.isfile(path):
            raise InVainError(f"{FILE} is not a regular file, so I leave it alone")
        return await self.text_of(path)

    async def output_of(self, program: str, *arguments: str) -> str:
        """Return the end of a program's output; raises InVainError."""
        commands = Terminals(Roots(self.kept.cwd), Surroundings.here())
        try:
            command = await commands.create(
                program, arguments, output_byte_limit=bounds.DEMO_OUTPUT_BYTES
            )
            waiting = asyncio.ensure_future(command.wait())
            end = time.monotonic() + bounds.DEMO_COMMAND_SECONDS
            while not (await asyncio.wait([waiting], timeout=CANCEL_LOOK_SECONDS))[0]:
                if self.turn.cancelled or time.monotonic() > end:
                    await command.kill()
                    break
            if time.monotonic() > end:
                raise InVainError(f"{COMMAND} ran too long and was ended")
            return command.output().output
        except AcpError as error:
            raise InVainError(str(error)) from None
        finally:
            await commands.aclose()


def next_text(old: str | None) -> tuple[str, str]:
    """Return the text after one more change, and what that does."""
    if old is None:
        return HELLO, f"{FILE} is written anew"
    for before, after, words in CHANGES:
        if before in old:
            return old.replace(before, after, 1), words
    number = len(old.splitlines()) + 1
    added = f'print("This is line {number} of a friendly program.")'
    return f"{old.rstrip()}\n    {added}\n", "it prints one more line"
