"""`acphold setup`: puts `acphold wrap` in front of the agents in editors' settings."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from difflib import unified_diff
from functools import partial
from glob import escape, glob
from itertools import count
from typing import Final, NamedTuple

from rich.text import Text

from acp_wire.processes.program import on_path
from acp_wire.state_folder import state_folder
from acp_wire.workspace.files import replace
from acp_wire.workspace.regular_files import open_fd
from acphold.errors import AgentStartError, SettingsError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command, confirm
from acphold.faces.cli.editors import (
    EDITORS,
    FileEditor,
    PasteEditor,
    ServedAgent,
    agent_of,
    editors_here,
    is_written,
    last_word,
    name_one,
    own_words,
    words_of,
)
from acphold.faces.cli.jsonc import JsoncError, remove as without
from acphold.faces.cli.settings import (
    VARIABLE as SETTINGS_VARIABLE,
    NamedAgent,
    agent_command,
    agents_in_file,
    agents_on_path,
    agents_without_adapter,
    read_text,
    settings_path,
    startable,
    wrap_arguments,
)
from acphold.faces.cli.terminal_text import console, folder, on_one_line, say, tell, visible
from acphold.faces.cli.wrap import settings_parser
from acphold.journal import stores
from acphold.journal_location import VARIABLE as JOURNAL_VARIABLE
from acphold.known_agents import KNOWN_AGENTS
from acphold.machine.locked_file import hold
from acphold.machine.own_program import own_command

STYLES = {"+": "added", "-": "removed", "@": "faint"}
"""Styles for the lines of a diff, by their first character."""


@command("setup", "[OPTIONS] [EDITOR [AGENT | -- CMD...]]")
def setup(
    *,
    editor: str | None = options.argument(
        "EDITOR", f"one of {', '.join(EDITORS)}", nargs="?", choices=[*EDITORS]
    ),
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    title: str | None = options.value("NAME", "the agent's name in the editor", "--as"),
    file: str | None = options.value(
        "FILE", "the editor's settings file, if it is not in the usual place"
    ),
    existing: bool = options.flag("put acphold in front of the agents that the editor has"),
    remove: bool = options.flag("remove the entry, or acphold, again"),
    sure: bool = options.SURE,
) -> int:
    """Put acphold in front of the agents in your editor's settings.

    Without EDITOR it finds the editors and agents on this machine, shows every change, and asks
    once. --remove takes acphold out again: of all editors, of one, or one agent there. Entries that
    you wrote yourself stay.

    AGENT is a name that acphold knows, or one from the settings file; without it, every agent of
    that file is set up. Give any other agent by its command:

      acphold setup zed claude
      acphold setup jetbrains -- gemini --acp

    With --existing, or when there is no agent to write, acphold is put in front of the agents that
    the editor already has.

    It shows a diff, asks before writing and touches nothing else in the file. Before the first
    change it makes a backup beside it. For Neovim and Emacs it prints what to paste.
    """
    if editor is None:
        if agent or program or title or file or existing:
            raise UsageError(f"name the editor, one of {', '.join(EDITORS)}")
        return _set_up_all(is_removal=remove, sure=sure)
    if existing and (agent is not None or program):
        raise UsageError("--existing uses the agents that the editor has; do not name one")
    others = title if remove else agents_in_file()
    existing = existing or not (agent or program or others)
    asked = agent
    if not (existing or remove or sure):
        agent, program = startable(agent, program)
    agents: list[PlannedAgent] = []
    if remove and not existing:  # they need not exist any more
        named = _name_of(program) if program else agent
        names = [it.name for it in _settings_agents()] if named is None else [named]
        agents = [PlannedAgent(name, ()) for name in names]
    elif not existing:
        agents = _agents_to_write(agent, program)
    if asked is not None and agent is None:  # npm fetches it: it keeps the name that was asked for
        agents = [each._replace(name=asked) for each in agents]
    if title is not None and len(agents) != 1:
        raise UsageError(f"--as renames one agent, and there are {len(agents)}: name the agent")
    match EDITORS[editor]:
        case PasteEditor() as pasted:
            if existing or remove or file is not None:
                raise UsageError(
                    f"acphold cannot write the settings of {pasted.shown}, only print what to "
                    f"paste. {name_one(editor)}"
                )
            for each in agents:
                say(pasted.snippet(_as_served(each, title), each.command))
            tell(pasted.hint)
            return Exit.OK
        case FileEditor() as found:
            path = os.path.abspath(os.path.expanduser(file)) if file else found.path()
            if file and not os.path.isdir(os.path.dirname(path)):
                raise UsageError(
                    f"--file {file}: the folder {folder(os.path.dirname(path))} does not exist; "
                    "create it first"
                )
            if existing:
                chosen = [(editor, found, path)]
                return _change_agents(chosen, [], is_removal=remove, sure=sure)
            served = [_as_served(each, title) for each in agents]
            return _change_entries(found, path, served, is_removal=remove, sure=sure)


# -- which agents ---------------------------------------------------------------------------

DESKTOP_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Folders on the PATH of every editor; a shell often adds others."""


