"""Agents by name: those of the settings file, with their options of `wrap`, and the known ones.

    [defaults]                       for all agents of the file: options of `wrap`, and `env`
    start_timeout = 120

    [agents.claude]
    command = ["npx", "-y", "@agentclientprotocol/claude-agent-acp"]
    env = { ANTHROPIC_MODEL = "opus" }
    log_level = "info"

A key of an agent is an option of `wrap`, with `_` for `-`, or one that is nowhere else; all are
checked by `wrap.settings_parser`. An editor waits for `wrap NAME`, so this imports
only what reading TOML takes. `[alerts]` and `[titles]` are in `alert_settings`.

    [folders]                        folders of other machines, and what they are called here
    "/Users/me/work" = "~/work"

"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from acp_wire.processes.program import on_path
from acp_wire.surroundings import Surroundings
from acphold.errors import SettingsError
from acphold.faces.cli import bounds, packed_words
from acphold.known_agents import DEMO, KNOWN_AGENTS, KnownAgent, keys_of, short_name

if TYPE_CHECKING:
    from acphold.faces.cli.parser import Parser

VARIABLE: Final = "ACPHOLD_SETTINGS"
"""The environment variable that names the file."""

TABLES: Final = ("agents", "defaults", "alerts", "titles", "folders")
"""The tables at the top of the file."""

OWN_KEYS: Final = ("command", "env")
"""Keys of an agent that are not options of `wrap`."""


class UninstalledAgentError(SettingsError):
    """An agent that acphold knows is not on PATH; the message has the command that installs it,
    and what can be done `otherwise`."""

    def __init__(
        self, agent: KnownAgent, otherwise: str = "", *, is_declined: bool = False
    ) -> None:
        programs = " nor ".join(f"`{command[0]}`" for command in agent.commands)
        no = "neither " if len(agent.commands) > 1 else "no "
        message = f"PATH has {no}{programs} for {agent.title}; install it with `{agent.install}`"
        if agent.npx_command and not is_declined:
            message += f", or let npm fetch it: `-- {' '.join(agent.npx_command)}`"
        super().__init__(message + otherwise)
        self.agent = agent
        self.is_declined = is_declined


class NamedAgent(NamedTuple):
    """An agent's command, and the options to serve it with.

    `name` is "" for one that was given as a command line; `env` are variables besides ours. `own`
    are its options of `wrap`, by key, as in the file; `defaults` are those of all agents. `file` is
    the path of that file, "" for ours.
    """

    command: tuple[str, ...]
    name: str = ""
    env: Mapping[str, str] = {}
    own: Mapping[str, object] = {}
    defaults: Mapping[str, object] = {}
    file: str = ""

    @property
    def options(self) -> dict[str, object]:
        """Its options of `wrap`, with the defaults for the missing ones."""
        return {**self.defaults, **self.own}

    def place_of(self, key: str) -> str:
        """Return the file and its table that has this option."""
        table = f"agents.{self.name}" if key in self.own else "defaults"
        return f"{self.file or settings_path()}: [{table}]"

    def enter(self) -> None:
        """Put its variables into the environment of this process, for everything it starts."""
        os.environ.update({**self.env, **packed_words.typed_variables})


def settings_path(within: Surroundings | None = None) -> str:
    """Return the absolute path of the file, existing or not, in these surroundings, by default
    ours."""
    env = os.environ if within is None else within.env  # a copy takes longer than all else here
    if named := env.get(VARIABLE):
        within = within or Surroundings.here()
        return within.absolute(in_home(named, within.home))
    # The XDG base directory specification: a relative path is ignored.
    if not os.path.isabs(folder := env.get("XDG_CONFIG_HOME", "")):
        is_mac = sys.platform == "darwin"
        home = Surroundings(env, "").home
        folder = in_home("~/Library/Application Support" if is_mac else "~/.config", home)
    return os.path.join(folder, "acphold", "settings.toml")


def in_home(path: str, home: str) -> str:
    """Return the path with this home folder for a leading `~`."""
    return home + path[1:] if path == "~" or path.startswith("~/") else os.path.expanduser(path)


def read_text(path: str, limit: int) -> str | None:
    """Return the text of a file of settings, with its own line ends; None if there is no file.

    Raises SettingsError.
    """
    from acp_wire.workspace.regular_files import contents

    try:
        return contents(path, limit).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text: byte {error.start}") from None


def read_settings(path: str) -> dict[str, object] | None:
    """Return the file's contents by table; None if there is no file.

    Raises SettingsError, also for anything outside of its tables: it would silently be ignored.
    """
    if (text := read_text(path, bounds.SETTINGS_BYTES)) is None:
        return None
    import tomllib  # late: there may be nothing to read

    try:
        settings = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error or 'nested too deep'}") from None
    for key, value in settings.items():
        if key in TABLES:
            continue
        if isinstance(value, dict):
            raise SettingsError(f"{path} has an unknown table [{key}]{near_to(key, TABLES)}")
        raise SettingsError(
            f"{path}: `{key}` is outside of every table; move it below [defaults], or below the "
            "[agents.NAME] that it is for"
        )
    return settings


# -- one agent ------------------------------------------------------------------------------


def enter_agent(agent: str | None, program: Sequence[str]) -> NamedAgent:
    """Return the agent for `AGENT` or `-- CMD`; its variables are ours from now on.

    The command is empty when neither was given. Raises SettingsError.
    """
    if agent is None:
        return NamedAgent(tuple(program))
    found = agent_command(agent)
    found.enter()
    return found


def agent_command(name: str, command: Sequence[str] = (), path: str | None = None) -> NamedAgent:
    """Return the agent of that name: the settings file's, or a known one that is on PATH. The file
    is at `path`, by default ours.

    With `command` it has that one: it was looked up before, perhaps on another PATH.

    Raises SettingsError; UninstalledAgentError for a known agent that is not installed.
    """
    path = path or settings_path()
    settings = read_settings(path)
    agents = table_of(settings or {}, "agents", path)
    defaults = table_of(settings or {}, "defaults", path)
    if name in agents:
        found = _agent(name, agents, defaults, path)
        return found._replace(command=tuple(command)) if command else found
    known = KNOWN_AGENTS.get(name)
    if known is None and name != DEMO:
        names = [*agents, DEMO, *KNOWN_AGENTS]
        meant = near_to(name, names) or f"; acphold knows {', '.join(names)}"
        raise SettingsError(
            f"no agent {name!r}{meant}; add others to {path}, or give a command after `--`"
        )
    env, options = _of_all(defaults, path)
    if not command and known is None:
        from acphold.machine.own_program import own_command

        command = own_command("agent", "demo")
    elif not command and known is not None:
        command = next((each for each in known.commands if on_path(each[0]) is not None), ())
        if not command:
            raise UninstalledAgentError(known)
    return NamedAgent(tuple(command), name, env, {}, options, path)


def is_demo(agent: str | None) -> bool:
    """Return True if this names acphold's own agent, and not one of the file; SettingsError."""
    return agent == DEMO and DEMO not in _own_table("agents")


