"""Agents of others: installed from their registries, set up to talk to the stand-in model."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from tests.interop.wire import PROGRAMS
from tests.npm import NODE, installed

CACHE = Path(__file__).resolve().parents[2] / ".interop"
"""Folder for the Python environments of agents; npm packages are kept elsewhere."""

INSTALL_SECONDS = 400.0

GOOSE_VERSION = "1.52.0"


class RealAgent(NamedTuple):
    """An agent and what it takes to run it.

    `prepare` is given the home it is to use and the URL of the model, and returns its environment.
    """

    name: str
    command: Callable[[], list[str]]
    prepare: Callable[[Path, str], dict[str, str]]
    remembers: bool
    """True if it can open its own sessions again."""
    tools: tuple[str, ...]
    """Tools that the stand-in model can make it use; the first asks for no permission."""


class InstallError(Exception):
    """An agent could not be installed; says which and why."""


def at_home(home: Path) -> dict[str, str]:
    """A home of its own, so that nothing of this machine's user is read or written."""
    places = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}
    found = {f"XDG_{name}_HOME": str(home / place) for name, place in places.items()}
    local = "127.0.0.1,localhost"
    return {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "NO_PROXY": local,
        "no_proxy": local,
        **found,
    }


def platform_package(name: str, version: str) -> Path:
    """The npm package that has the program `name` for this machine."""
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
    package = f"{name}-{sys.platform}-{machine}"
    return installed(f"{package}@{version}") / "node_modules" / package / "bin"


# --- codex-acp -----------------------------------------------------------------------------------

