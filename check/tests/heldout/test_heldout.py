"""The held-out corpus: the check fails no correct client and no correct server, however odd.

Odd agents are in `tests.oddities`, and what agents of others fail in acphold's interop tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import util
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from acp_check.command import main
from tests.samples import sample

HERE = Path(__file__).parent
CHECK = [sys.executable, "-m", "acp_check", "--json"]

SIZES = {"client": 6, "server": 5}
QUICK = {
    "client": ["client.*"],
    "server": [
        *("initialize.*", "new.*", "prompt.*", "load.*", "cancel.*"),
        *("permission.*", "http.*", "websocket.*"),
    ],
}
"""The rules that the oddities have to pass; the others see nothing of them."""


def program(name: str) -> ModuleType:
    spec = util.spec_from_file_location(f"heldout_{name}", HERE / f"{name}.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failing(
    name: str, oddity: str, rules: list[str], folder: Path, offers: str = "some"
) -> dict[str, str]:
    """Check a program and return the rules that fail, with their reasons."""
    only = [part for rule in rules for part in ("--only", rule)]
    env = {**os.environ, "HELDOUT_STORE": str(folder / "store")}
    argv = [sys.executable, str(HERE / f"{name}.py"), *([oddity] if oddity else [])]
    if name == "client":
        report = folder / "report.json"
        check = [*CHECK, "--client", "--offers", offers, "--report", str(report), *only]
        subprocess.run([*argv, "--", *check], env=env, timeout=140, capture_output=True)
        return fails(report.read_text())
    with served(argv, env) as url:
        return checked([*only, "--server", url], env)


def checked(words: list[str], env: dict[str, str]) -> dict[str, str]:
    # In this process: a new one takes half of a check's CPU time to import what it needs.
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        for name, value in env.items():
            patch.setenv(name, value)
        main(["--json", *words])
    return fails(out.getvalue())


def fails(report: str) -> dict[str, str]:
    checks: list[dict[str, Any]] = json.loads(report)["checks"]
    assert any(check["verdict"] in ("pass", "fail") for check in checks), "nothing was checked"
    return {check["id"]: check["why"] for check in checks if check["verdict"] == "fail"}


@contextmanager
def served(argv: list[str], env: dict[str, str]) -> Iterator[str]:
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.mark.parametrize("name", SIZES)
def test_each_oddity_changes_something(name: str) -> None:
    oddities = program(name).ODDITIES
    assert len(oddities) == SIZES[name]
    source = (HERE / f"{name}.py").read_text()
    assert [it for it in oddities if f'is_("{it}")' not in source] == []


CORRECT = [(name, oddity) for name in SIZES for oddity in ("", *program(name).ODDITIES)]
OFFERED = [
    (oddity, offers)
    for oddity in ("", *program("client").ODDITIES)
    for offers in ("others", "none", "version")
]


@pytest.mark.slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(("name", "oddity"), sample(CORRECT))
def test_a_correct_program_fails_no_rule(name: str, oddity: str, tmp_path: Path) -> None:
    assert failing(name, oddity, QUICK[name] if oddity else [], tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("oddity", "offers"), sample(OFFERED))
def test_a_correct_client_fails_no_rule_whatever_it_is_offered(
    oddity: str, offers: str, tmp_path: Path
) -> None:
    assert failing("client", oddity, [], tmp_path, offers) == {}
