"""The place of the agents in each editor's settings, and the form of an entry.

    editor     file                                           where in it, by the agent's name
    ---------  ---------------------------------------------  --------------------------------
    zed        zed/settings.json in the folder for settings   agent_servers
    jetbrains  ~/.jetbrains/acp.json                          agent_servers
    vscode     Code/User/settings.json                        "acp.agents", of ACP Client
    acpx       ~/.acpx/config.json                            agents
    neovim     the person's own Lua                           (to be pasted)
    emacs      the person's own Lisp                          (to be pasted)

JetBrains IDEs keep the agents that they install themselves, from ACP's registry, in another file,
acp-agents/installed.json: by id, without a command that could be changed.

Sources: zed.dev/docs/ai/external-agents and Zed's crates `paths`, `settings_content` (agent.rs) and
`migrator` (m_2026_02_25); JetBrains' help page "Agent Client
Protocol (ACP)"; package.json of formulahendry/vscode-acp; docs/config.md of openclaw/acpx;
codecompanion's page "Configuring ACP Adapters", avante's `acp_providers`, and agent-shell's
`agent-shell-make-agent-config`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acp_wire.processes.program import on_path
from acp_wire.workspace.regular_files import contents
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import behind_command
from acphold.faces.cli.jsonc import JsoncError, put, remove, value_at
from acphold.faces.cli.settings import (
    VARIABLE as SETTINGS_VARIABLE,
    UninstalledAgentError,
    agent_command,
    agents_on_path,
)
from acphold.journal_location import VARIABLE as JOURNAL_VARIABLE
from acphold.known_agents import KNOWN_AGENTS, KnownAgent, short_name
from acphold.live.agents.identity import agent_key


class ServedAgent(NamedTuple):
    """An agent behind `acphold wrap`, as an editor starts it.

    `name` is the agent's, `title` its name in the editor, or None. `command` is acphold's,
    absolute; `env` has the variables without which acphold would find other settings.
    """

    name: str
    title: str | None
    command: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def display_name(self) -> str:
        """A name for a list that people read."""
        return self.title or f"{self.name} (acphold)"

    @property
    def name_to_type(self) -> str:
        """A name that people type."""
        return self.title or f"{self.name.lower().replace(' ', '-')}-acphold"

    @property
    def words(self) -> list[str]:
        """The command with its variables before it, for editors that take no variables."""
        if not self.env:
            return [*self.command]
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return [on_path("env") or "/usr/bin/env", *variables, *self.command]


class FileEditor(NamedTuple):
    """An editor that keeps its agents in a JSON file, with comments or without.

    `places` are the possible paths, the likeliest first; `table` is the agents' key in the file.
    `afterwards` tells how to reach the agent. `unit` is a step of indentation, `fixed` are members
    that each entry has. With `has_argv` an entry is a list of words, under a name that people type.
    `is_managed`, if the editor has such entries, is True of one, given with its name, whose agent
    the editor installs and starts itself. `installed` returns the ids, in ACP's registry, of the
    agents that it installs and starts without an entry.
    """

    shown: str
    places: Callable[[], list[str]]
    table: str
    afterwards: str
    unit: str = "  "
    fixed: Mapping[str, str] = {}
    has_argv: bool = False
    is_managed: Callable[[str, object], bool] | None = None
    installed: Callable[[], list[str]] = list

    def path(self) -> str:
        """Return the existing file, or the one that the editor would create."""
        places = self.places()
        return next((place for place in places if os.path.exists(place)), places[0])

    def commands(self, text: str) -> dict[str, list[str]]:
        """Return the command of each agent in the file by name; [] if the entry has none."""
        found: dict[str, list[str]] = {}
        for name, entry in self._entries(text).items():
            words = []
            if isinstance(entry, dict) and isinstance(argv := entry.get("argv"), list):
                words = argv
            elif isinstance(entry, dict):
                args = entry.get("args", [])
                words = [entry.get("command"), *(args if isinstance(args, list) else [None])]
            is_command = all(isinstance(word, str) for word in words) and any(words[:1])
            found[name] = words if is_command else []
        return found

    def _entries(self, text: str) -> dict[str, object]:
        found = value_at(text, [self.table])
        return found if isinstance(found, dict) else {}

    def name_of(self, served: ServedAgent) -> str:
        """Return the name of an agent's entry."""
        return served.name_to_type if self.has_argv else served.display_name

    def with_entry(self, text: str, served: ServedAgent) -> str:
        """Return the text with an agent's entry; members of it that are not ours stay."""
        place = [self.table, self.name_of(served)]
        if self.has_argv:  # replaced as a whole: `argv` beside the older `command` is an error
            return put(text, place, {"argv": served.words})
        if value_at(text, place) is None:
            program, *arguments = served.command
            entry = {"command": program, "args": arguments, "env": dict(served.env)}
            return put(text, place, {**self.fixed, **entry}, self.unit)
        for key, value in self.fixed.items():
            text = put(text, [*place, key], value, self.unit)
        return self.with_command(text, place[1], served.command, served.env)

    def with_command(
        self, text: str, name: str, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> str:
        """Return the text with another command in an agent's own entry."""
        place = [self.table, name]
        if self.has_argv and value_at(text, [*place, "argv"]) is not None:
            return put(text, [*place, "argv"], [*words])
        text = put(text, [*place, "command"], words[0], self.unit)
        if words[1:] or value_at(text, [*place, "args"]) is not None:
            text = put(text, [*place, "args"], [*words[1:]], self.unit)
        for variable, value in (env or {}).items():
            text = put(text, [*place, "env", variable], value, self.unit)
        return text

    def with_fronts(self, text: str, served: ServedAgent) -> str:
        """Return the text with acphold in front of each agent that has its own command; `served`
        is acphold without an agent."""
        for name, words in self.commands(text).items():
            if words and own_words(words) is None:
                ours = [*served.command, "--", *words]
                text = self.with_command(text, name, ours, served.env)
        for name in self.names_of_managed(text):
            if (known := MANAGED.get(name)) and (behind := words_of(known)):
                ours = [*served.command, *behind]
                text = put(text, [self.table, name, "type"], "custom")
                text = self.with_command(text, name, ours, served.env)
        has = {agent_of(words) for words in self.commands(text).values() if words}
        for known in [MANAGED[name] for name in self.installed() if name in MANAGED]:
            if known.name not in has and (behind := words_of(known)):
                command = (*served.command, *behind)
                text = self.with_entry(text, served._replace(name=known.name, command=command))
        return text

    def names_of_managed(self, text: str) -> list[str]:
        """Return the names of the agents that the editor installs and starts itself."""
        if (is_managed := self.is_managed) is None:
            return []
        return [name for name, entry in self._entries(text).items() if is_managed(name, entry)]

    def warnings(self, text: str) -> Iterator[str]:
        """Yield a sentence about each agent that the editor goes on to start itself."""
        for name in self.names_of_managed(text):
            yield _why_left(name)
        entries = {agent_of(words): name for name, words in self.commands(text).items() if words}
        for name in self.installed():
            if (known := MANAGED.get(name)) and known.name in entries:
                yield (
                    f"{self.shown} still offers its own {known.title}, without acphold; choose "
                    f"`{entries[known.name]}` instead."
                )
            else:
                yield _why_left(name)

    def was_managed(self, name: str, words: Sequence[str]) -> bool:
        """Return True if `with_fronts` has written this command for an editor's own agent."""
        own, known = own_words(words), MANAGED.get(name)
        if self.is_managed is None or known is None or own is None:
            return False
        return own[1:] == [FETCH, *known.package] or (own == [] and words[-1] == known.name)

    def without_fronts(self, text: str) -> str:
        """Return the text without acphold in front of agents whose own command is behind it; one
        with options of the person stays."""
        for name, words in self.commands(text).items():
            if self.was_managed(name, words):
                members = [["env", variable] for variable in CARRIED] + [["command"], ["args"]]
                for member in members:
                    text = remove(text, [self.table, name, *member])
                is_registered = name == MANAGED[name].registry_id
                place = [self.table, name, "type"]
                text = put(text, place, "registry") if is_registered else remove(text, place)
            elif (own := own_words(words)) and words[-len(own) - 2] == "wrap":
                for variable in CARRIED:
                    text = remove(text, [self.table, name, "env", variable])
                text = self.with_command(text, name, own)
        return text


CARRIED: Final = (SETTINGS_VARIABLE, JOURNAL_VARIABLE)
"""Variables without which acphold would use other files than here."""


FETCH: Final = "--yes"
"""The option with which npx fetches an agent that nobody has named. People mostly write `-y`: so
the entry is known when acphold is removed again."""

MANAGED: Final[Mapping[str, KnownAgent]] = {
    **{name: KNOWN_AGENTS[name] for name in ("claude", "codex", "gemini")},
    **{agent.registry_id: agent for agent in KNOWN_AGENTS.values()},
}
"""The agents that Zed can install itself, by their ids in ACP's registry, which are the keys of its
settings; and by the keys of those that it once had built in."""


def _is_managed_by_zed(name: str, entry: object) -> bool:
    """Return True of `"type": "registry"`, and of agents that earlier releases had built in."""
    if not isinstance(entry, dict) or "command" in entry:
        return False
    if "type" in entry:
        return entry["type"] in ("registry", "extension")
    return name in ("claude", "codex", "gemini")


def words_of(known: KnownAgent) -> list[str]:
    """Return the words behind `wrap` that start an agent: its name, or npx; [] if neither can."""
    try:
        agent_command(known.name)
    except UninstalledAgentError:
        npx = on_path("npx") if known.package else None
        return ["--", os.path.abspath(npx), FETCH, *known.package] if npx else []
    return [known.name]


def _why_left(name: str) -> str:
    """Return the sentence that says why an agent that the editor installs itself stays as it is."""
    if (known := MANAGED.get(name)) is None:
        why = f"acphold does not know its command. {name_one()}"
    else:
        why = f"acphold can start it only if it is on PATH: {known.install}"
    return f"{name} is unchanged: the editor installs it itself, and {why}."


def name_one(editor: str = "zed") -> str:
    """Return the advice to name an agent: one that is here, if any is."""
    agent = next(iter(agents_on_path()), "claude")
    return f"Name an agent, as in `acphold setup {editor} {agent}`, or give its command after `--`"


def agent_of(words: Sequence[str]) -> str:
    """Return the name of the agent that a command starts, behind acphold or not."""
    own = own_words(words)
    if own == []:
        return words[-1]
    key = last_word(own or words)
    programs = (
        name
        for name, agent in KNOWN_AGENTS.items()
        if key in (command[0] for command in agent.commands)
    )
    return next(programs, short_name(key))


def last_word(words: Sequence[str]) -> str:
    """Return the last word of the key of an agent that a command starts; "" for blanks."""
    return agent_key(words, os.getcwd()).rpartition(" ")[2]


def own_words(words: Sequence[str]) -> list[str] | None:
    """Return the command behind `acphold wrap`; [] for an agent's name, None without wrap."""
    for place, word in enumerate(words):
        if os.path.basename(word) in ("acphold", "acphold.exe"):
            command, *behind = behind_command(words[place + 1 :]) or [""]
            if command == "wrap":
                return behind[behind.index("--") + 1 :] if "--" in behind else []
    return None


def is_written(words: Sequence[str]) -> bool:
    """Return True of a command as `setup` writes it: acphold's full path, `wrap`, the agent."""
    if (own := own_words(words)) is None:
        return False
    match words[: -len(own) - 1]:
        case [*before, program, "wrap"]:
            return os.path.isabs(program) or before[-1:] == ["-m"]
    return False


class PasteEditor(NamedTuple):
    """An editor whose settings are a program: the person pastes the entry into it.

    `snippet` also gets the agent's own command.
    """

    shown: str
    snippet: Callable[[ServedAgent, Sequence[str]], str]
    hint: str


# -- files ----------------------------------------------------------------------------------


def _user_folder(variable: str, otherwise: str, on_mac: str) -> str:
    """Return a folder of this user: on Linux the one that a variable names, if it is absolute."""
    if sys.platform == "darwin":
        return os.path.expanduser(on_mac)
    folder = os.environ.get(variable, "")
    return folder if os.path.isabs(folder) else os.path.expanduser(otherwise)


_REGISTERED: Final = "acp.registry."
"""JetBrains' own word before an agent's id in ACP's registry."""


def _jetbrains_agents() -> list[str]:
    """Return the ids of the agents that a JetBrains IDE has installed from ACP's registry."""
    data = _user_folder("XDG_DATA_HOME", "~/.local/share", "~/Library/Application Support")
    path = os.path.join(data, "JetBrains", "acp-agents", "installed.json")
    try:
        agents = value_at(contents(path, bounds.EDITOR_SETTINGS_BYTES).decode(), ["agents"])
    except (OSError, UnicodeDecodeError, JsoncError):
        return []  # not there, or in a form of which nothing is known
    keys = map(str, agents) if isinstance(agents, dict) else ()
    return [key.removeprefix(_REGISTERED) for key in keys if key.startswith(_REGISTERED)]


def _in_home(path: str) -> Callable[[], list[str]]:
    return lambda: [os.path.expanduser(path)]


def _in_config(on_mac: str, *paths: str) -> Callable[[], list[str]]:
    def places() -> list[str]:
        folder = _user_folder("XDG_CONFIG_HOME", "~/.config", on_mac)
        return [os.path.join(folder, path) for path in paths]

    return places


# -- what is pasted -------------------------------------------------------------------------

ADAPTERS: Final = {
    "claude-agent-acp": "claude_code",
    "claude-code-acp": "claude_code",
    "gemini": "gemini_cli",
    "gemini-cli": "gemini_cli",
    "codex-acp": "codex",
    "goose": "goose",
    "kimi": "kimi_cli",
    "cline": "cline_cli",
    "copilot": "copilot_acp",
    "auggie": "auggie_cli",
    "cursor-agent": "cursor_cli",
}
"""The adapter of codecompanion that can sign in to an agent, by a word of the agent's command."""

OTHER_ADAPTER: Final = "opencode"
"""The adapter to extend for other agents: it asks for no sign-in, and sets no variables."""


def adapter_for(words: Sequence[str]) -> str:
    """Return the adapter of codecompanion to extend for an agent's command."""
    for word in words:
        package = os.path.basename(word).rpartition("@")[0] or os.path.basename(word)
        if package in ADAPTERS:
            return ADAPTERS[package]
    return OTHER_ADAPTER


def neovim_snippet(served: ServedAgent, command: Sequence[str]) -> str:
    """Return Lua for codecompanion.nvim and for avante.nvim."""
    program, *arguments = map(quote, served.words)
    name = quote(served.name_to_type)
    return f"""\
-- codecompanion.nvim
require("codecompanion").setup({{
  adapters = {{
    acp = {{
      [{name}] = function()
        return require("codecompanion.adapters").extend({quote(adapter_for(command))}, {{
          formatted_name = {quote(served.display_name)},
          commands = {{ default = {{ {", ".join([program, *arguments])} }} }},
        }})
      end,
    }},
  }},
}})

-- avante.nvim
require("avante").setup({{
  provider = {name},
  acp_providers = {{
    [{name}] = {{
      command = {program},
      args = {{ {", ".join(arguments)} }},
    }},
  }},
}})
"""


def emacs_snippet(served: ServedAgent, _: Sequence[str]) -> str:
    """Return Lisp for agent-shell."""
    program, *arguments = map(quote, served.words)
    prompt = quote(f"{served.display_name}> ")
    pattern = prompt.replace("(", "[(]").replace(")", "[)]").replace(".", "[.]")
    symbol = "".join(sign if sign.isalnum() or sign == "-" else "-" for sign in served.name_to_type)
    return f"""\
;; agent-shell
(with-eval-after-load 'agent-shell
  (setq agent-shell-session-strategy 'prompt      ; list, pick, load
        agent-shell-prefer-session-resume nil)    ; load shows the whole history
  (add-to-list
   'agent-shell-agent-configs
   (agent-shell-make-agent-config
    :identifier '{symbol}
    :mode-line-name {quote(served.display_name)}
    :buffer-name {quote(served.display_name)}
    :shell-prompt {prompt}
    :shell-prompt-regexp {pattern}
    :client-maker (lambda (buffer)
                    (acp-make-client :command {program}
                                     :command-params '({" ".join(arguments)})
                                     :context-buffer buffer)))))
"""


def quote(text: str) -> str:
    """Quote a text for Lua and Emacs Lisp."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


EDITORS: Final[Mapping[str, FileEditor | PasteEditor]] = {
    "zed": FileEditor(
        "Zed",
        _in_config("~/.config", "zed/settings.json"),  # on macOS only Zed's data is in ~/Library
        "agent_servers",
        "Find it in the agent panel's `+` menu. For earlier conversations: Threads Sidebar, "
        "archive, Import ACP Threads.",
        fixed={"type": "custom"},
        is_managed=_is_managed_by_zed,
    ),
    "jetbrains": FileEditor(
        "JetBrains",
        _in_home("~/.jetbrains/acp.json"),
        "agent_servers",
        "Find it in the agent menu of the AI Chat.",
        installed=_jetbrains_agents,
    ),
    "vscode": FileEditor(
        "VS Code",
        _in_config(
            "~/Library/Application Support",
            "Code/User/settings.json",
            "Code - Insiders/User/settings.json",
            "VSCodium/User/settings.json",
            "Cursor/User/settings.json",
            "Windsurf/User/settings.json",
        ),
        "acp.agents",
        "Find it in the list of the extension ACP Client (formulahendry.acp-client).",
        unit="    ",
    ),
    "acpx": FileEditor(
        "acpx",
        _in_home("~/.acpx/config.json"),
        "agents",
        "Try it: acpx {name} exec 'Who are you?'",
        has_argv=True,
    ),
    "neovim": PasteEditor(
        "Neovim",
        neovim_snippet,
        "Paste the part for codecompanion.nvim or for avante.nvim into your configuration.",
    ),
    "emacs": PasteEditor("Emacs", emacs_snippet, "Paste it into your init file."),
}
"""The editors, by their names in `setup`."""


def editors_here() -> Iterator[tuple[str, FileEditor]]:
    """Yield the editors that have settings or agents here, with their names in `setup`."""
    for name, editor in EDITORS.items():
        if isinstance(editor, FileEditor) and (
            any(map(os.path.exists, editor.places())) or editor.installed()
        ):
            yield name, editor
