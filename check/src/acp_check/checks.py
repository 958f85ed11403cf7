"""Checks: rules declared with their tests, and tried in turn on one agent.

    RULES = Rules()

    @RULES.case("list.no-match", MUST, SOURCE)
    async def no_match(stage: Stage) -> None:
        \"""A folder without sessions gives an empty list.\"""

    @RULES.also("list.no-match", over=("list.*",))
    @one_by_one
    def no_match_elsewhere(record: Record, witness: Witness) -> None: ...

    @RULES.observer("tool.absolute", MUST, SOURCE, "the agent made no tool call")
    def absolute(record: Record, witness: Witness) -> None:
        \"""Paths of tool calls are absolute.\"""

    @RULES.overview("list.titles", MUST, SOURCE, "the agent has no list")
    def titles(records: Sequence[Record], witness: Witness) -> None:
        \"""Titles in lists are the last ones.\"""

The docstring is the rule's sentence in reports and in docs/rules.md. A case raises a signal, see
`verdicts`. After all cases, observers check each connection, and overviews all connections
together, because a session outlives its connection. Both report to their witness what they have
checked, and what was wrong. They see what the cases that they name with `over` have sent and
received, with the episodes that these need, otherwise everything; these are played for them.
`RULES.unseen` declares a rule that no behaviour can show.
"""

# See docs/decisions.md, 34.

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, partial, wraps
from math import inf

from msgspec import Struct, structs

from acp_check import bounds, verdicts
from acp_check.dialogue import AgentGone, Shell, Silence, unobservable
from acp_check.record import Record, WireLine
from acp_check.stage import CheckSettings, Stage, part_of, playing
from acp_check.subject import Subject
from acp_wire.errors import AgentStartError
from acp_wire.schema import Implementation
from acp_wire.tasks import TaskSet, first, timeout

MUST, SHOULD, EXPECTED = verdicts.Level.MUST, verdicts.Level.SHOULD, verdicts.Level.EXPECTED

Case = Callable[[Stage], Awaitable[None]]
"""Plays something and judges it."""


class Witness:
    """Collects what an observer has seen."""

    def __init__(self) -> None:
        self.seen = 0
        self.wrong: list[tuple[str, tuple[WireLine, ...]]] = []
        self._remarks: dict[str, None] = {}

    def saw(self) -> None:
        """Count one thing that the rule is about."""
        self.seen += 1

    def check(self, is_kept: object, why: str, *lines: WireLine) -> None:
        """Count one thing that the rule is about, and report it unless it keeps the rule."""
        self.saw()
        if not is_kept:
            self.accuse(why, *lines)

    def accuse(self, why: str, *lines: WireLine) -> None:
        """Report one thing that breaks the rule."""
        self.wrong.append((why, lines))

    def remark(self, what: str) -> None:
        """Add a remark to the verdict, which breaks no rule."""
        self._remarks[what] = None

    def judge(self, unless: str) -> None:
        """Raise the resulting signal; `unless` says why nothing may have been seen."""
        if self.wrong:
            why, lines = self.wrong[0]
            again = len(self.wrong) - 1
            raise verdicts.Violation(f"{why} (and {again} more such)" if again else why, *lines)
        if not self.seen and unless:
            raise verdicts.NotObservable(unless)
        if self._remarks:
            raise verdicts.Remarked("; ".join(self._remarks))


Observer = Callable[[Record, Witness], None]
"""Looks at one connection."""

Overview = Callable[[Sequence[Record], Witness], None]
"""Looks at all connections."""


def one_by_one(observer: Observer) -> Overview:
    """Return the overview that looks at one connection after the other."""

    @wraps(observer)
    def overview(records: Sequence[Record], witness: Witness) -> None:
        for record in records:
            observer(record, witness)

    return overview


@cache
def _is_one_of(id: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(id, it) for it in patterns)


