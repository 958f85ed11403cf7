"""The place of the agents in each editor's settings, and the form of an entry.

    editor     file                                           where in it, by the agent's name
    ---------  ---------------------------------------------  --------------------------------
    zed        zed/settings.json in the folder for settings   agent_servers
    jetbrains  ~/.jetbrains/acp.json                          agent_servers
    vscode     Code/User/settings.json                        "acp.agents", of ACP Client
    acpx       ~/.acpx/config.json                            agents
    neovim     the person's own Lua                           (to be pasted)
    emacs      the person's own Lisp                          (to be pasted)

Sources: zed.dev/docs/ai/external-agents and Zed's crate `paths`; JetBrains' help page "Agent Client
Protocol (ACP)"; package.json of formulahendry/vscode-acp; docs/config.md of openclaw/acpx;
codecompanion's page "Configuring ACP Adapters", avante's `acp_providers`, and agent-shell's
`agent-shell-make-agent-config`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acphold.cli.jsonc import put, remove, value_at
from acphold.cli.settings import VARIABLE as SETTINGS_VARIABLE
from acphold.journal.location import VARIABLE as JOURNAL_VARIABLE
from acphold.processes.program import on_path


class Served(NamedTuple):
    """An agent behind `acphold wrap`, as an editor starts it.

    `name` is the agent's, `title` its name in the editor, or None. `command` is acphold's,
    absolute; `env` has the variables without which acphold would find other settings.
    """

    name: str
    title: str | None
    command: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def spoken(self) -> str:
        """A name for a list that people read."""
        return self.title or f"{self.name} (acphold)"

    @property
    def typed(self) -> str:
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
    `afterwards` tells how to reach the agent. `commanded` writes another command into an existing
    entry: it gets text, table, name, words and variables.
    """

    shown: str
    places: Callable[[], list[str]]
    table: str
    written: Callable[[str, Served], str]
    name_of: Callable[[Served], str]
    afterwards: str
    commanded: Callable[[str, str, str, Sequence[str], Mapping[str, str]], str]

    def path(self) -> str:
        """Return the existing file, or the one that the editor would create."""
        places = self.places()
        return next((place for place in places if os.path.exists(place)), places[0])

    def commands(self, text: str) -> dict[str, list[str]]:
        """Return the command of each agent in the file by name; [] if the entry has none."""
        found = value_at(text, [self.table])
        return {
            str(name): _words(entry)
            for name, entry in (found.items() if isinstance(found, dict) else ())
        }

    def fronted(self, text: str, served: Served) -> str:
        """Return the text with acphold in front of each agent that has its own command."""
        for name, words in self.commands(text).items():
            if words and own_words(words) is None:
                ours = [*served.command, "wrap", "--", *words]
                text = self.commanded(text, self.table, name, ours, served.env)
        return text

    def bared(self, text: str) -> str:
        """Return the text without acphold in front of agents whose own command is behind it."""
        for name, words in self.commands(text).items():
            if own := own_words(words):
                for variable in CARRIED:
                    text = remove(text, [self.table, name, "env", variable])
                text = self.commanded(text, self.table, name, own, {})
        return text


CARRIED: Final = (SETTINGS_VARIABLE, JOURNAL_VARIABLE)
"""Variables without which acphold would use other files than here."""


def own_words(words: Sequence[str]) -> list[str] | None:
    """Return the command behind `acphold wrap`; [] for an agent's name, None without wrap."""
    for place, word in enumerate(words[1:], 1):
        if word == "wrap" and os.path.basename(words[place - 1]) in ("acphold", "acphold.exe"):
            behind = [*words[place + 1 :]]
            return behind[behind.index("--") + 1 :] if "--" in behind else []
    return None


def _words(entry: object) -> list[str]:
    """Return the command of an entry: `command` and `args`, or `argv`."""
    if not isinstance(entry, dict):
        return []
    if isinstance(argv := entry.get("argv"), list):
        words = argv
    else:
        args = entry.get("args", [])
        words = [entry.get("command"), *(args if isinstance(args, list) else [None])]
    is_command = all(isinstance(word, str) for word in words) and any(words[:1])
    return words if is_command else []


class PasteEditor(NamedTuple):
    """An editor whose settings are a program: the person pastes the entry into it.

    `snippet` also gets the agent's own command.
    """

    shown: str
    snippet: Callable[[Served, Sequence[str]], str]
    hint: str


# -- files ----------------------------------------------------------------------------------


