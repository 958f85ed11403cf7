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
    is_imported: bool

    @property
    def npx_command(self) -> tuple[str, ...]:
        """The command that has npm fetch the package and starts it; () if npm has none."""
        return ("npx", "-y", *self.package) if self.package else ()


def _agent(
    name: str,
    title: str,
    keys: tuple[str, ...],
    *commands: tuple[str, ...],
    package: tuple[str, ...] = (),
    install: str = "",
    sign_in: str = "",
    registry_id: str = "",
    is_imported: bool = True,
) -> KnownAgent:
    """Return a row: mostly npm installs the package, to sign in is to start the agent, and it has
    one name everywhere."""
    if not install:
        install = f"npm install -g {package[0]}"
    ids = (install, sign_in or name, registry_id or name)
    return KnownAgent(name, title, keys, commands, package, *ids, is_imported)


_CLAUDE: Final = "@agentclientprotocol/claude-agent-acp"
_CODEX: Final = "@agentclientprotocol/codex-acp"

KNOWN_AGENTS: Final[Mapping[str, KnownAgent]] = {
    agent.name: agent
    for agent in (
        _agent(
            "claude",
            "Claude Code",
            (_CLAUDE, "@zed-industries/claude-agent-acp", "@zed-industries/claude-code-acp"),
            ("claude-agent-acp",),
            ("claude-code-acp",),
            package=(_CLAUDE,),
            sign_in="claude /login",
            registry_id="claude-acp",
        ),
        _agent(
            "codex",
            "Codex",
            ("codex-acp", _CODEX, "@zed-industries/codex-acp"),
            ("codex-acp",),
            package=(_CODEX,),
            sign_in="codex login",
            registry_id="codex-acp",
        ),
        _agent(
            "gemini",
            "Gemini CLI",
            ("gemini-cli", "@google/gemini-cli"),
            ("gemini", "--acp"),
            package=("@google/gemini-cli", "--acp"),
        ),
        _agent(
            "opencode",
            "OpenCode",
            ("OpenCode", "opencode"),
            ("opencode", "acp"),
            package=("opencode-ai", "acp"),
            sign_in="opencode auth login",
        ),
        _agent(
            "qwen",
            "Qwen Code",
            ("qwen-code", "@qwen-code/qwen-code"),
            ("qwen", "--acp"),
            package=("@qwen-code/qwen-code", "--acp"),
            registry_id="qwen-code",
        ),
        _agent(
            "goose",
            "Goose",
            ("goose acp", "goose"),
            ("goose", "acp"),
            install="brew install block-goose-cli",
            sign_in="goose configure",
        ),
        _agent(
            "cline",
            "Cline",
            ("cline",),
            ("cline", "--acp"),
            package=("cline", "--acp"),
            sign_in="cline auth",
        ),
        _agent(
            "copilot",
            "GitHub Copilot",
            ("Copilot", "copilot"),
            ("copilot", "--acp"),
            package=("@github/copilot", "--acp"),
            sign_in="copilot login",
            registry_id="github-copilot-cli",
        ),
        _agent(
            "cursor",
            "Cursor",
            ("cursor-agent", "cursor"),
            ("cursor-agent", "acp"),
            install="curl https://cursor.com/install -fsS | bash",
            sign_in="cursor-agent login",
        ),
        _agent(
            "hermes",
            "Hermes",
            ("hermes-agent", "hermes"),
            ("hermes", "acp"),
            ("hermes-acp",),
            install='uv tool install "hermes-agent[acp]"',
            sign_in="hermes setup",
            registry_id="hermes-agent",
        ),
        _agent(
            "kilo",
            "Kilo Code",
            ("Kilo", "kilo"),
            ("kilo", "acp"),
            package=("@kilocode/cli", "acp"),
            sign_in="kilo auth login",
        ),
        _agent(
            "pi",
            "pi",
            ("pi-acp", "pi"),
            ("pi-acp",),
            package=("pi-acp",),
            install="npm install -g pi-acp @earendil-works/pi-coding-agent",
            registry_id="pi-acp",
        ),
        _agent(
            "vibe",
            "Mistral Vibe",
            ("@mistralai/mistral-vibe", "mistral-vibe"),
            ("vibe-acp",),
            install="uv tool install mistral-vibe",
            sign_in="vibe --setup",
            registry_id="mistral-vibe",
            is_imported=False,
        ),
        _agent(
            "auggie",
            "Auggie",
            ("auggie",),
            ("auggie", "--acp"),
            package=("@augmentcode/auggie", "--acp"),
            sign_in="auggie login",
        ),
        _agent(
            "kimi",
            "Kimi Code",
            ("Kimi Code CLI", "Kimi CLI", "kimi"),
            ("kimi", "acp"),
            package=("@moonshot-ai/kimi-code", "acp"),
            sign_in="kimi login",
            is_imported=False,
        ),
        _agent(
            "droid",
            "Factory Droid",
            ("@factory/cli", "droid", "factory-droid"),
            ("droid", "exec", "--output-format", "acp"),
            install="npm install -g droid",
            registry_id="factory-droid",
            is_imported=False,
        ),
    )
}
"""The table, by name."""

FORGETS: Final[Mapping[str, frozenset[str]]] = {
    "claude": frozenset({"/clear", "/new", "/reset"}),
    "qwen": frozenset({"/clear", "/new", "/reset"}),
    "goose": frozenset({"/clear"}),
}
"""Commands at which an agent forgets everything, seen at its model: with claude-agent-acp 0.101.0,
qwen-code 0.24.4 and goose 1.52.0, whose `/new` goes to the model, as all three do with codex-acp
and gemini; opencode ignores them."""

TERMS_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "claude": {
        "ANTHROPIC_BASE_URL": "endpoint",
        "ANTHROPIC_API_KEY": "key",
        "ANTHROPIC_AUTH_TOKEN": "key",
        "CLAUDE_CODE_OAUTH_TOKEN": "account",
        "CLAUDE_CONFIG_DIR": "account",
        "HTTPS_PROXY": "proxy",
        "HTTP_PROXY": "proxy",
    },
    "codex": {
        "OPENAI_API_KEY": "key",
        "CODEX_HOME": "account",
        "HTTPS_PROXY": "proxy",
        "HTTP_PROXY": "proxy",
    },
}
"""The variables that say for whom, and where, an agent works, and what each is, by its name here.
Any other is only part of its surroundings. Each row was seen at an endpoint, or a proxy, of
ours: with claude-agent-acp 0.101.0 and codex-acp 2.6.0."""

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


def keys_like(key: str) -> tuple[str, ...]:
    """Return this key, and all others under which sessions of the same agent may be kept."""
    return (key, *(its for its in keys_of(short_name(key)) if its != key))
