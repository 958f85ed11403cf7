"""The page that compares programs of others: `make compared` checks them and writes it.

Each is checked with a stand-in for its model, and its report is kept in `.interop/reports`, of
which check/docs/compared.md is made. `python -m tests.interop.compared NAME…` checks the named ones
alone, and none with a name that none has.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.real_agents import (
    CACHE,
    CLAUDE,
    CODEX,
    CODEX_OF_OPENAI,
    DEEPAGENTS,
    GEMINI,
    OPENCODE,
    at_home,
)
from tests.interop.test_official_sdks import python_agent, ts_agent
from tests.npm import NODE, installed

REPORTS = CACHE / "reports"
PAGE = Path(__file__).resolve().parents[2] / "check" / "docs" / "compared.md"
HEAD = """\
# Programs of others

How the agents that we test with keep [the rules](rules.md): ✓ was seen to be kept, ✗ to be broken,
- was not seen; rules in which all are alike share a row. Each ran alone, with a stand-in for its
model. `make compared` makes this page anew.

"""
CHECK_SECONDS = 1200.0


def _at_home(home: Path, url: str) -> dict[str, str]:
    return at_home(home)


SDK = "@agentclientprotocol/sdk"
"""Its newest releases have no examples in their package."""


def _example() -> list[str]:
    package = installed(f"{SDK}@1.9.0") / "node_modules" / SDK
    return [NODE, str(package / "dist" / "examples" / "agent.js")]


REAL_AGENTS = (CODEX, OPENCODE, DEEPAGENTS, CODEX_OF_OPENAI, CLAUDE, GEMINI)

PROGRAMS: Mapping[str, tuple[Callable[[], list[str]], Callable[[Path, str], dict[str, str]]]] = {
    "python-sdk": (python_agent, _at_home),
    "typescript-sdk": (ts_agent, _at_home),
    "typescript-example": (_example, _at_home),
    **{it.name: (it.command, it.prepare) for it in REAL_AGENTS},
}
"""How to start each, and its environment, in a home of its own with a model at a URL."""


def check(name: str) -> None:
    """Check a program, and keep its report."""
    command, prepare = PROGRAMS[name]
    REPORTS.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with TemporaryDirectory(prefix="acphold-compared-") as home:
        env = {**os.environ, **prepare(Path(home), f"http://127.0.0.1:{port}/v1")}
        report = REPORTS / f"{name.replace(' ', '-')}.json"
        words = ("--timeout", "30", "--within", f"{CHECK_SECONDS - 100:g}")
        argv = [sys.executable, "-m", "acp_check", *words, "--report", str(report)]
        argv += ["--model-endpoint", str(port), "--", *command()]
        subprocess.run(argv, env=env, check=False, timeout=CHECK_SECONDS, stdout=subprocess.DEVNULL)
    counts = json.loads(report.read_text(encoding="utf-8"))["counts"]
    sys.stderr.write(f"{name}: {counts['pass']} passed, {counts['fail']} failed\n")


def main() -> None:
    """Check the named programs, or all, and write the page."""
    named = sys.argv[1:] or [*PROGRAMS]
    for name in named:
        if name in PROGRAMS:
            check(name)
    files = [str(file) for file in sorted(REPORTS.glob("*.json"))]
    argv = [sys.executable, "-m", "acp_check", "--compare", *files]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    PAGE.write_text(HEAD + done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