class PlannedAgent(NamedTuple):
    """An agent to write: its name, its words after `wrap`, and its command."""

    name: str
    words: tuple[str, ...]
    command: tuple[str, ...] = ()


def _agents_to_write(agent: str | None, program: Sequence[str]) -> list[PlannedAgent]:
    """Return the agents to write, which can be started; SettingsError, AgentStartError."""
    if program:
        command = (_absolute(program[0]), *program[1:])
        return [PlannedAgent(_name_of(program), ("--", *command), command)]
    named = [agent_command(agent)] if agent is not None else _settings_agents()
    for found in named:
        wrap_arguments(found, settings_parser())  # this reports unusable options
        started, *arguments = found.command
        if os.path.isabs(started):
            continue
        path = _absolute(started, f"{found.name}: ")
        if os.path.dirname(path) in DESKTOP_PATH:
            continue
        words = ", ".join(f'"{word}"' for word in (path, *arguments))
        tell(
            f"acphold: {started!r} is on the PATH of this shell, but maybe not on that of an "
            "editor started from the desktop. If the editor does not find it, write into "
            f"{folder(settings_path())}, below [agents.{found.name}]: command = [{words}]"
        )
    return [PlannedAgent(found.name, (found.name,), found.command) for found in named]


def _settings_agents() -> list[NamedAgent]:
    found = agents_in_file()
    if not found:
        raise UsageError(f"no agent given, and {settings_path()} has none. {name_one()}")
    for agent in found:
        if isinstance(agent, SettingsError):
            raise agent
    return [agent for agent in found if isinstance(agent, NamedAgent)]


def _absolute(program: str, whose: str = "") -> str:
    """Return the absolute path of a program; AgentStartError, which names the agent."""
    path = on_path(os.path.expanduser(program))
    if path is None:
        raise AgentStartError(
            f"{whose}there is no program {program!r} on PATH; install it, or give its full path"
        )
    return os.path.abspath(path)


def _name_of(program: Sequence[str]) -> str:
    """Return the last part of the command's name: `claude-agent-acp` of an npm package."""
    if os.path.basename(program[0]) == "acphold":
        return os.path.basename(program[-1])  # an agent of ours: `agent demo`, `run agent.py`
    return last_word(program).rpartition("/")[2]


def _as_served(agent: PlannedAgent, title: str | None) -> ServedAgent:
    """Return the agent as an editor starts it."""
    # Variables of this shell without which acphold would use other files than here.
    env: dict[str, str] = {}
    if os.environ.get(SETTINGS_VARIABLE):
        env[SETTINGS_VARIABLE] = settings_path()
    if named := os.environ.get(JOURNAL_VARIABLE):
        env[JOURNAL_VARIABLE] = stores.journal_name(named)
    return ServedAgent(agent.name, title, (*absolute_command(), "wrap", *agent.words), env)


def absolute_command() -> tuple[str, ...]:
    """Return the absolute command of this acphold: its own script, or Python and the module."""
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started) == "acphold" and os.access(started, os.X_OK):
        return (started,)
    if found := on_path("acphold"):
        return (found,)
    return own_command()


# -- files ----------------------------------------------------------------------------------


def _change_entries(
    editor: FileEditor, path: str, served: Sequence[ServedAgent], *, is_removal: bool, sure: bool
) -> int:
    """Write an entry for each of these agents, or remove the entries."""

    called = [*map(editor.name_of, served)]

    def edit(text: str) -> str:
        commands = editor.commands(text) if is_removal else {}
        for name, agent in zip(called, served, strict=True):
            if not is_removal:
                text = editor.with_entry(text, agent)
            elif is_written(commands.get(name, [])):
                text = without(text, [editor.table, name])
        return text

    code, unchanged = _change([(path, edit)], sure=sure)
    names = ", ".join(called)
    if unchanged:
        state = "has no entry of `setup` for" if is_removal else "already has the right entry for"
        _print_unchanged(path, f"{state} {names}")
    elif code == Exit.OK and not is_removal:
        say(editor.afterwards.format(name=names))
    if is_removal:
        _print_left(path, [name for name in editor.commands(_read(path) or "") if name in called])
    return code


