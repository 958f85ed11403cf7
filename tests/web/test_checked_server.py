"""Our own server, before the checker of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_check.checks import choose, inspect
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.subject import ServerSubject
from acp_check.verdicts import Level, Verdict
from tests.web.conftest import serving

LENIENT = {
    *(f"http.{it}-header" for it in ("session", "cancel", "response")),
    *("http.load-answer", "http.unknown-session"),
}
"""SHOULDs that ours breaks, because official clients leave the header out, or open a stream too
early: see `web.http_clients`."""


@pytest.mark.slow
async def test_ours_keeps_the_rules_of_the_transport_and_is_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where no server is known
    with serving(tmp_path) as served:
        only = ("http", "websocket", "new", "load.after-kill", "stdio.ends-with-stdin")
        subject = ServerSubject(served.url, served.token(), seconds=20)
        report = await inspect(subject, choose(CHECKS, only), CheckSettings(timeout=20))
    assert {finding.rule.id: finding.why for finding in report.of(Verdict.FAIL)}.keys() == LENIENT
    assert {finding.rule.level for finding in report.of(Verdict.FAIL)} == {Level.SHOULD}
    passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
    assert {
        *("http.content-type", "http.accept", "http.no-connection", "http.unknown-connection"),
        *("http.session-stream", "http.delete", "websocket.binary"),
    } <= passed
    assert "new.unique-ids" in passed
    not_applied = {finding.rule.id for finding in report.of(Verdict.NOT_APPLIED)}
    assert not_applied == {"load.after-kill", "stdio.ends-with-stdin"}