class Check(Struct, frozen=True):
    """A rule and its test: one of `case`, `overview` and `unseen`, or a case followed by an
    overview.

    `over`: the cases that the overview looks at, as patterns of ids; none is all. `destructive`:
    only played when named with --only, and no overview looks at it. `beside`: the case has a
    separate process and mostly waits, so the next ones are played meanwhile.
    """

    rule: verdicts.Rule
    case: Case | None = None
    overview: Overview | None = None
    unseen: str = ""
    unless: str = ""
    over: tuple[str, ...] = ()
    destructive: bool = False
    beside: bool = False

    @property
    def part(self) -> str:
        """The part of the check that its case is; a destructive one has its own scene."""
        id = self.rule.id
        return "" if self.case is None else f"{id}/" if self.destructive else part_of(self.case, id)

    def looks_at(self, other: Check) -> bool:
        """Return True if its overview looks at the case of another one, or of its own."""
        if self.overview is None or other.case is None or other.destructive:
            return False
        id = other.rule.id
        return not self.over or id == self.rule.id or _is_one_of(id, self.over)

    @property
    def is_observed_only(self) -> bool:
        """True if it has an overview and no case."""
        return self.overview is not None and self.case is None

    def observe(self, records: Sequence[Record]) -> None:
        """Run the overview, if there is one; raises the resulting signal."""
        if self.overview is not None:
            witness = Witness()
            self.overview(records, witness)
            witness.judge(self.unless)


def _sentence(judge: Callable[..., object]) -> str:
    """Return the rule in words, which is the docstring of the function that judges it."""
    # Python with -OO has no docstrings.
    return " ".join((judge.__doc__ or judge.__name__).split())


class Rules:
    """The rules of one module, in order; `only` is the reach of rules without one, and `over` are
    the cases that an observer without any looks at."""

    def __init__(self, only: verdicts.Reach | None = None, over: tuple[str, ...] = ()) -> None:
        self._checks: list[Check] = []
        self._only = only
        self._over = over

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)

    def case(
        self,
        id: str,
        level: verdicts.Level,
        source: verdicts.RuleSource,
        *needs: str,
        only: verdicts.Reach | None = None,
        destructive: bool = False,
        beside: bool = False,
    ) -> Callable[[Case], Case]:
        """Register the decorated coroutine as a rule's case; `needs` are names of CAPABILITIES."""

        def declare(case: Case) -> Case:
            rule = verdicts.Rule(id, _sentence(case), level, source, needs, only or self._only)
            self._checks.append(Check(rule, case, destructive=destructive, beside=beside))
            return case

        return declare

    def overview(
        self,
        id: str,
        level: verdicts.Level,
        source: verdicts.RuleSource,
        unless: str,
        *needs: str,
        over: tuple[str, ...] | None = None,
        only: verdicts.Reach | None = None,
    ) -> Callable[[Overview], Overview]:
        """Register the decorated function as an overview; `unless` says why nothing may have been
        seen."""

        def declare(overview: Overview) -> Overview:
            rule = verdicts.Rule(id, _sentence(overview), level, source, needs, only)
            seen = self._over if over is None else over
            self._checks.append(Check(rule, overview=overview, unless=unless, over=seen))
            return overview

        return declare

    def observer(
        self,
        id: str,
        level: verdicts.Level,
        source: verdicts.RuleSource,
        unless: str,
        *needs: str,
        over: tuple[str, ...] | None = None,
        only: verdicts.Reach | None = None,
    ) -> Callable[[Observer], Observer]:
        """Register the decorated function as an observer, as `overview` does."""
        add = self.overview(id, level, source, unless, *needs, over=over, only=only)

        def declare(observer: Observer) -> Observer:
            add(one_by_one(observer))
            return observer

        return declare

    def also(self, id: str, over: tuple[str, ...]) -> Callable[[Overview], Overview]:
        """Register the decorated function as an overview beside the case of this rule."""

        def declare(overview: Overview) -> Overview:
            index = next(n for n, it in enumerate(self._checks) if it.rule.id == id)
            check = structs.replace(self._checks[index], overview=overview, over=over)
            self._checks[index] = check
            return overview

        return declare

    def unseen(
        self, id: str, says: str, level: verdicts.Level, source: verdicts.RuleSource, why: str
    ) -> None:
        """Register a rule that no behaviour can show; `why` is a sentence."""
        self._checks.append(Check(verdicts.Rule(id, says, level, source), unseen=why))


