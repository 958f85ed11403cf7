"""The held-out corpus: the check fails faulty programs, and no correct one, however odd."""

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

FOUND: dict[str, dict[str, str]] = {
    "agent": {
        "version-echo": "initialize.other-version",
        "version-refused": "initialize.other-version",
        "version-text": "initialize.answer",
        "capabilities-missing": "initialize.capabilities",
        "info-missing": "initialize.info",
        "capability-true": "schema.results initialize.answer",
        "logout-missing": "auth.logout",
        "auth-code": "auth.logout",
        "auth-terminal": "auth.terminal-offered initialize.answer",
        "banner": "stdio.only-messages initialize.answer",
        "log-on-stdout": "stdio.only-messages tool.turns",
        "pretty": "list.answer",
        "latin-1": "stdio.utf-8 prompt.answer",
        "envelope": "json-rpc.version json-rpc.unknown-method",
        "id-text": "json-rpc.same-id initialize.answer",
        "notification-answered": "json-rpc.no-answer-to-notifications",
        "notification-fatal": "extension.unknown-notification",
        "custom-silent": "extension.answered",
        "custom-code": "extension.unknown-request",
        "custom-field": "extension.members prompt.answer",
        "meta-text": "schema.updates tool.turns",
        "id-by-folder": "new.unique-ids new.two-at-once",
        "cwd-relative": "new.relative-folder",
        "cwd-ignored": "tool.folder",
        "load-half": "load.agent-messages",
        "load-tools": "load.tool-calls",
        "load-sorted": "load.order",
        "load-early": "load.user-messages",
        "load-forgets": "load.remembers",
        "load-volatile": "load.after-restart",
        "load-mcp": "mcp.on-load",
        "resume-replays": "resume.no-history",
        "resume-forgets": "resume.remembers",
        "close-waits": "close.cancels",
        "mcp-env": "mcp.environment",
        "mcp-first": "mcp.all",
        "list-prefix": "list.filter",
        "list-cursor": "list.bad-cursor",
        "list-date": "list.times list.known-session",
        "delete-back": "delete.gone",
        "delete-unknown": "delete.twice",
        "cancel-everywhere": "cancel.other-session",
        "cancel-late": "cancel.updates-first",
        "tool-open": "tool.ends tool.turns",
        "permission-ignored": "permission.rejected",
        "tool-bare": "schema.updates tool.turns",
        "plan-delta": "plan.complete prompt.*",
        "write-unasked": "fs.offered fs.* tool.*",
        "terminal-leak": "terminal.released cancel.*",
        "config-partial": "options.complete",
    },
    "client": {
        "new-first": "client.initialize-first",
        "version-missing": "client.schema",
        "version-text": "client.schema",
        "version-ignored": "client.closes",
        "info-missing": "client.info",
        "terminal-object": "client.schema",
        "terminal-lie": "client.offers",
        "write-lie": "client.offers",
        "custom-field": "client.members",
        "cwd-relative": "client.absolute",
        "cwd-home": "client.absolute",
        "mcp-missing": "client.schema",
        "mcp-relative": "client.absolute",
        "mcp-env-map": "client.schema",
        "mcp-http": "client.advertised-servers",
        "mcp-sse": "client.advertised-servers",
        "load-unasked": "client.advertised-methods",
        "load-bare": "client.schema",
        "resume-unasked": "client.advertised-methods",
        "close-unasked": "client.advertised-methods",
        "roots-unasked": "client.advertised-directories",
        "roots-relative": "client.advertised-directories",
        "list-unasked": "client.advertised-methods",
        "list-relative": "client.absolute",
        "list-on": "client.cursors",
        "list-cursor": "client.cursors",
        "delete-unasked": "client.advertised-methods",
        "logout-unasked": "client.advertised-methods",
        "auth-made-up": "client.sign-in-methods",
        "image-unasked": "client.advertised-content",
        "embedded-unasked": "client.advertised-content",
        "prompt-text": "client.schema",
        "link-nameless": "client.schema",
        "cancel-request": "client.kinds",
        "cancel-unanswered": "client.permission-cancelled",
        "cancel-allowed": "client.permission-cancelled",
        "permission-kind": "client.permission-options",
        "permission-flat": "client.schema",
        "read-zero": "client.file-lines",
        "read-whole": "client.file-lines",
        "write-old": "client.file-created",
        "create-waits": "client.terminal-at-once",
        "keeps-start": "client.terminal-limit",
        "cuts-character": "client.terminal-limit",
        "kill-releases": "client.terminal-kill",
        "release-leaves": "client.terminal-release-ends",
        "unknown-silent": "client.unknown-request",
        "notification-answered": "client.answers",
        "garbage": "client.messages",
    },
    "server": {
        "init-accepted": "http.initialize",
        "init-header": "http.initialize",
        "init-type": "http.initialize",
        "post-200": "http.accepted",
        "post-waits": "http.new-answer",
        "post-body": "http.accepted",
        "type-charset": "http.media-types",
        "get-session": "http.unknown-session",
        "prompt-elsewhere": "http.session-stream",
        "replay-elsewhere": "http.replay",
        "load-elsewhere": "http.load-answer",
        "cross-session": "http.own-session",
        "stream-short": "http.cancel",
        "one-session": "http.new-answer",
        "ws-binary": "websocket.binary",
        "ws-binary-out": "websocket.text initialize.answer",
        "type-any": "http.content-type",
        "accept-any": "http.accept",
        "get-anonymous": "http.no-connection",
        "get-unknown": "http.unknown-connection",
        "post-anonymous": "http.no-connection",
        "post-unknown": "http.unknown-connection",
        "batch": "http.batch",
        "batch-400": "http.batch",
        "delete-anonymous": "http.no-connection",
        "cancel-sessionless": "http.cancel-header",
        "answer-sessionless": "http.response-header",
        "delete-204": "http.delete",
        "delete-open": "http.delete",
        "delete-usable": "http.delete",
        "sse-lines": "http.accepted",
        "ws-header": "websocket.connection-id",
    },
}
"""The rule that fails for each fault, with those that give it something to see."""