def _change_agents(
    editors: Sequence[tuple[str, FileEditor, str]],
    agents: Sequence[PlannedAgent],
    *,
    is_removal: bool,
    sure: bool,
) -> Exit:
    """Put acphold in front of the agents of editors, each given with its name and file, and write
    entries for `agents` that are missing; or remove acphold."""
    edited = _without_acphold if is_removal else partial(_with_agents, agents)
    code, unchanged = _change(
        [(path, partial(edited, editor)) for _, editor, path in editors], sure=sure
    )
    if code != Exit.OK:
        return code
    for called, editor, path in editors:
        if path in unchanged:
            state = "has nothing that `setup` wrote"
            if not is_removal:
                advice = "" if agents else f". {name_one(called)}"
                state = f"has no agent command without acphold in front{advice}"
            _print_unchanged(path, state)
        text = _read(path) or ""
        commands = editor.commands(text)
        if is_removal:
            ours = [name for name, words in commands.items() if own_words(words) is not None]
            _print_left(path, ours)
            continue
        for sentence in editor.warnings(text):
            say(sentence)
        managed = editor.names_of_managed(text)
        if bare := [name for name, words in commands.items() if not words and name not in managed]:
            those, why = ", ".join(bare), "because they have no command there"
            say(f"Unchanged, {why}: {those}. {name_one(called)}.")
    if not is_removal and len(unchanged) < len(editors):
        print("Conversations are kept from now on; `acphold setup --remove` undoes it.")
    return code


def _print_unchanged(path: str, state: str) -> None:
    """Print that there is nothing to do for a file in this state, perhaps with advice."""
    state, dot, advice = state.partition(". ")
    state = state if os.path.exists(path) else "is not there"
    say(f"Nothing to do: {folder(path)} {state}{dot}{advice}.")


