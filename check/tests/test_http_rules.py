"""The rules of Streamable HTTP: a fair server keeps all, and each faulty one breaks its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acp_check.checks import CheckReport, choose, inspect
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.subject import ServerSubject
from acp_check.verdicts import Verdict
from tests.http_server import FAULTS, FairServer, Head, http_server

HTTP = {check.rule.id for check in CHECKS if check.rule.group == "http"} - {"http.http2"}

AFTERWARDS = {
    "http.connection-ids": {"http.own-answers", "http.delete"},
    "http.session-stream:updates": {"http.replay"},
    "http.own-session": {"http.load-answer", "http.session-stream"},
    "http.unknown-connection": {"http.unknown-session", "http.delete"},
    "http.accepted:status": {"http.media-types", "http.delete"},
}
"""Rules that are broken, too, by such a fault."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server of this user is known."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def checked(server: FairServer, *only: str) -> CheckReport:
    async with http_server(server) as url:
        subject = ServerSubject(url, None, seconds=5)
        settings = CheckSettings(timeout=1.0, quiet=0.05, late=0.1)
        return await inspect(subject, choose(CHECKS, only), settings)


async def test_a_fair_server_breaks_no_rule_and_shows_them_all() -> None:
    report = await checked(FairServer(), "http")
    assert {it.rule.id: it.why for it in report.of(Verdict.FAIL)} == {}
    assert {it.rule.id for it in report.of(Verdict.PASS)} == HTTP


class AnyForm(FairServer):
    """Sends comments, names, ids and times to retry after, and a message over several lines."""

    def event(self, raw: bytes) -> bytes:
        lines = json.dumps(json.loads(raw), indent=1).splitlines()
        data = "".join(f"data: {line}\n" for line in lines)
        return f": hello\nretry: 3000\n\nevent: message\nid: 7\n{data}\n".encode()


@pytest.mark.slow
async def test_events_in_any_form_break_no_rule() -> None:
    groups = ("initialize", "http", "prompt", "load", "cancel", "permission")
    report = await checked(AnyForm(), *groups)
    assert {it.rule.id: it.why for it in report.of(Verdict.FAIL)} == {}
    assert {it.rule.id for it in report.of(Verdict.PASS)} > HTTP


class KnowsNoConnection(FairServer):
    """Answers 404 to whoever names no connection."""

    def refusal(self, method: str, head: Head, body: bytes) -> int | None:
        found = super().refusal(method, head, body)
        return 404 if found == 400 and "acp-connection-id" not in head else found


async def test_a_server_that_answers_404_without_a_connection_is_checked() -> None:
    report = await checked(KnowsNoConnection(), "initialize", "http")
    assert {it.rule.id for it in report.of(Verdict.FAIL)} == {"http.no-connection"}
    passed = {it.rule.id for it in report.of(Verdict.PASS)}
    assert {"initialize.answer", "http.initialize", "http.own-session"} <= passed


class LeavesBehindDelete(FairServer):
    """Closes the connection of TCP as well, which its client was about to use again."""

    def leaves_behind(self, method: str) -> bool:
        return method == "DELETE"


async def test_a_kept_connection_that_the_server_closes_is_no_lost_request() -> None:
    report = await checked(LeavesBehindDelete(), "http.delete", "http.unknown-connection")
    assert {it.rule.id for it in report.of(Verdict.PASS)} == {
        "http.delete",
        "http.unknown-connection",
    }, report.of(Verdict.FAIL)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_faulty_server_breaks_its_rule_and_no_other(fault: str) -> None:
    report = await checked(FAULTS[fault](), "http")
    failed = {it.rule.id: it.why for it in report.of(Verdict.FAIL)}
    its_own = fault.partition(":")[0]
    assert {its_own} <= failed.keys() <= {its_own, *AFTERWARDS.get(fault, ())}, failed


def test_every_rule_of_http_is_broken_once() -> None:
    assert {fault.partition(":")[0] for fault in FAULTS} == HTTP