def _config(*names: str) -> str:
    """Return the path of a file in the folder for settings."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.expanduser("~/.config")
    return os.path.join(folder, *names)


def _zed() -> list[str]:
    # The same on macOS: only Zed's data is in ~/Library.
    home = os.path.expanduser("~/.config/zed/settings.json")
    return [home] if sys.platform == "darwin" else [_config("zed", "settings.json")]


_CODES: Final = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")


def _vscode() -> list[str]:
    if sys.platform == "darwin":
        folder = os.path.expanduser("~/Library/Application Support")
        return [os.path.join(folder, code, "User", "settings.json") for code in _CODES]
    return [_config(code, "User", "settings.json") for code in _CODES]


def _in_home(path: str) -> Callable[[], list[str]]:
    return lambda: [os.path.expanduser(path)]


def _by_member(table: str, unit: str, **fixed: str) -> Callable[[str, Served], str]:
    """Return a function that writes `command`, `args` and `env`, and leaves other members alone."""

    def written(text: str, served: Served) -> str:
        place = [table, served.spoken]
        program, *arguments = served.command
        if value_at(text, place) is None:
            entry = {**fixed, "command": program, "args": arguments, "env": dict(served.env)}
            return put(text, place, entry, unit)
        members: dict[str, object] = {**fixed, "command": program, "args": arguments}
        for key, value in members.items():
            text = put(text, [*place, key], value, unit)
        for name, value in served.env.items():
            text = put(text, [*place, "env", name], value, unit)
        return text

    return written


def _members(text: str, table: str, name: str, words: Sequence[str], env: Mapping[str, str]) -> str:
    """Replace an agent's own command, as `command` and `args`."""
    text = put(text, [table, name, "command"], words[0])
    if words[1:] or value_at(text, [table, name, "args"]) is not None:
        text = put(text, [table, name, "args"], [*words[1:]])
    for variable, value in env.items():
        text = put(text, [table, name, "env", variable], value)
    return text


def _argv(text: str, table: str, name: str, words: Sequence[str], env: Mapping[str, str]) -> str:
    """Replace it in the form of acpx, which takes no variables."""
    before = value_at(text, [table, name, "argv"])
    if before is None:  # `argv` beside the older `command` is an error for acpx
        return _members(text, table, name, words, env)
    return put(text, [table, name, "argv"], [*words])


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


def neovim_snippet(served: Served, command: Sequence[str]) -> str:
    """Return Lua for codecompanion.nvim and for avante.nvim."""
    program, *arguments = map(quoted, served.words)
    name = quoted(served.typed)
    return f"""\
-- codecompanion.nvim
require("codecompanion").setup({{
  adapters = {{
    acp = {{
      [{name}] = function()
        return require("codecompanion.adapters").extend({quoted(adapter_for(command))}, {{
          formatted_name = {quoted(served.spoken)},
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


def emacs_snippet(served: Served, _: Sequence[str]) -> str:
    """Return Lisp for agent-shell."""
    program, *arguments = map(quoted, served.words)
    prompt = quoted(f"{served.spoken}> ")
    pattern = prompt.replace("(", "[(]").replace(")", "[)]").replace(".", "[.]")
    symbol = "".join(sign if sign.isalnum() or sign == "-" else "-" for sign in served.typed)
    return f"""\
;; agent-shell
(with-eval-after-load 'agent-shell
  (setq agent-shell-session-strategy 'prompt      ; list, pick, load
        agent-shell-prefer-session-resume nil)    ; load shows the whole history
  (add-to-list
   'agent-shell-agent-configs
   (agent-shell-make-agent-config
    :identifier '{symbol}
    :mode-line-name {quoted(served.spoken)}
    :buffer-name {quoted(served.spoken)}
    :shell-prompt {prompt}
    :shell-prompt-regexp {pattern}
    :client-maker (lambda (buffer)
                    (acp-make-client :command {program}
                                     :command-params '({" ".join(arguments)})
                                     :context-buffer buffer)))))
"""


def quoted(text: str) -> str:
    """Quote a text for Lua and Emacs Lisp."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


EDITORS: Final[Mapping[str, FileEditor | PasteEditor]] = {
    "zed": FileEditor(
        "Zed",
        _zed,
        "agent_servers",
        _by_member("agent_servers", "  ", type="custom"),
        lambda served: served.spoken,
        "It is in the menu of the agent panel's `+`. Earlier conversations: Threads Sidebar, its "
        "archive, Import ACP Threads.",
        _members,
    ),
    "jetbrains": FileEditor(
        "JetBrains",
        _in_home("~/.jetbrains/acp.json"),
        "agent_servers",
        _by_member("agent_servers", "  "),
        lambda served: served.spoken,
        "It is in the menu of agents of the AI Chat.",
        _members,
    ),
    "vscode": FileEditor(
        "VS Code",
        _vscode,
        "acp.agents",
        _by_member("acp.agents", "    "),
        lambda served: served.spoken,
        "It is in the list of the extension ACP Client (formulahendry.acp-client).",
        _members,
    ),
    "acpx": FileEditor(
        "acpx",
        _in_home("~/.acpx/config.json"),
        "agents",
        # Replaced as a whole: `argv` beside the older `command` is an error for acpx.
        lambda text, served: put(text, ["agents", served.typed], {"argv": served.words}),
        lambda served: served.typed,
        "Try it: acpx {name} exec 'Who are you?'",
        _argv,
    ),
    "neovim": PasteEditor(
        "Neovim",
        neovim_snippet,
        "Paste one of the two into your configuration: for codecompanion.nvim, or avante.nvim.",
    ),
    "emacs": PasteEditor("Emacs", emacs_snippet, "Paste it into your init file."),
}
"""The editors, by their names in `setup`."""


def editors_here() -> Iterator[tuple[str, FileEditor]]:
    """Yield the editors that have settings on this machine, with their names in `setup`."""
    for name, editor in EDITORS.items():
        if isinstance(editor, FileEditor) and any(map(os.path.exists, editor.places())):
            yield name, editor