def _print_left(path: str, names: Sequence[str]) -> None:
    """Print a line for each entry that `--remove` leaves alone, and why."""
    for name in names:
        why = "its command is not as `setup` writes it"
        say(f"{on_one_line(name)} stays: {why}. To remove it, edit {folder(path)}")


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other `setup`s of this user from writing in this block; SettingsError."""
    deadline = time.monotonic() + bounds.SETUP_LOCK_SECONDS
    try:
        while (held := hold(os.path.join(state_folder(), "setup.lock"))) is None:
            if time.monotonic() > deadline:
                raise SettingsError(
                    "another `acphold setup` is writing; nothing was written, try again"
                )
            time.sleep(bounds.SETUP_LOCK_LOOK_SECONDS)
    except OSError as error:
        raise SettingsError(f"{state_folder()} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        held.release()


def _change(
    edits: Sequence[tuple[str, Callable[[str], str]]], *, sure: bool
) -> tuple[Exit, list[str]]:
    """Show the changes that these functions make to files, ask once, and write.

    Returns the exit code, and the files that do not change. The lock is not held while a person is
    asked: only the writing is locked, and a file that changed since it was shown is refused.
    """
    with _alone() if sure else nullcontext():
        planned = {path: _plan_edit(path, edit) for path, edit in edits}
        unchanged = [path for path, change in planned.items() if change is None]
        changes = {path: change for path, change in planned.items() if change is not None}
        if not changes:
            return Exit.OK, unchanged
        named = " and ".join(visible(folder(path)) for path in changes)
        if not confirm(f"Write this to {named}?", "written", sure=sure):
            return Exit.ERROR, unchanged
        with nullcontext() if sure else _alone():
            for path, (before, after) in changes.items():
                kept = _write(path, before, after)
                was = f" (backup: {folder(kept)})" if kept else ""
                say(f"{'Written' if after else 'Removed'}: {folder(path)}{was}")
    return Exit.OK, unchanged


def _plan_edit(path: str, edit: Callable[[str], str]) -> tuple[str | None, str] | None:
    """Show the changes of the file; return its text, None without a file, and the new one, "" to
    remove it; None if there are no changes. Raises SettingsError."""
    before = _read(path)
    try:
        after = edit(before or "")
    except JsoncError as error:
        raise SettingsError(f"{path}, {error}; nothing was written") from None
    if after == (before or ""):
        return None
    if _made_by_setup(path, after):
        after = ""
    shown, screen = folder(path), console()
    for line in unified_diff(
        (before or "").splitlines(),
        after.splitlines(),
        shown if before is not None else "(new file)",
        shown if after else "(no file)",
        lineterm="",
    ):
        style = "heading" if line[:3] in ("---", "+++") else STYLES.get(line[:1], "")
        screen.print(Text(visible(line), style), soft_wrap=True)
    return before, after


# -- everything that is here ----------------------------------------------------------------


def _set_up_all(*, is_removal: bool, sure: bool) -> int:
    """Set up each editor that has settings here, with its own agents and the installed ones; or
    remove acphold from each."""
    editors = [(name, editor, editor.path()) for name, editor in editors_here()]
    if not editors:
        known = [it for it in EDITORS.values() if isinstance(it, FileEditor)]
        places = ", ".join(folder(path) for it in known for path in it.places())
        found = f"found no settings of an editor: looked for {places}"
        if is_removal:
            say(f"Nothing to do: {found}.")
            return Exit.OK
        agent = next(iter(agents_on_path()), "claude")
        raise UsageError(
            f"{found}\nName your editor and agent: `acphold setup zed {agent}` makes the file; "
            f"`acphold setup neovim {agent}` and `acphold setup emacs {agent}` print what to "
            "paste. More: `acphold setup --help`"
        )
    agents: list[PlannedAgent] = []
    if not is_removal and agents_in_file():
        agents = _agents_to_write(None, ())
    elif not is_removal:  # the installed ones, and those whose adapter npm has to fetch
        agents = [agent for name in agents_on_path() for agent in _agents_to_write(name, ())]
        for name in agents_without_adapter():
            words = tuple(words_of(KNOWN_AGENTS[name]))
            agents.append(PlannedAgent(name, words, words[1:]))
    return _change_agents(editors, agents, is_removal=is_removal, sure=sure)


def _without_acphold(editor: FileEditor, text: str) -> str:
    """Return the settings without acphold, and without the entries that are ours."""
    fetched = {known.package: known.name for known in KNOWN_AGENTS.values() if known.package}
    for name, words in editor.commands(text).items():
        if not is_written(words):
            continue
        if own := own_words(words):  # an entry with this command has one of these names
            agents = {_name_of(own), agent_of(words), fetched.get(tuple(own[2:]), "")}
            names = {editor.name_of(ServedAgent(agent, None, (), {})) for agent in agents}
            is_ours = name in names
        else:  # an agent's name, under any with --as
            is_ours = not editor.was_managed(name, words)
        if is_ours:
            text = without(text, [editor.table, name])
    return editor.without_fronts(text)


def _with_agents(agents: Sequence[PlannedAgent], editor: FileEditor, text: str) -> str:
    """Return the settings with acphold before each agent there, and with those of ours that are
    missing."""
    text = editor.with_fronts(text, _as_served(PlannedAgent("", ()), None))
    has = {agent_of(words) for words in editor.commands(text).values() if words}
    for agent in agents:
        if agent.name not in has and agent_of(agent.command) not in has:
            text = editor.with_entry(text, _as_served(agent, None))
    return text


def _read(path: str) -> str | None:
    return read_text(path, bounds.EDITOR_SETTINGS_BYTES)


def _write(path: str, before: str | None, after: str) -> str | None:
    """Replace the file in one step, following links, or remove it; returns the backup's path.
    SettingsError."""
    target = os.path.realpath(path)
    old = folder_fd = None
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if _read(target) != before:  # an editor may have written meanwhile
            raise SettingsError(f"{path} changed in the meantime; nothing was written, try again")
        if not after:
            os.unlink(target)
            return None
        kept = None if before is None else _keep(path, target, before)
        with suppress(FileNotFoundError):
            old = open_fd(target)
        folder_fd = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
        replace(folder_fd, os.path.basename(target), after.encode(), old, lambda: None)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}; make it and its folder writable, or "
            "write the lines above into it yourself"
        ) from None
    finally:
        for descriptor in (old, folder_fd):
            if descriptor is not None:
                os.close(descriptor)
    return kept


STAMPED: Final = re.compile(r"\.\d{8}-\d{6}(-\d+)?\.bak")
"""The end of the name of a backup of ours, behind that of the file."""

EMPTY: Final = re.compile(r"\s*\{\s*\}\s*")
"""Settings without a member or a comment."""

STARTS_US: Final = re.compile(r'"([^"\n]*/)?acphold"')
"""A text with an acphold in front of some agent was changed before."""


def _backups(path: str) -> Iterator[str | None]:
    """Yield the texts of the backups of ours beside the file."""
    for name in glob(f"{escape(path)}.*.bak"):
        if STAMPED.fullmatch(name.removeprefix(path)):
            with suppress(SettingsError):  # a stranger's
                yield _read(name)


def _made_by_setup(path: str, after: str) -> bool:
    """Return True if nothing is left in the file, and nothing was there before our first change:
    of that there would be a backup."""
    if os.path.islink(path) or not EMPTY.fullmatch(after):
        return False
    return all(text is not None and STARTS_US.search(text) for text in _backups(path))


def _keep(path: str, target: str, before: str) -> str | None:
    """Back up the file's text under a free name beside it; returns that name. None if it is there
    from before the first change."""
    for text in _backups(path):
        if STARTS_US.search(before) or text == before:
            return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (f"{path}.{stamp}{f'-{number}' if number else ''}.bak" for number in count())
    for name in names:
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with open(fd, "wb") as copy:
            os.fchmod(fd, os.stat(target).st_mode & 0o777)
            copy.write(before.encode())
        return name
    raise AssertionError("numbers do not run out")
