"""The actions of the picker on its sessions; those that change something can be undone, the last
one first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from acphold.errors import AcpError
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import UsageError
from acphold.faces.cli.session_copies import MadeCopy, copy_listed
from acphold.faces.cli.settings import NamedAgent, agent_name, agents_in_file, agents_on_path
from acphold.faces.cli.terminal_text import cut, on_one_line, quantity, tell, titled
from acphold.faces.screen.picker import Picked
from acphold.faces.screen.terminal import open_output
from acphold.journal.rows import SessionRow
from acphold.known_agents import DEMO
from acphold.live.hub.annotations import as_title
from acphold.live.reading.local_reader import existing_journal


class ListActions:
    """See the module. Sessions that the person deletes go when they leave the list."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()
        self.made: MadeCopy | None = None
        """The copy in which the person continues."""
        self._deleted: list[str] = []
        self._undos: list[tuple[str, Callable[[], Awaitable[object]]]] = []

    @property
    def done(self) -> str:
        """The action that would be undone; "" for none."""
        return self._undos[-1][0] if self._undos else ""

    async def act(self, choice: Picked) -> str:
        """Carry out an action that asks nothing; return a sentence about it, "" if `done` says
        it."""
        from acphold.faces.cli import session_commands as commands  # late: few choose them

        ids = [choice.session_id, *choice.others]
        match choice.action:
            case "undo" if self._undos:
                done, undo = self._undos.pop()
                said = await undo()
                return said if isinstance(said, str) else f"Undone: {done}"
            case "archive":
                await commands.archive_all(ids, undo=False)
                self._note("archived", ids, partial(self._restore, ids))
            case "delete":
                self._deleted += ids
                self._note("deleted", ids, partial(self._keep, ids))
            case "pin":
                changed, pinned = await commands.pin_all(ids)
                did = "pinned" if pinned else "took down"
                self._note(did, ids, partial(commands.pin_all, changed, pinned=not pinned))
            case "export":
                from acphold.faces.cli.export import export_here

                return f"Wrote ./{on_one_line(await export_here(choice.session_id))}"
        return ""

    async def act_on_terminal(self, choice: Picked) -> Picked:
        """Carry out an action that asks for words; the list is off the terminal. Return where it
        goes on: in the list, or in a copy."""
        from acphold.faces.cli import session_commands as commands

        session_id, ids = choice.session_id, [choice.session_id, *choice.others]
        match choice.action:
            case "rename":
                row = await _row(session_id)
                title = await _asked("New title: ", on_one_line(row.title or ""))
                if title is not None and as_title(title) is not None:
                    await commands.rename(session_id=session_id, words=[title])
                    self._note("renamed", [session_id], partial(commands.put_title_back, row))
            case "tag":
                if choice.others:
                    of = quantity(len(ids), "session")
                else:
                    title = titled((await _row(session_id)).title)
                    of = f"“{cut(title, bounds.NAMED_CHARACTERS)}”"
                asking = f"Tags of {of}, each one word (needs-review); - before one removes it: "
                while words := (await _asked(asking) or "").replace(",", " ").split():
                    if before := await commands.tag_all(ids, words):
                        self._note("tagged", ids, partial(commands.put_back, before))
                        return choice._replace(selected=())
            case "copy":
                if (made := await _copy(session_id)) is not None:
                    self.made = made
                    return Picked(made.session_id, "open")
        return choice

    async def end(self) -> None:
        """Delete what the person has deleted, for good."""
        if self._deleted:
            from acphold.faces.cli import session_commands as commands

            await commands.delete(session_ids=self._deleted, sure=True, now=False)

    def _note(self, did: str, ids: Sequence[str], undo: Callable[[], Awaitable[object]]) -> None:
        self._undos.append((f"{did} {quantity(len(ids), 'session')}", undo))

    async def _restore(self, ids: Sequence[str]) -> None:
        from acphold.faces.cli import session_commands as commands

        await commands.archive_all(ids, undo=True)
        self.hidden -= {*ids}

    async def _keep(self, ids: Sequence[str]) -> None:
        self._deleted = [each for each in self._deleted if each not in ids]
        self.hidden -= {*ids}


async def _row(session_id: str) -> SessionRow:
    async with existing_journal() as kept:
        return await kept.session(session_id)


async def _copy(session_id: str) -> MadeCopy | None:
    """Copy a session for the agent that the person names; None after Esc."""
    its = on_one_line(agent_name((await _row(session_id)).agent))
    in_file = [it.name for it in agents_in_file() if isinstance(it, NamedAgent)]
    others = [it for it in dict.fromkeys([*in_file, *agents_on_path(), DEMO]) if it != its]
    asking = f"Continue in a copy: Enter for {its}, or another agent ({', '.join(others)}): "
    while (named := await _asked(asking)) is not None:
        agent = named.strip()
        try:
            return await copy_listed(session_id, agent if agent not in ("", its) else None)
        except (AcpError, UsageError) as error:
            tell(str(error))
    return None


async def _asked(question: str, already: str = "") -> str | None:
    """Return the line that the person makes of what is there `already`; None after Esc or
    Ctrl-C."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    @keys.add("c-r")
    @keys.add("c-s")
    def _(_: KeyPressEvent) -> None:
        """There is nothing to search in."""

    asking: PromptSession[str] = PromptSession(key_bindings=keys, output=open_output(None))
    try:
        return await asking.prompt_async(question, default=already)
    except (EOFError, KeyboardInterrupt):
        return None