# -- trying them ------------------------------------------------------------------------------


class CheckReport(Struct):
    """The result of a check.

    `agent` is its name for itself, `seconds` is the duration, `records` are all connections.
    """

    subject: str
    agent: Implementation | None
    findings: tuple[verdicts.Finding, ...]
    seconds: float
    records: Sequence[Record] = ()

    def of(self, verdict: verdicts.Verdict) -> list[verdicts.Finding]:
        """Return the findings with this verdict."""
        return [finding for finding in self.findings if finding.verdict is verdict]


OnCheck = Callable[[Check], None]
OnReport = Callable[[CheckReport], None]


def choose(checks: Iterable[Check], patterns: Sequence[str]) -> list[Check]:
    """Return the checks whose id or group matches a glob pattern; all if there is none."""
    return [
        check
        for check in checks
        if not patterns
        or any(
            fnmatchcase(name, pattern)
            for pattern in patterns
            for name in (check.rule.id, check.rule.group)
        )
    ]


def checks_to_play(checks: Sequence[Check], catalogue: Sequence[Check]) -> list[Check]:
    """Return the checks to play: these, and those that their overviews look at."""
    chosen_ids = {check.rule.id for check in checks}
    more = [
        check
        for check in catalogue
        if check.rule.id not in chosen_ids and any(it.looks_at(check) for it in checks)
    ]
    return [*(check for check in checks if not check.is_observed_only), *more]


async def inspect(
    subject: Subject,
    checks: Sequence[Check],
    settings: CheckSettings,
    *,
    catalogue: Sequence[Check] = (),
    shell: Callable[[], Shell] | None = None,
    on_check: OnCheck = lambda _: None,
    on_report: OnReport = lambda _: None,
    records: list[Record] | None = None,
    stop: asyncio.Event | None = None,
) -> CheckReport:
    """Check `subject`; the callbacks are called when a check begins, and with the report, before
    the agent's processes are ended.

    `catalogue` has the cases that observers look at besides. Connections are added to `records` as
    they begin. First all cases are played, then observers look at the connections. When `stop` is
    set, the report has what was found so far; observers get a part of the time for the rest. Raises
    AgentStartError if the agent cannot be started at all.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    findings: dict[str, verdicts.Finding] = {}
    tasks = TaskSet()
    with tempfile.TemporaryDirectory(prefix="acphold-check-", dir=settings.folder) as folder:
        stage = Stage(subject, folder, settings, shell=shell, records=records)
        cases, is_whole = checks_to_play(checks, catalogue), False
        try:
            to_play = _play_all(stage, cases, findings, on_check, tasks)
            playing = tasks.start(to_play, "play")
            if stop is not None:
                await first(playing, tasks.start(stop.wait(), "stop"))
            is_whole = stop is None or playing.done()
            if is_whole:
                await playing
            now = loop.time()
            more = max(bounds.OBSERVATION_SECONDS, bounds.OBSERVATION_PART * (now - began))
            until = inf if is_whole else now + more
            for check in checks:
                id = check.rule.id
                is_lost = not check.is_observed_only or not stage.has_begun or loop.time() > until
                if id not in findings and is_lost:
                    why = "the check was ended before this was played"
                    not_seen = verdicts.Verdict.NOT_OBSERVABLE
                    findings[id] = verdicts.Finding(check.rule, not_seen, why)
                elif check.is_observed_only or (
                    check.overview is not None and findings[id].is_pass and loop.time() <= until
                ):
                    on_check(check)
                    findings[id] = await _finding(stage, check, partial(_observe, cases))
            agent = None
            if stage.has_begun:
                with suppress(verdicts.Signal, AgentStartError):
                    agent = (await stage.hello()).agent_info
            if is_whole:
                with suppress(verdicts.Signal, AgentStartError):
                    await stage.delete_sessions()
            in_order = [_with_stderr(findings[check.rule.id], stage.records) for check in checks]
            seconds = loop.time() - began
            report = CheckReport(subject.name, agent, tuple(in_order), seconds, stage.records)
            on_report(report)
        finally:
            if not is_whole:
                await stage.kill()
                await tasks.aclose()
            await stage.aclose()  # so no case waits for its agent any more
            await tasks.aclose()
            await stage.aclose()
    return report


async def _play_all(
    stage: Stage,
    checks: Sequence[Check],
    findings: dict[str, verdicts.Finding],
    on_check: OnCheck,
    tasks: TaskSet,
) -> None:
    """Play the cases, and add their findings."""

    async def find(check: Check) -> None:
        findings[check.rule.id] = await _finding(stage, check, _play)

    aside = []
    for check in checks:
        on_check(check)
        if check.beside:
            aside.append(tasks.start(find(check), check.rule.id))
        else:
            await find(check)
    for task in aside:
        await task


def record_of(records: Sequence[Record], line: WireLine) -> Record | None:
    """Return the connection of this line; None for one that was no line of a connection."""
    for record in records:
        if line.number < len(record.lines) and record.lines[line.number] is line:
            return record
    return None


def _with_stderr(finding: verdicts.Finding, records: Sequence[Record]) -> verdicts.Finding:
    """Return a failure with the agent's stderr from its first line on."""
    if finding.verdict is not verdicts.Verdict.FAIL or not finding.lines:
        return finding
    found: list[str] = []
    for record in records:
        times = [line.at for line in finding.lines if record_of([record], line) is not None]
        if times:
            until = max(times)
            found += record.stderr.between(min(times), until)[-bounds.STDERR_BEFORE :]
            late = record.stderr.between(until, until + bounds.STDERR_LATE_SECONDS)
            found += late[: bounds.STDERR_AFTER]
    return structs.replace(finding, stderr=tuple(found))


