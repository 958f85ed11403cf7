"""`acphold continue`, and plain `acphold`: find a conversation and go on with it: in itself, in a
copy, or on another machine."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable
from contextlib import suppress
from itertools import permutations
from typing import Any

from msgspec.json import encode

from acp_wire.rpc import Transport
from acp_wire.transports.known_servers import is_url, origin_of
from acphold.errors import AmbiguousIdError, UnknownSessionError
from acphold.faces.cli import options
from acphold.faces.cli.chat import talk_here
from acphold.faces.cli.command_line import Exit, NothingChosen, UsageError, command
from acphold.faces.cli.continuation import find_id, title_of
from acphold.faces.cli.journals import sessions_here, short_id
from acphold.faces.cli.list_actions import ListActions
from acphold.faces.cli.move_end import from_server, lines_of, over_ssh, place_here, take_session
from acphold.faces.cli.places import NEWEST, place
from acphold.faces.cli.screen_session import WantedConversation, join
from acphold.faces.cli.servers import server_at
from acphold.faces.cli.session_copies import BESIDE, LAST, MadeCopy, WantedCopy, copy_session
from acphold.faces.cli.session_picker import choose_session, pick_session
from acphold.faces.cli.settings import UninstalledAgentError, agent_keys, agent_names
from acphold.faces.cli.show import show_in_pager
from acphold.faces.cli.ssh import become_ssh
from acphold.faces.cli.terminal_text import on_one_line, on_terminal, say, tell, visible
from acphold.faces.screen.picker import Picked
from acphold.live.hub.move_giver import give
from acphold.live.hub.move_taker import WantedPlace
from acphold.live.hub.moves import MovedSession
from acphold.live.reading.listed_sessions import SHORT_ID, Wanted
from acphold.live.reading.local_reader import existing_journal
from acphold.live.reading.processes import let_go, live_anywhere


class _Options(WantedCopy, kw_only=True):
    """The arguments of `continue`."""

    words: list[str] = options.argument(
        "WORDS", "a session's id, or words that filter the list", nargs="*"
    )
    program: tuple[str, ...] = options.PROGRAM
    start: int | None = options.value(
        "PROMPT",
        "in a copy that ends with this prompt and its answer: the number of an entry of that turn, "
        "as `search` prints it in ID@SEQ and `show --json` as seq, or `last`",
        "--from",
        type=options.a_prompt,
    )
    before: bool = options.flag("leave that prompt and its answer out, by default the last one")
    agent: str | None = options.value(
        "AGENT",
        "in a copy, with another agent: one that acphold knows, one from the settings file, or CMD",
        "--with",
    )
    files: str | None = options.value(
        "FOLDER",
        "in a copy, with the files as they were then in this new folder, or in one beside the "
        "project; with --on and --bring-from: the folder there or here",
        nargs="?",
        const=BESIDE,
    )
    include: bool = options.flag(
        "with --files: also copy the ignored files that `.worktreeinclude` names"
    )
    on: str | None = options.value("HOST", "move it to this machine, over ssh: user@machine")
    source: str | None = options.value(
        "HOST|URL",
        "first move the session ID here, with its files: from that machine over ssh, or from "
        "the `acphold serve` at this URL",
        "--bring-from",
        type=options.a_host,
    )
    no_files: bool = options.flag(
        "with --on and --bring-from: leave its files behind, and continue in the project's folder"
    )
    watch: bool = options.flag("only watch a running session: send, answer and cancel nothing")
    cwd: str | None = options.value(
        "DIR",
        "continue in this folder, to which the session moves [default: its own]; with --on and "
        "--bring-from, its project's folder there or here [default: found]",
    )

    @property
    def is_move(self) -> bool:
        """True if the session goes to another machine, or comes from one."""
        return self.on is not None or self.source is not None

    @property
    def names_nothing(self) -> bool:
        """True if no option says where, or with what, it continues."""
        given = (self.agent, self.start, self.files)
        return given == (None,) * 3 and not (self.program or self.is_move or self.watch)

    @property
    def place(self) -> WantedPlace:
        """The place for a session that moves."""
        return WantedPlace(self.cwd, self.files or None, not self.no_files)

    async def is_copied(self) -> bool:
        """Return True if a copy is wanted, and not the session itself: by an option, or by
        `ID@SEQ`; an id may contain an `@` itself."""
        if self.start is not None or self.agent is not None or self.program:
            return True
        if self.files is not None and not self.is_move:
            return True
        given, at, seq = self.words[0].rpartition("@") if len(self.words) == 1 else ("", "", "")
        if not (at and given and seq.isdecimal()):
            return False
        return await find_id(self.words[0]) is None

    def check(self, *, is_copied: bool) -> None:
        """Refuse options that do not go together; raises UsageError."""
        if self.on is not None and self.source is not None:
            raise UsageError("use --on or --bring-from, not both")
        if self.no_files and (not self.is_move or self.files is not None):
            raise UsageError(
                "--no-files works only with --on and --bring-from, and without --files"
            )
        if is_copied and (self.is_move or self.watch):
            raise UsageError(
                "--from, --with and --files continue in a copy of a session here: they do not go "
                "with --on, --bring-from or --watch"
            )
        if self.agent is not None and self.program:
            raise UsageError("give --with AGENT or a command after `--`, not both")
        if self.include and (self.files is None or self.is_move):
            raise UsageError("--include works only with --files")
        if self.source is not None and (self.watch or len(self.words) != 1):
            raise UsageError(
                "--bring-from needs the ID of one session, from `acphold list --host HOST`, or the "
                "whole one in the address of its page at a server, and no --watch"
            )
        if is_copied and self.files is not None and self.cwd is not None:
            raise UsageError("--files and --cwd each name a folder; use one of them")
        if self.watch and self.cwd is not None:
            raise UsageError("--watch does not move the session to another folder: leave out --cwd")


@command("continue", "[OPTIONS] [ID | WORDS...] [-- CMD...]", *options.PLACES, options=_Options)
async def continue_conversation(**given: Any) -> int:
    """Find a conversation and continue it.

    Choose from all sessions: those waiting for you come first, then running ones, then this
    folder's, then the rest. Words filter them by title, agent and folder, and also show where the
    words were said. Enter continues the session with its agent and in its folder. If it is running
    already, in an editor or anywhere else, you join it: you see its history and everything that
    follows, can prompt, and can answer the agent's questions. Plain `acphold` does the same.

    Ctrl-C cancels the running turn, Ctrl-D leaves. Leaving a session that you joined ends nothing.
    In a pipe, an ID is required, and each line of stdin is a prompt.

    --from, --with and --files continue in a copy: the session itself stays as it is, and is listed
    beside it. Words that only one session has in its title, agent or folder name it. --from N is
    the same as ID@N, as printed by `search`: N numbers entries, not prompts, and the copy ends with
    the whole turn of that entry. An entry before the first prompt is refused: for an empty
    conversation, use `acphold chat`. A running turn is not copied and continues. An agent that can
    fork its own sessions does so; any other agent, and one of --with, gets the conversation with
    your next prompt: all your prompts, and as much of the newest rest as fits. In a pipe, only the
    copy's id is printed, and nothing starts.

    --files also copies the files as they were at the end of that turn, or with --before at its
    beginning, including changes made by commands. They go into a new work tree of the repository,
    beside the project or in FOLDER, and the copy works there. This needs a git repository, whose
    files are kept unless the settings have `snapshots = false`. Ignored files, such as
    node_modules, and untracked files that may contain a secret are not copied; --include copies
    those that the project's `.worktreeinclude` names, as they are now. This is neither a backup nor
    an undo: your own files are not changed.

    --on moves the session to another machine, over ssh, with the files as they were at the end of
    its last turn, if they were kept. They go into a new work tree beside a clone of the repository
    there. acphold finds the clone among the folders of its sessions, by the first commit of the
    project or its remotes. Nothing in an existing folder is changed. From then on the session
    belongs to that machine; here you can still read it, or continue a copy. --bring-from is the
    reverse; from a URL it needs a token with the scope manage, and also files for the files.

    If the connection breaks, run the same command again: it resumes where it stopped. The two
    machines can never both continue the session. Before you start, close the session in all
    clients; its queue must be empty. Not moved: ignored files, untracked files that may contain a
    secret, the agent's own copy of the conversation, rules, tokens and other sessions. HOST needs
    the same release of acphold, and ssh has to log in without asking for a password.
    """
    options = _Options(**given)
    if len(options.words) == 2 and options.names_nothing:
        await _name_agent(options)
    words, cwd = options.words, options.cwd
    if options.before and options.start is None and not any("@" in word for word in words):
        options.start = LAST
    is_copied = await options.is_copied()
    options.check(is_copied=is_copied)
    if words and (is_copied or options.on is not None):
        words[:] = [await _id_of(words)]
    if options.on is not None:
        return await _move_to(options.on, options)
    if options.source is not None:
        brought = await _bring(options.source, words[0], place_here(options.place))
        return await talk_here(WantedConversation(brought))
    if is_copied:
        made = await copy_session(words[0] if words else None, options)
        if not on_terminal():
            return Exit.OK
        wanted = WantedConversation(made.session_id, agent=options.agent, program=options.program)
        return await _talk_in_copy(made, wanted)
    if not on_terminal() and len(words) != 1:
        raise UsageError(
            "in a pipe, the ID of one session is required: `acphold list` prints them, or type `-` "
            "for the newest session in this folder"
        )
    if options.watch:
        return await _watch(" ".join(words))
    found = words[0] if words else None
    if on_terminal():
        found = await find_id(words[0]) if len(words) == 1 else None
    if found is not None:
        return await talk_here(WantedConversation(found, cwd=cwd))
    return await _talk_in_chosen(" ".join(words), cwd)


async def _talk_in_chosen(words: str, cwd: str | None) -> int:
    """Let the person choose from all sessions, and do with them what the keys say, until one is
    opened or they leave."""
    before, acting = Picked("", "", words=words), ListActions()
    while True:
        choice = await pick_session(
            before.words,
            acts=acting,
            at=before.at or before.session_id,
            selected=before.selected,
            read=show_in_pager,
        )
        if choice is not None and choice.action != "open":
            choice = await acting.act_on_terminal(choice)
        if choice is None or choice.action == "open":
            await acting.end()
            if choice is None:
                return Exit.OK
            wanted = WantedConversation(choice.session_id, cwd=cwd)
            try:
                if acting.made is None:
                    return await talk_here(wanted)
                return await _talk_in_copy(acting.made, wanted)
            except UninstalledAgentError as error:
                if not error.is_declined:
                    raise
                tell("Nothing was started. ^F in the list continues it with another agent.")
                acting = ListActions()
        before = choice


async def _talk_in_copy(made: MadeCopy, wanted: WantedConversation) -> int:
    """Continue in a copy; remove it again if that fails."""
    try:
        return await talk_here(wanted)
    except Exception:
        tell(await made.remove_if_unused())
        raise


async def _name_agent(options: _Options) -> None:
    """Take two words that are a session's id and an agent as `ID --with AGENT`; without a copy if
    it is the session's own."""
    for given, agent in permutations(options.words):
        if agent not in agent_names() or not (given in NEWEST or len(given) >= SHORT_ID):
            continue
        if (session_id := await find_id(given)) is None:
            continue
        options.words = [given]
        async with existing_journal() as kept:
            if (await kept.session(session_id)).agent in agent_keys(agent):
                return
        options.agent = agent
        tell(f"With {agent}, it continues in a copy (--with {agent}).")
        return


