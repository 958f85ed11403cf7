"""The agents that acphold knows by name: their own names, and how they are started.

A person names the agent to use: `acphold chat claude`. The names of its program and package are
facts, and a new agent is a row of the table.

Sources: ACP's registry (https://github.com/agentclientprotocol/registry), and the agents' packages.
`wrap` reads this before it starts an agent, so it imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class KnownAgent(NamedTuple):
    """An agent that people use.

    `name` is what a person types and a list shows, `title` the vendor's name for it. `keys` are the
    agent's own names, in `agentInfo.name`, today's first and those of earlier releases after it;
    its sessions are kept under them. `commands` are tried in order; `package` is its npm package
    with arguments, or empty. `install` and `sign_in` are the commands that a person types for that.
    `registry_id` is its id in ACP's registry, from which editors install agents.
    `is_imported` is True if `acphold import` reads the agent's conversations on disk.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    package: tuple[str, ...]
    install: str
    sign_in: str
    registry_id: str
    is_imported: bool = False

    @property
    def npx_command(self) -> tuple[str, ...]:
        """The command that has npm fetch the package and starts it; () if npm has none."""
        return ("npx", "-y", *self.package) if self.package else ()


_CLAUDE: Final = "@agentclientprotocol/claude-agent-acp"
_CODEX: Final = "@agentclientprotocol/codex-acp"

KNOWN_AGENTS: Final[Mapping[str, KnownAgent]] = {
    agent.name: agent
    for agent in (
        KnownAgent(
            "claude",
            "Claude Code",
            (_CLAUDE, "@zed-industries/claude-agent-acp", "@zed-industries/claude-code-acp"),
            (("claude-agent-acp",), ("claude-code-acp",)),
            (_CLAUDE,),
            f"npm install -g {_CLAUDE}",
            "claude /login",
            is_imported=True,
            registry_id="claude-acp",
        ),
        KnownAgent(
            "codex",
            "Codex",
            ("codex-acp", _CODEX, "@zed-industries/codex-acp"),
            (("codex-acp",),),
            (_CODEX,),
            f"npm install -g {_CODEX}",
            "codex login",
            is_imported=True,
            registry_id="codex-acp",
        ),
        KnownAgent(
            "gemini",
            "Gemini CLI",
            ("gemini-cli", "@google/gemini-cli"),
            (("gemini", "--acp"),),
            ("@google/gemini-cli", "--acp"),
            "npm install -g @google/gemini-cli",
            "gemini",
            is_imported=True,
            registry_id="gemini",
        ),
        KnownAgent(
            "opencode",
            "OpenCode",
            ("OpenCode", "opencode"),
            (("opencode", "acp"),),
            ("opencode-ai", "acp"),
            "npm install -g opencode-ai",
            "opencode auth login",
            is_imported=True,
            registry_id="opencode",
        ),
        KnownAgent(
            "qwen",
            "Qwen Code",
            ("qwen-code", "@qwen-code/qwen-code"),
            (("qwen", "--acp"),),
            ("@qwen-code/qwen-code", "--acp"),
            "npm install -g @qwen-code/qwen-code",
            "qwen",
            is_imported=True,
            registry_id="qwen-code",
        ),
        KnownAgent(
            "goose",
            "Goose",
            ("goose acp", "goose"),
            (("goose", "acp"),),
            (),
            "brew install block-goose-cli",
            "goose configure",
            is_imported=True,
            registry_id="goose",
        ),
        KnownAgent(
            "cline",
            "Cline",
            ("cline",),
            (("cline", "--acp"),),
            ("cline", "--acp"),
            "npm install -g cline",
            "cline auth",
            is_imported=True,
            registry_id="cline",
        ),
        KnownAgent(
            "copilot",
            "GitHub Copilot",
            ("Copilot", "copilot"),
            (("copilot", "--acp"),),
            ("@github/copilot", "--acp"),
            "npm install -g @github/copilot",
            "copilot login",
            is_imported=True,
            registry_id="github-copilot-cli",
        ),
        KnownAgent(
            "cursor",
            "Cursor",
            ("cursor-agent", "cursor"),
            (("cursor-agent", "acp"),),
            (),
            "curl https://cursor.com/install -fsS | bash",
            "cursor-agent login",
            is_imported=True,
            registry_id="cursor",
        ),
        KnownAgent(
            "hermes",
            "Hermes",
            ("hermes-agent", "hermes"),
            (("hermes", "acp"), ("hermes-acp",)),
            (),
            'uv tool install "hermes-agent[acp]"',
            "hermes setup",
            is_imported=True,
            registry_id="hermes-agent",
        ),
        KnownAgent(
            "kilo",
            "Kilo Code",
            ("Kilo", "kilo"),
            (("kilo", "acp"),),
            ("@kilocode/cli", "acp"),
            "npm install -g @kilocode/cli",
            "kilo auth login",
            is_imported=True,
            registry_id="kilo",
        ),
        KnownAgent(
            "pi",
            "pi",
            ("pi-acp", "pi"),
            (("pi-acp",),),
            ("pi-acp",),
            "npm install -g pi-acp @earendil-works/pi-coding-agent",
            "pi",
            is_imported=True,
            registry_id="pi-acp",
        ),
        KnownAgent(
            "vibe",
            "Mistral Vibe",
            ("@mistralai/mistral-vibe", "mistral-vibe"),
            (("vibe-acp",),),
            (),
            "uv tool install mistral-vibe",
            "vibe --setup",
            registry_id="mistral-vibe",
        ),
        KnownAgent(
            "auggie",
            "Auggie",
            ("auggie",),
            (("auggie", "--acp"),),
            ("@augmentcode/auggie", "--acp"),
            "npm install -g @augmentcode/auggie",
            "auggie login",
            is_imported=True,
            registry_id="auggie",
        ),
        KnownAgent(
            "kimi",
            "Kimi CLI",
            ("Kimi CLI", "kimi"),
            (("kimi", "acp"),),
            (),
            "uv tool install kimi-cli",
            "kimi login",
            registry_id="kimi",
        ),
        KnownAgent(
            "droid",
            "Factory Droid",
            ("droid", "factory-droid"),
            (("droid", "exec", "--output-format", "acp"),),
            (),
            "npm install -g droid",
            "droid",
            registry_id="factory-droid",
        ),
    )
}
"""The table, by name."""

DEMO: Final = "demo"
"""The name of acphold's own scripted agent; it is never looked for or suggested, only named."""

DEMO_KEY: Final = "demo-agent"
"""The key of its sessions."""

_NAMES: Final = {DEMO_KEY: DEMO} | {
    key.casefold(): agent.name for agent in KNOWN_AGENTS.values() for key in agent.keys
}


def short_name(key: str) -> str:
    """Return a person's name for the agent that is kept under `key`; `key` itself if unknown."""
    return _NAMES.get(key.casefold(), key)


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys under which an agent's sessions may be kept, its name too."""
    if name == DEMO:
        return (DEMO, DEMO_KEY)
    known = KNOWN_AGENTS.get(name.casefold())
    return (name, *(key for key in known.keys if key != name)) if known else (name,)