def agents_without_import() -> list[str] | None:
    """Return the agents of which the settings say `no_import`; None for all, also if the settings
    are invalid: commands that only read still work."""
    try:
        defaults, agents = _own_table("defaults"), _own_table("agents")
    except SettingsError:
        return None
    if defaults.get("no_import") is True:
        return None
    return [
        name
        for name, agent in agents.items()
        if isinstance(agent, dict) and agent.get("no_import") is True
    ]


def agents_on_path() -> list[str]:
    """Return the names of the known agents that are on PATH."""
    return [
        name
        for name, agent in KNOWN_AGENTS.items()
        if any(on_path(command[0]) is not None for command in agent.commands)
    ]


def agents_without_adapter() -> list[str]:
    """Return the names of the known agents of which PATH has the program that people use, but not
    the adapter that speaks ACP; npm can fetch that."""
    if on_path("npx") is None:
        return []
    installed = agents_on_path()
    return [
        name
        for name, agent in KNOWN_AGENTS.items()
        if name not in installed and agent.package and on_path(agent.sign_in.split()[0]) is not None
    ]


def default_agent() -> str:
    """Return the agent to start if none is named: the first of the settings file, otherwise the
    first known one that is on PATH or that npm can adapt. Raises SettingsError."""
    found = [*_own_table("agents")] or agents_on_path() or agents_without_adapter()
    if not found:
        raise SettingsError(
            "no agent is here: `acphold demo` shows how it works without one. acphold knows "
            f"{', '.join(KNOWN_AGENTS)}; name one that npm can fetch, such as `claude`, or give a "
            "command after `--`"
        )
    return found[0]