async def _id_of(words: list[str]) -> str:
    """Return the one session that a list has for these words, or that the person chooses; a single
    word that names a session stays as it is, as does one that nothing has.

    Raises UsageError in a pipe, and NothingChosen.
    """
    async with sessions_here() as (reader, _):
        if len(words) == 1:
            with suppress(UnknownSessionError):
                if words[0] not in NEWEST:
                    with suppress(AmbiguousIdError):
                        await place(reader, words[0])
                return words[0]
        wanted = Wanted(words=tuple(word.casefold() for word in words))
        found = (await reader.page(wanted, limit=2)).sessions
        if len(found) == 1 or (len(words) == 1 and not found):
            return found[0].row.session_id if found else words[0]
        if not on_terminal():
            which = "several sessions have" if found else "no session has"
            raise UsageError(f"{which} these words; give the ID of one, from `acphold list`")
        if (chosen := await choose_session(reader, "continues it", " ".join(words))) is None:
            raise NothingChosen
        return chosen


async def _move_to(host: str, options: _Options) -> int:
    """Move a session to another machine, and continue it there if this is a terminal."""
    if is_url(host):
        raise UsageError("--on takes a machine that ssh reaches, not the URL of a server")
    try:
        wanted = encode(options.place).decode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object!r} is not valid Unicode; correct it") from None
    async with sessions_here() as (reader, kept):
        text = options.words[0] if options.words else None
        row = (await place(reader, text, f"continues it on {host}")).row
        await let_go(kept, row.session_id)
        moved = await over_ssh(
            host, ["take", wanted], lambda far: give(kept, far, row.session_id, host)
        )
        name = await short_id(kept, row.session_id)
    said = "had already moved to" if moved.was_done else "now continues on"
    say(f"{title_of(row)} {said} {on_one_line(host)}")
    print(*lines_of(moved, " there"), sep="\n")
    say(f"  here you can still read it; `acphold continue {name} --from last` continues a copy")
    if on_terminal():
        become_ssh(host, ["continue", row.session_id], terminal=True)
    say(f"To continue: acphold continue --host {shlex.quote(on_one_line(host))} {name}")
    return Exit.OK