CODEX_CONFIG = """\
model = "gpt-5"
model_provider = "standin"
approval_policy = "untrusted"
# Its sandbox helper needs more of the kernel than test machines allow.
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.standin]
name = "standin"
base_url = {url}
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


def _codex_command() -> list[str]:
    return [str(platform_package("@zed-industries/codex-acp", "0.16.0") / "codex-acp")]


def _codex_home(home: Path, url: str) -> dict[str, str]:
    (folder := home / ".codex").mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CODEX_CONFIG.format(url=json.dumps(url)), encoding="utf-8")
    key = {"OPENAI_API_KEY": "none", "CODEX_API_KEY": "none"}
    return {**at_home(home), "CODEX_HOME": str(folder), **key}


# --- opencode ------------------------------------------------------------------------------------


def _opencode_command() -> list[str]:
    return [str(platform_package("opencode", "1.18.34") / "opencode"), "acp"]


def _opencode_home(home: Path, url: str) -> dict[str, str]:
    (folder := home / ".config" / "opencode").mkdir(parents=True, exist_ok=True)
    limit = {"context": 100_000, "output": 8000}
    model = {"name": "stand-in", "tool_call": True, "limit": limit}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "standin",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {"stand-in": model},
    }
    config = {
        "model": "standin/stand-in",
        "small_model": "standin/stand-in",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "ask", "bash": "ask"},
        "provider": {"standin": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(config), encoding="utf-8")
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    disabled = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    # Each start takes 4 s of CPU; a quarter of it optimizes code that is to run for long.
    _has_its_plugin(folder)
    return {**at_home(home), **disabled, "BUN_JSC_useFTLJIT": "0"}


def _has_its_plugin(config: Path) -> None:
    """What opencode would otherwise install from npm at each start, for plugins that nobody has."""
    named = {"dependencies": {"@opencode-ai/plugin": "*"}}
    (config / "node_modules").mkdir(exist_ok=True)
    (config / "package.json").write_text(json.dumps(named))
    lock = {"lockfileVersion": 3, "packages": {"": named}}
    (config / "package-lock.json").write_text(json.dumps(lock))


# --- deepagents ----------------------------------------------------------------------------------


def _deepagents_command() -> list[str]:
    python = python_with("deepagents-acp==0.0.13", "langchain-openai")
    return [str(python), str(PROGRAMS / "deepagents_agent.py")]


def _deepagents_home(home: Path, url: str) -> dict[str, str]:
    model = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url, "LANGSMITH_TRACING": "false"}
    return {**at_home(home), **model}


def python_with(package: str, *more: str) -> Path:
    """The Python of an environment in CACHE that has `package`, `name==version`, and `more`."""
    CACHE.mkdir(exist_ok=True)
    folder = CACHE / package
    python = folder / "bin" / "python"
    done = folder / "installed"
    with (CACHE / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            rmtree(folder, ignore_errors=True)
            # With our own pip: a copy takes seconds. What is imported is compiled then.
            _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
            pip = [sys.executable, "-m", "pip", "--python", str(python)]
            _run([*pip, "install", "--quiet", "--no-compile", package, *more])
            done.touch()
    return python


def _run(command: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{command} took more than {INSTALL_SECONDS:.0f} s") from None
    if done.returncode:
        raise InstallError(f"{command} failed:\n{done.stderr.strip()}")


# --- agents that ask other interfaces of a model, for tests of their errors ----------------------


def _by_node(package: str, version: str, file: str, *arguments: str) -> Callable[[], list[str]]:
    """The command of an npm package."""

    def command() -> list[str]:
        script = installed(f"{package}@{version}") / "node_modules" / package / file
        return [NODE, str(script), *arguments]

    return command


def _claude_home(home: Path, url: str) -> dict[str, str]:
    """A subscription: with an API key the vendor has no such limit.

    It asks a person; by default a model decides most questions.
    """
    (folder := home / ".claude").mkdir(exist_ok=True)
    settings = {"permissions": {"defaultMode": "default"}}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    quiet = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return {
        **at_home(home),
        **quiet,
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),  # it adds that itself
        "ANTHROPIC_API_KEY": "",
        "CLAUDE_CODE_OAUTH_TOKEN": "none",
        "IS_SANDBOX": "1",  # else it refuses to be root
    }


def _codex_of_openai_home(home: Path, url: str) -> dict[str, str]:
    env = _codex_home(home, url)
    config = Path(env["CODEX_HOME"]) / "config.toml"
    known = CODEX_CONFIG.replace('approval_policy = "untrusted"\n', "")  # no longer supported
    # One that it knows, and that calls tools from scripts alone, as most do today.
    known = known.replace('"gpt-5"', '"gpt-6-sol"')
    config.write_text(known.format(url=json.dumps(url)), encoding="utf-8")
    # It asks a person; by default a model decides.
    return {**env, "INITIAL_AGENT_MODE": "workspace-write"}


def _gemini_home(home: Path, url: str) -> dict[str, str]:
    (folder := home / ".gemini").mkdir(exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    # A model by name: "auto" asks another one first which to take.
    model = {"GEMINI_MODEL": "gemini-2.5-pro", "GOOGLE_GEMINI_BASE_URL": url}
    return {**at_home(home), **model, "GEMINI_API_KEY": "none"}


def goose_program() -> str:
    return str(platform_package("@aaif/goose-binary", GOOSE_VERSION) / "goose")


def _goose_command() -> list[str]:
    return [goose_program(), "acp", "--with-builtin", "developer"]


def goose_home(home: Path, url: str) -> dict[str, str]:
    return {
        **at_home(home),
        "OPENAI_HOST": url.removesuffix("/v1"),
        "OPENAI_API_KEY": "none",
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "stand-in",
        "GOOSE_MODE": "approve",
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_ENABLED": "false",
    }


CODEX = RealAgent("codex", _codex_command, _codex_home, remembers=True, tools=("shell",))
OPENCODE = RealAgent(
    "opencode", _opencode_command, _opencode_home, remembers=True, tools=("read", "write")
)
DEEPAGENTS = RealAgent(
    "deepagents", _deepagents_command, _deepagents_home, remembers=False, tools=("read", "write")
)
CLAUDE = RealAgent(
    "claude",
    _by_node("@agentclientprotocol/claude-agent-acp", "0.101.0", "dist/index.js"),
    _claude_home,
    remembers=True,
    tools=(),
)
CODEX_OF_OPENAI = RealAgent(
    "codex of OpenAI",
    _by_node("@agentclientprotocol/codex-acp", "2.6.0", "dist/index.js"),
    _codex_of_openai_home,
    remembers=True,
    tools=("shell",),
)
GEMINI = RealAgent(
    "gemini",
    _by_node("@google/gemini-cli", "0.61.0", "bundle/gemini.js", "--acp"),
    _gemini_home,
    remembers=True,
    tools=(),
)


def _qwen_home(home: Path, url: str) -> dict[str, str]:
    (folder := home / ".qwen").mkdir(exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "model": {"name": "stand-in"},
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    model = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url, "OPENAI_MODEL": "stand-in"}
    return {**at_home(home), **model}


QWEN = RealAgent(
    "qwen",
    _by_node("@qwen-code/qwen-code", "0.24.4", "cli.js", "--acp"),
    _qwen_home,
    remembers=True,
    tools=(),
)

GOOSE = RealAgent("goose", _goose_command, goose_home, remembers=True, tools=("shell",))

REAL_AGENTS = (CODEX, CODEX_OF_OPENAI, OPENCODE, DEEPAGENTS)

WITH_SHELL = (CLAUDE, CODEX, CODEX_OF_OPENAI, OPENCODE, GEMINI)
"""Those that ask before they run a command in a shell."""