def startable(
    agent: str | None, program: tuple[str, ...], session_id: str | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """Return the named agent or command; for an agent that is not installed, one that fetches it.

    The person is asked before anything is fetched, and told how to continue the session, if there
    is one, with another agent. Raises SettingsError, for a no as well.
    """
    if agent is None:
        return None, program
    try:
        agent_command(agent)
    except UninstalledAgentError as error:
        from acphold.faces.cli.command_line import is_confirmed

        otherwise, fetched = "", error.agent.npx_command
        if session_id is not None and (here := agents_on_path()):
            import shlex  # late, as all that few need

            again = shlex.join(["acphold", "continue", session_id, "--with", here[0]])
            otherwise = f"; `{again}` continues with an agent that is here"
        lacks = (
            "has no ACP adapter here" if agent in agents_without_adapter() else "is not installed"
        )
        question = f"{error.agent.title} {lacks}{otherwise}. Let `{' '.join(fetched)}` fetch it?"
        is_asked = bool(fetched) and sys.stdin.isatty()
        if not (is_asked and is_confirmed(question)):
            if session_id is not None:
                otherwise += f"; `acphold show {session_id}` reads the conversation"
            raise UninstalledAgentError(error.agent, otherwise, is_declined=is_asked) from None
        return None, fetched
    return agent, program


def agents_in_file() -> list[NamedAgent | SettingsError]:
    """Return each agent of the file in its order; for an unusable one, the error."""
    found: list[NamedAgent | SettingsError] = []
    path, agents, defaults = settings_path(), _own_table("agents"), _own_table("defaults")
    for name in agents:
        try:
            found.append(_agent(name, agents, defaults, path))
        except SettingsError as error:
            found.append(error)
    return found


def agent_names() -> list[str]:
    """Return the names in the file, and those of the known agents and ours; for completion."""
    return [*dict.fromkeys([*_readable_agents(), *KNOWN_AGENTS, DEMO])]


def agent_keys(name: str | None, path: str | None = None) -> tuple[str, ...]:
    """Return the keys under which the sessions of a named agent are kept; () for None.

    A name of the settings file leads to its `name` there, and to the agent its command starts.
    """
    if name is None:
        return ()
    keys = [*keys_of(name)]
    if isinstance(own := _readable_agents(path).get(name), dict):
        command = own.get("command")
        given = [*map(str, command)] if isinstance(command, list) else []
        words = {*given, *map(os.path.basename, given)}
        for known in KNOWN_AGENTS.values():
            if words & {*known.package[:1], *(command[0] for command in known.commands)}:
                keys += known.keys
        keys.append(str(own.get("name", name)))
    return tuple(dict.fromkeys(keys))


def agent_name(key: str, path: str | None = None) -> str:
    """Return a person's name for the agent whose sessions are kept under `key`.

    It is the name in the settings file at `path`, by default ours, if exactly one fits; otherwise
    that of the table.
    """
    if (path := path or settings_path()) not in _NAMES:
        names: dict[str, str] = {}
        for name in _readable_agents(path):
            for its in {its.casefold() for its in agent_keys(name, path)}:
                names[its] = name if its not in names else ""
        _NAMES[path] = names
    return _NAMES[path].get(key.casefold()) or short_name(key)


_NAMES: Final[dict[str, dict[str, str]]] = {}
"""By the path of a settings file: its agents' names by the keys they stand for, "" if two stand for
the same. Importing functools would take time."""


def _agent(
    name: str, agents: Mapping[str, object], defaults: Mapping[str, object], path: str
) -> NamedAgent:
    place = f"{path}: [agents.{name}]"
    table = agents[name]
    if not isinstance(table, dict):
        raise SettingsError(f"{place} must be a table")
    env, options = _of_all(defaults, path)
    env = {**env, **_variables(table.get("env", {}), place)}
    if "command" not in table:
        example = 'command = ["gemini", "--acp"]'
        raise SettingsError(f"{place}: `command` is missing{near_to('command', table)}: {example}")
    command = command_words(table["command"], place)
    return NamedAgent(command, name, env, _options(table), options, path)


def _options(table: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in table.items() if key not in OWN_KEYS}


def _of_all(defaults: Mapping[str, object], path: str) -> tuple[dict[str, str], dict[str, object]]:
    """Return the variables and the options of all agents; SettingsError."""
    for key in ("command", "name"):
        if key in defaults:
            raise SettingsError(
                f"{path}: [defaults] {key}: this belongs to one agent; move it to [agents.NAME]"
            )
    return _variables(defaults.get("env", {}), f"{path}: [defaults]"), _options(defaults)


def command_words(
    value: object, place: str, key: str = "command", home: str | None = None
) -> tuple[str, ...]:
    """Return the words of a command; a leading `~/` becomes the home folder, by default ours."""
    if isinstance(value, str):
        words = ", ".join(f'"{word}"' for word in value.split())
        raise SettingsError(f"{place} {key}: write it as a list of words: [{words}]")
    if not isinstance(value, list) or not value or not all(_is_word(word) for word in value):
        raise SettingsError(
            f'{place} {key}: must be a list of words that starts a program: ["gemini", "--acp"]'
        )
    home = home or os.path.expanduser("~")
    return tuple(home + word[1:] if word.startswith("~/") else word for word in value)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _variables(value: object, place: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SettingsError(f'{place} env: must be a table: env = {{ KEY = "value" }}')
    for key, text in value.items():
        if not key or "=" in key or "\0" in key or not _is_word(text):
            # Without the value: it may be a secret.
            raise SettingsError(
                f'{place} env: {key!r} must be a variable name, and its value a "string"'
            )
    return value


def table_of(settings: Mapping[str, object], key: str, path: str) -> dict[str, object]:
    """Return a table at the top of the file, empty if it is missing; SettingsError."""
    value = settings.get(key, {})
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: [{key}] must be a table")
    return value


def _own_table(key: str, path: str | None = None) -> dict[str, object]:
    """Return a table of the file; empty if that, or the table, is missing. SettingsError."""
    path = path or settings_path()
    return table_of(read_settings(path) or {}, key, path)


def _readable_agents(path: str | None = None) -> dict[str, object]:
    """Return the agents of the file; none if it is invalid: commands that only read still work."""
    try:
        return _own_table("agents", path)
    except SettingsError:
        return {}


def snapshot_settings() -> dict[str, object]:
    """Return the values of `snapshots` in the file, by agent; "" stands for all other agents.

    Agents without one have that of all, by default True. Raises SettingsError.
    """
    tables = {"": _own_table("defaults"), **_own_table("agents")}
    return {"": True} | {
        name: table["snapshots"]
        for name, table in tables.items()
        if isinstance(table, dict) and "snapshots" in table
    }


def near_to(word: str, words: Iterable[str]) -> str:
    """Return the most similar of these words, in brackets; "" for none."""
    from difflib import get_close_matches

    return "".join(f" (`{near}`?)" for near in get_close_matches(word, [*words], 1))


# -- options of `wrap` ----------------------------------------------------------------------


def default_options(path: str = "") -> dict[str, object]:
    """Return the options in [defaults] of the file at `path`, by default ours; SettingsError."""
    path = path or settings_path()
    return _of_all(_own_table("defaults", path), path)[1]


def wrap_arguments(agent: NamedAgent, parser: Parser) -> list[str]:
    """Return an agent's options as arguments of `wrap`, whose `settings_parser` this is.

    Raises SettingsError.
    """
    from acphold.faces.cli.command_line import UsageError

    flags = {name: action for action in parser.actions for name in action.option_strings}
    keys = [name[2:].replace("-", "_") for name in flags if name.startswith("--")]
    keys = [name for name in keys if name != "help"]
    words: list[str] = []
    for key, value in agent.options.items():
        place, flag = agent.place_of(key), f"--{key.replace('_', '-')}"
        if key not in keys:
            near = near_to(key, [*keys, *OWN_KEYS])
            raise SettingsError(f"{place} has an unknown key {key!r}{near}")
        if flags[flag].nargs == 0:
            if not isinstance(value, bool):
                raise SettingsError(f"{place} {key}: must be true or false")
            no = f"--no-{flag[2:]}"
            if value or no in flags:  # otherwise it is off anyway
                words.append(flag if value else no)
        else:
            if isinstance(value, bool) and str(flags[flag].metavar).startswith("true|"):
                value = str(value).lower()
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise SettingsError(f"{place} {key}: must be a string or a number")
            try:
                parser.read([f"{flag}={value}"])
            except UsageError as error:
                reason = str(error).removeprefix(f"{flag}: ").partition("; see `")[0]
                raise SettingsError(f"{place} {key}: {reason}") from None
            words.append(f"{flag}={value}")
    return words


def folder_map() -> dict[str, str]:
    """Return the folders of other machines with the folders here that stand for them; raises
    SettingsError."""
    found: dict[str, str] = {}
    for far, near in _own_table("folders").items():
        here = os.path.expanduser(near) if isinstance(near, str) else ""
        if not (os.path.isabs(far) and os.path.isabs(here)) or "\0" in far + here:
            raise SettingsError(
                f"{settings_path()}: [folders] {far!r}: both must be absolute paths, as in "
                '"/Users/me/work" = "~/work"'
            )
        found[os.path.normpath(far)] = os.path.normpath(here)
    return found
