"""The rules on answers of clients: a good client breaks none on a tour, each faulty one its own."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory

import pytest

from acp_check.checks import CheckReport
from acp_check.record import Record
from acp_check.rules.client_answers import RULES
from acp_check.rules.clients import CHECKS
from acp_check.verdicts import Verdict
from acp_check.watcher import FENCE, report_on
from tests.caller import Guest
from tests.talker import Refused
from tests.toured_client import CAN, FAULTS, Toured, watched


def toured(spoiled: Callable[[Toured], None]) -> CheckReport:
    """Check a client in a short tour and return the report."""

    async def tour(client: Guest) -> None:
        spoiled(Toured(client))
        with TemporaryDirectory() as folder:
            await client.begin_prompt(await client.new(folder), "Hello")

    return watched(tour, CAN)[1]


def failed(report: CheckReport) -> dict[str, str]:
    return {finding.rule.id: finding.why for finding in report.of(Verdict.FAIL)}


def test_a_good_client_breaks_no_rule_on_a_tour_and_keeps_all_that_it_shows() -> None:
    report = toured(lambda _: None)
    assert failed(report) == {}
    passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
    assert {check.rule.id for check in RULES} <= passed


def _fails(_: object) -> None:
    raise Refused({"code": -32603, "message": "the disk is full"})


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file"])
def test_a_client_whose_disk_fails_breaks_no_rule(method: str) -> None:
    report = toured(lambda it: it.client.answers.update({method: _fails}))
    assert failed(report) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tour_finds_the_rule_that_a_client_breaks(fault: str) -> None:
    report = toured(FAULTS[fault])
    assert failed(report).keys() == {fault.partition(":")[0]}, failed(report)


def test_a_client_that_an_unknown_request_ends_is_found() -> None:
    record = Record("the client", {})
    request = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{"sessionId":"s","behind":""}}'
    record.add(0.0, "agent", request % FENCE.encode())
    assert failed(report_on(CHECKS, record, 0.0)) == {}
    record.ended = "the client left"
    assert failed(report_on(CHECKS, record, 0.0)).keys() == {"client.unknown-request-error"}


def test_every_rule_about_answers_is_broken_once() -> None:
    assert {check.rule.id for check in RULES} <= {fault.partition(":")[0] for fault in FAULTS}