MISSED: dict[str, dict[str, str]] = {
    "agent": {},
    "client": {},
    "server": {},
}
"""The faults that no rule finds, and the check that would find each."""

OFFERS = {"version-ignored": "version", "load-unasked": "others", "list-unasked": "others"}
"""The `--offers` that expose these clients' faults; the usual ones expose the others."""

SIZES = {"agent": (50, 9), "client": (49, 6), "server": (32, 5)}
QUICK = {
    "agent": [
        *("initialize.*", "new.*", "prompt.*", "load.*", "resume.*"),
        *("list.*", "tool.*", "plan.*", "permission.*", "cancel.*", "schema.*"),
        *("json-rpc.*", "extension.*", "stdio.*", "options.*"),
    ],
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


def faults(name: str) -> list[str]:
    return [*program(name).FAULTS]


def failing(
    name: str, fault: str, rules: list[str], folder: Path, offers: str = "some"
) -> dict[str, str]:
    """Check a program and return the rules that fail, with their reasons."""
    only = [part for rule in rules for part in ("--only", rule)]
    env = {**os.environ, "HELDOUT_STORE": str(folder / "store")}
    argv = [sys.executable, str(HERE / f"{name}.py"), *([fault] if fault else [])]
    if name == "client":
        report = folder / "report.json"
        check = [*CHECK, "--client", "--offers", offers, "--report", str(report), *only]
        subprocess.run([*argv, "--", *check], env=env, timeout=140, capture_output=True)
        return fails(report.read_text())
    if name == "server":
        with served(argv, env) as url:
            return checked([*only, "--server", url], env)
    return checked([*only, "--", *argv], env)


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
def test_each_fault_is_found_or_said_to_be_missed(name: str) -> None:
    module = program(name)
    assert (len(module.FAULTS), len(module.ODDITIES)) == SIZES[name]
    assert not FOUND[name].keys() & MISSED[name].keys()
    assert FOUND[name].keys() | MISSED[name].keys() == module.FAULTS.keys()
    source = (HERE / f"{name}.py").read_text()
    for fault in (*module.FAULTS, *module.ODDITIES):
        assert f'is_("{fault}")' in source, f"{fault} changes nothing"


CORRECT = [(name, oddity) for name in SIZES for oddity in ("", *program(name).ODDITIES)]
OFFERED = [
    (oddity, offers)
    for oddity in ("", *program("client").ODDITIES)
    for offers in ("others", "none", "version")
]
TRIED = [(name, fault) for name in SIZES for fault in FOUND[name]]


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


@pytest.mark.slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(("name", "fault"), sample(TRIED))
def test_a_fault_fails_its_rule(name: str, fault: str, tmp_path: Path) -> None:
    rules = FOUND[name][fault].split()
    assert rules[0] in failing(name, fault, rules, tmp_path, OFFERS.get(fault, "some"))