OTHERS = {
    verdicts.Reach.PROGRAM: "the rule is for servers, and this is a program",
    verdicts.Reach.SERVER: "the rule is for programs that the check starts, and this is a server",
}
"""Reasons why a rule does not apply to an agent reached in this way."""


async def _finding(
    stage: Stage, check: Check, look: Callable[[Stage, Check], Awaitable[None]]
) -> verdicts.Finding:
    loop = asyncio.get_running_loop()
    began = loop.time()
    limit = bounds.CASE_TIMEOUTS * stage.settings.timeout
    try:
        async with timeout(limit):
            if check.rule.only not in (None, stage.subject.reach):
                raise verdicts.NotApplied(OTHERS[stage.subject.reach])
            await look(stage, check)
    except verdicts.Signal as signal:
        finding = verdicts.Finding.of(check.rule, signal)
    except TimeoutError:
        why = f"the case did not end within {limit:g} s: the agent uses up every wait"
        finding = verdicts.Finding(check.rule, verdicts.Verdict.NOT_OBSERVABLE, why)
    except AgentStartError as error:
        if not stage.records:
            raise
        finding = verdicts.Finding(check.rule, verdicts.Verdict.NOT_OBSERVABLE, str(error))
    else:
        finding = verdicts.Finding(check.rule, verdicts.Verdict.PASS)
    return structs.replace(finding, seconds=round(loop.time() - began, 3))


async def _play(stage: Stage, check: Check) -> None:
    rule = check.rule
    await stage.needs(*rule.needs)
    if check.unseen:
        raise verdicts.Signal(check.unseen)
    if check.destructive and rule.id not in stage.settings.named:
        raise verdicts.Signal(f"this check only runs when named: --only {rule.id}")
    if check.case is not None:
        with playing(check.part):
            try:
                await check.case(stage)
            except (Silence, AgentGone) as lost:
                # A time limit alone breaks no MUST, since the agent, or the machine, may be slow;
                # nor does a connection that is lost.
                if rule.level is MUST and not await stage.is_at_fault(lost):
                    raise unobservable(lost) from None
                raise
            finally:
                await stage.leave_those_of(check.part)
                if not check.beside:  # the others are using them
                    await stage.leave_unanswered()


async def _observe(cases: Iterable[Check], stage: Stage, check: Check) -> None:
    await stage.needs(*check.rule.needs)
    parts = stage.with_needed(it.part for it in cases if check.looks_at(it))
    seen = (record.view(parts) for record in stage.records)
    check.observe([it for it in seen if it is not None and it.is_version_one])