async def _bring(source: str, text: str, place: WantedPlace) -> str:
    """Bring a session here from another machine or a server; return its id."""

    def take(transport: Transport) -> Awaitable[MovedSession]:
        return take_session(transport, place, text)

    if is_url(source):
        moved = await from_server(server_at(source), text, take)
        source = origin_of(source)
    else:
        moved = await over_ssh(source, ["give", text], take)
    said = "is already here" if moved.was_done else f"was moved here from {on_one_line(source)}"
    async with existing_journal() as kept:
        short = await short_id(kept, moved.session_id)
    print(visible(f"{short} {said}"), *lines_of(moved, ""), sep="\n")
    print("  on that machine you can still read it, but continue only a copy")
    return moved.session_id


async def _watch(words: str) -> int:
    """Look on at the running session that is meant, or that the person chooses."""
    async with sessions_here() as (reader, kept):
        if not on_terminal():
            session_id = (await place(reader, words, "watches it", by_words="found")).row.session_id
        elif named_one := words and await find_id(words):
            session_id = named_one
        elif live := {*await live_anywhere(kept)}:
            if (found := await choose_session(reader, "watches", words, among=live)) is None:
                return Exit.OK
            session_id = found
        else:
            tell("No session is running. `acphold list` shows all.")
            return Exit.OK
    return (await join(session_id, watch=True))[0]
