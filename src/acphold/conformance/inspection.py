"""A whole check of one agent: tries every rule in turn and gives each a verdict."""

from __future__ import annotations

import asyncio
import fnmatch
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from acphold.conformance.catalogue import Check, Witness
from acphold.conformance.host import Shell
from acphold.conformance.record import Record, WireLine
from acphold.conformance.stage import CheckSettings, Stage
from acphold.conformance.subject import Subject
from acphold.conformance.verdicts import Finding, NotApplied, Reach, Signal, Verdict
from acphold.errors import AgentStartError
from acphold.schema import Implementation
from acphold.tasks import TaskSet

CASE_TIMEOUTS = 12
"""Longest time for a case, in answer timeouts.

Each of its waits has its own limit; this is for an agent that uses up all of them.
"""


class CheckReport(Struct):
    """The result of a check.

    `agent` is its name for itself, `seconds` is the duration, `records` are all connections.
    """

    subject: str
    agent: Implementation | None
    findings: tuple[Finding, ...]
    seconds: float
    records: Sequence[Record] = ()

    def of(self, verdict: Verdict) -> list[Finding]:
        """Return the findings with this verdict."""
        return [finding for finding in self.findings if finding.verdict is verdict]


OnFinding = Callable[[Finding], None]
OnCheck = Callable[[Check], None]


def chosen(checks: Iterable[Check], patterns: Sequence[str]) -> list[Check]:
    """Return the checks whose id or group matches a glob pattern; all if there is none."""
    return [
        check
        for check in checks
        if not patterns
        or any(
            fnmatch.fnmatchcase(name, pattern)
            for pattern in patterns
            for name in (check.rule.id, check.rule.group)
        )
    ]


async def inspect(
    subject: Subject,
    checks: Sequence[Check],
    settings: CheckSettings,
    *,
    shell: Callable[[], Shell] | None = None,
    on_check: OnCheck = lambda _: None,
    on_finding: OnFinding = lambda _: None,
    records: list[Record] | None = None,
) -> CheckReport:
    """Check `subject`; the callbacks are told when a check begins and when its finding is final.

    Connections are added to `records` as they begin. Observers come last, because they look at
    everything. Raises AgentStartError if the agent cannot be started at all.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    findings: dict[str, Finding] = {}
    tasks = TaskSet()
    beside: dict[str, asyncio.Task[Finding]] = {}
    with tempfile.TemporaryDirectory(prefix="acphold-check-", dir=settings.folder) as folder:
        stage = Stage(subject, folder, settings, shell=shell, records=records)
        try:
            for check in checks:
                if check.overview is None or check.case is not None:
                    on_check(check)
                    if check.beside:
                        found = _found(stage, check, _play)
                        beside[check.rule.id] = tasks.start(found, check.rule.id)
                    else:
                        findings[check.rule.id] = await _found(stage, check, _play)
            for id, task in beside.items():
                findings[id] = await task
            for check in checks:
                if check.overview is not None and check.case is None:
                    on_check(check)
                    findings[check.rule.id] = await _found(stage, check, _observe)
                elif check.overview is not None and findings[check.rule.id].is_pass:
                    findings[check.rule.id] = await _found(stage, check, _observe)
                on_finding(findings[check.rule.id])
            agent = None
            with suppress(Signal, AgentStartError):
                agent = (await stage.hello()).agent_info
            # The sessions that were made are nobody's conversations: delete them.
            with suppress(Signal, AgentStartError):
                await stage.needs("delete")
                dialogue = await stage.main()
                calls = [dialogue.begin("session/delete", {"sessionId": id}) for id in stage.made]
                for call in calls:
                    await dialogue.answered(call)
        finally:
            await tasks.aclose()
            await stage.aclose()
    in_order = tuple(findings[check.rule.id] for check in checks)
    shown = tuple(_with_stderr(finding, stage.records) for finding in in_order)
    return CheckReport(subject.name, agent, shown, loop.time() - began, stage.records)


STDERR_BEFORE, STDERR_AFTER = 15, 5
"""Lines of stderr that a failure shows: the last ones before it, and those after it."""

STDERR_SECONDS = 0.5
"""Seconds by which a line of stderr may be later than the line of the wire that it is about."""


def record_of(records: Sequence[Record], line: WireLine) -> Record | None:
    """Return the connection of this line; None for one that was no line of a connection."""
    for record in records:
        if line.number < len(record.lines) and record.lines[line.number] is line:
            return record
    return None


def _with_stderr(finding: Finding, records: Sequence[Record]) -> Finding:
    """Return a failure with the agent's stderr from its first line on."""
    if finding.verdict is not Verdict.FAIL or not finding.lines:
        return finding
    found: list[str] = []
    for record in records:
        times = [line.at for line in finding.lines if record_of([record], line) is not None]
        if times:
            until = max(times)
            found += record.stderr.between(min(times), until)[-STDERR_BEFORE:]
            found += record.stderr.between(until, until + STDERR_SECONDS)[:STDERR_AFTER]
    return structs.replace(finding, stderr=tuple(found))


OTHERS = {
    Reach.PROGRAM: "it is about a server, and this is a program that the check starts",
    Reach.SERVER: "it is about a program that the check starts, and this is a server",
}
"""Reasons why a rule does not apply to an agent reached in this way."""


async def _found(
    stage: Stage, check: Check, look: Callable[[Stage, Check], Awaitable[None]]
) -> Finding:
    loop = asyncio.get_running_loop()
    began = loop.time()
    limit = CASE_TIMEOUTS * stage.settings.timeout
    try:
        async with asyncio.timeout(limit):
            if check.rule.only not in (None, stage.subject.reach):
                raise NotApplied(OTHERS[stage.subject.reach])
            await look(stage, check)
    except Signal as signal:
        return _finding(check, signal.verdict, signal.why, signal.lines, loop.time() - began)
    except TimeoutError:
        why = f"it was not over after {limit:g} s: the agent uses up every wait"
        return _finding(check, Verdict.NOT_OBSERVABLE, why, (), loop.time() - began)
    except AgentStartError as error:
        if not stage.records:
            raise
        return _finding(check, Verdict.NOT_OBSERVABLE, str(error), (), loop.time() - began)
    return _finding(check, Verdict.PASS, "", (), loop.time() - began)


async def _play(stage: Stage, check: Check) -> None:
    rule = check.rule
    await stage.needs(*rule.needs)
    if check.unseen:
        raise Signal(check.unseen)
    if check.destructive and rule.id not in stage.settings.named:
        raise Signal(f"it is only done when asked for: --only {rule.id}")
    if check.case is not None:
        await check.case(stage)


async def _observe(stage: Stage, check: Check) -> None:
    await stage.needs(*check.rule.needs)
    if check.overview is not None:
        witness = Witness()
        check.overview([it for it in stage.records if it.is_version_one], witness)
        witness.judge(check.unless)


def _finding(
    check: Check, verdict: Verdict, why: str, lines: Sequence[WireLine], seconds: float
) -> Finding:
    return Finding(check.rule, verdict, why, tuple(lines), round(seconds, 3))
