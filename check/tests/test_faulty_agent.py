"""Each fault of the faulty agents is found by the check of its rule, and by no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_check.checks import Check, CheckReport, Rules, Witness, choose, inspect
from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_check.record import Json, Record
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings, Stage
from acp_check.verdicts import Level, Reach, RuleSource, Verdict, Violation
from acp_wire.rpc.transport import Transport
from acp_wire.transports.streams import MemoryTransport
from tests.faulty_agent import FAULTS
from tests.memory_subject import MemorySubject
from tests.oddities import ODDITIES
from tests.played_shell import PlayedShell
from tests.samples import sample
from tests.virtual_time import play

pytestmark = pytest.mark.slow

PROCESSES_ONLY = {"stdio.leaves-nothing"}
"""Rules that only a real program can break; `test_program_subject` tests them."""

IN_MEMORY = [check for check in CHECKS if check.rule.group != "mcp"]
"""MCP servers are programs and endpoints: `test_tool_servers` has those rules."""

QUICK = [check for check in IN_MEMORY if check.rule.group != "pressure"]
"""Without thousands of messages, where these are not the subject."""


IN_TIME = "json-rpc.in-time"
NO_RESULT = ("initialize.answer", "new.answer", "prompt.answer", "list.answer", "delete.answer")
COMPANIONS = {
    "new.relative-folder": {"load.relative-folder"},  # it looks at no path of a folder
    # To close a session is to cancel its turn, and a turn may wait for a permission.
    "cancel.stop-reason": {"close.cancels", "cancel.permission", "cancel.tool", "cancel.file"},
    "cancel.stop-reason:silent": {
        *("close.cancels", "cancel.permission", "cancel.tool", "cancel.file"),
        "cancel-request.answered",
    },
    "json-rpc.zero-id": {"json-rpc.string-id"},  # the empty id is none to it, either
    "list.no-match": {"list.filter"},
    # The introduction of another version has members of that version.
    "initialize.new-members": {"initialize.other-version"},
    "list.filter": {"list.no-match"},
    "list.answer": {"schema.results", "delete.gone"},
    "tool.folder:newest": {"load.folder", "tool.absolute", "fs.absolute"},
    # An option that is set to the mode that it has tells the mode.
    "modes.current": {"modes.known-updates"},
    # Each page has the session that the other rule expects.
    "session.unknown-id": {"list.pages"},
    "list.known-session": {"list.pages"},
    # A code of theirs, where a rule asks for another.
    "json-rpc.result-or-error:code": {"json-rpc.invalid-params-code"},
    "json-rpc.error-codes": {"json-rpc.invalid-params-code"},
    # A busy agent refuses, and a refused prompt cannot be cancelled.
    "new.two-at-once": {"cancel.at-once"},
    "prompt.two-sessions": {"cancel.at-once"},
    "cancel.at-once": {"cancel.permission", "cancel.file"},
    "cancel.other-session": {"close.no-other", "session.independent"},
    # The id of a deleted session is that of one made by another process.
    "delete.own-id": {"new.unique-over-restarts", "list.titles"},
    # The mode that is not among the options is lost with its process.
    "options.in-step": {"modes.kept"},
    "modes.kept:set": {"modes.unknown", "options.in-step"},
    # The option for the mode says another mode than was told, or is told with another option.
    "modes.kept:own": {"options.in-step"},
    "modes.kept:of-all": {"options.in-step"},
    # A value set elsewhere, or set to something else, is not kept.
    "options.own-session:model": {"options.kept"},
    "options.set": {"options.kept"},
    # Sessions that a list, a turn, or the end of another closes are closed whoever looks.
    "list.only-lists:closes": {"session.independent"},
    "prompt.next": {"tool.turns", "tool.refused", "session.independent"},
    "close.no-other": {"session.independent"},
    # The value is none of the option's; the id of a session is a string.
    "options.unknown-value:set": {"options.current"},
    "session.known-id:number": {"schema.requests"},
    # The option for the mode is one of those that are not told.
    "modes.kept:none": {"options.kept"},
    # If all are deleted, so is the one beside it; terminals that are never used are not released.
    "delete.no-other": {"delete.same-folder", "session.independent"},
    "terminal.offered": {"terminal.released"},
    # Their own ids begin anew where their history does.
    "load.cancelled-turn": {"tool.unique-ids"},
    "load.after-resume": {"prompt.message-ids", "tool.unique-ids"},
    # Turns that a count follows, or is in, are in no replay.
    "load.after-kill": {"load.links", "load.images", "load.audio", "load.embedded"},
    "load.after-kill-in-turn": {"load.cancelled-turn", "load.after-resume"},
    # A late update is late for every rule that waits.
    "prompt.updates-first": {
        "close.silent",
        "prompt.message-ids",
        "cancel.tool-updates-first",
    },
    # Nobody has cancelled that turn.
    # A request that ends with an error of its own has not ended as requested.
    "cancel-request.answered": {"cancel-request.code"},
    "cancel-request.code": {"close.cancels"},
    "cancel.next-prompt": {"cancel.only-asked"},
    "cancel.idle": {"cancel.only-asked"},
    "prompt.answer:cancelled": {"cancel.only-asked"},
    "cancel.updates-first": {"close.silent", "prompt.updates-first", "cancel.tool-updates-first"},
    "close.cancels": {"close.silent"},
    "close.silent": {"prompt.own-session", "prompt.updates-first"},
    # Entries replayed twice, or forgotten, are missed elsewhere.
    "load.user-messages:twice": {"load.grows"},
    "load.again": {"load.grows"},
    "resume.goes-on": {"resume.remembers"},
    "json-rpc.string-id:number": {"json-rpc.same-id"},
    "resume.no-history:as-load": {"resume.after-restart"},  # a load names its servers
    "resume.no-history:late": {"tool.unique-ids"},
    "json-rpc.same-id:null": {"modes.unknown", "session.independent"},  # they wait for an answer
    "json-rpc.same-id:fractional": {"json-rpc.zero-id", "json-rpc.large-id"},
    # A result that is no answer does not fit the schema either.
    **{rule: {"schema.results"} for rule in NO_RESULT if rule != "list.answer"},
}
"""Rules that cannot be kept by an agent that breaks this one."""


def checked(
    agent: type[Exemplar], settings: CheckSettings, checks: Sequence[Check] = IN_MEMORY
) -> CheckReport:
    """A whole check of an agent in memory."""
    return play(inspect(MemorySubject.of(agent), checks, settings, shell=PlayedShell))


def failed(report: CheckReport) -> list[str]:
    return [finding.rule.id for finding in report.of(Verdict.FAIL)]


AGENT_FAULTS = [it for it in FAULTS if not it.startswith("mcp.")]
ALL_RULES = frozenset(sample(AGENT_FAULTS))
"""Faults that are tried with all rules. The others are tried with the rules of their group, unless
the broken rule also looks at the cases of other rules."""


@pytest.mark.parametrize("fault", AGENT_FAULTS)
def test_exactly_the_rule_that_is_broken_fails(fault: str) -> None:
    rule = fault.partition(":")[0]
    named = frozenset({rule})
    settings = CheckSettings(named=named, sign_in="key" if rule == "auth.signed-in" else None)
    under_pressure = rule.startswith("pressure.")
    checks = IN_MEMORY if under_pressure else QUICK
    [broken] = choose(checks, [rule])
    if broken.overview is None and fault not in ALL_RULES:
        checks = choose(checks, [broken.rule.group])
    report = checked(FAULTS[fault], settings, checks)
    # An answer that does not come breaks the rule about that as well.
    others = {IN_TIME} - {rule} | COMPANIONS.get(fault, COMPANIONS.get(rule, set()))
    assert set(failed(report)) - others == {rule}, report.of(Verdict.FAIL)
    assert all(finding.why for finding in report.of(Verdict.FAIL))


@pytest.mark.parametrize(
    ("fault", "live", "replayed"),
    [
        ("load.agent-messages", '"That is all."', '"That …"'),
        ("load.tool-calls", '"status":"completed"', '"toolCallId"'),
    ],
)
def test_a_replay_that_differs_shows_the_lines_of_both_sides(
    fault: str, live: str, replayed: str
) -> None:
    [finding] = checked(FAULTS[fault], CheckSettings(), choose(CHECKS, [fault])).of(Verdict.FAIL)
    texts = [line.text for line in finding.lines]
    load = next(at for at, text in enumerate(texts) if '"session/load"' in text)
    assert any(live in text for text in texts[:load])
    assert replayed in texts[load + 1]
    assert live not in "".join(texts[load + 1 : -1])
    assert finding.lines[-1].is_response


def test_a_case_that_mostly_waits_holds_up_no_other() -> None:
    rules, played, over = Rules(), list[str](), asyncio.Event()
    source = RuleSource("Prompt Turn", "")

    async def episode(stage: Stage) -> None:
        played.append("episode")
        await asyncio.sleep(1)

    @rules.case("wait.first", Level.EXPECTED, source, beside=True)
    async def first(stage: Stage) -> None:
        """It waits for the next one."""
        await stage.judge(episode)
        await over.wait()
        raise Violation("it was played")

    @rules.case("wait.second", Level.EXPECTED, source)
    async def second(stage: Stage) -> None:
        """It is played meanwhile."""
        await stage.judge(episode)
        played.append("second")
        over.set()

    report = checked(Exemplar, CheckSettings(), list(rules))
    assert [it.verdict for it in report.findings] == [Verdict.FAIL, Verdict.PASS]
    assert played == ["episode", "second"]


def test_observers_of_a_check_that_was_ended_get_a_part_of_its_time() -> None:
    rules, stop = Rules(), asyncio.Event()
    source = RuleSource("Prompt Turn", "")

    @rules.case("end.now", Level.EXPECTED, source)
    async def end(stage: Stage) -> None:
        """It ends the check."""
        await stage.hello()
        stop.set()
        await asyncio.Event().wait()

    for number in range(100):

        @rules.observer(f"slow.{number}", Level.EXPECTED, source, "nothing was sent")
        def look(record: Record, witness: Witness) -> None:
            """It takes its time."""
            time.sleep(0.03)
            witness.saw()

    subject = MemorySubject.of(Exemplar)
    report = asyncio.run(inspect(subject, list(rules), CheckSettings(), stop=stop))
    ended = [it for it in report.findings if "ended before" in it.why]
    assert len(report.findings) == 101
    assert len(ended) > 50


def test_the_agent_without_a_fault_breaks_no_rule() -> None:
    assert failed(checked(Exemplar, CheckSettings())) == []


class KeepsNothing(Exemplar):
    """Counts its sessions and calls from 1 in every process."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, Memory())

    def capabilities(self) -> Json:
        found = super().capabilities()
        return {**found, "loadSession": False, "sessionCapabilities": {"close": {}}}


def test_sessions_of_two_processes_with_one_id_are_not_taken_for_one() -> None:
    assert failed(checked(KeepsNothing, CheckSettings(), QUICK)) == ["new.unique-over-restarts"]


def test_processes_with_one_memory_file_share_its_sessions_and_no_id(tmp_path: Path) -> None:
    async def serve(transport: MemoryTransport) -> None:
        await Exemplar(transport, Memory.at(str(tmp_path / "memory.json"))).serve()

    subject = MemorySubject("agent", serve)
    checks = choose(QUICK, ["new.unique*", "list.after-restart", "delete.gone"])
    report = play(inspect(subject, checks, CheckSettings(), shell=PlayedShell))
    assert failed(report) == []
    passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
    assert {"new.unique-over-restarts", "list.after-restart", "delete.gone"} <= passed


class TakesLongForTurns(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        await asyncio.sleep(100)
        return await super().prompt(request, params)


class TakesLong(Exemplar):
    async def result(self, method: str, request: Json) -> object:
        if method != "initialize":
            await asyncio.sleep(30)
        return await super().result(method, request)


class Hangs(Exemplar):
    async def take(self, raw: bytes) -> None:
        if b"session/new" in raw:
            await asyncio.Event().wait()
        await super().take(raw)


@pytest.mark.parametrize("agent", [TakesLongForTurns, TakesLong, Hangs])
def test_no_time_limit_fails_a_must(agent: type[Exemplar]) -> None:
    report = checked(agent, CheckSettings(), QUICK)
    musts = [it for it in report.of(Verdict.FAIL) if it.rule.level is Level.MUST]
    assert musts == []


class Locked(Exemplar):
    """Wants a sign-in, and says how."""

    sign_in_wanted = True


def test_what_takes_a_sign_in_is_blocked_and_neither_passes_nor_fails() -> None:
    report = checked(Locked, CheckSettings(), QUICK)
    assert failed(report) == []
    blocked = {finding.rule.id for finding in report.of(Verdict.BLOCKED)}
    assert {"new.answer", "prompt.answer", "cancel.stop-reason", "load.after-restart"} <= blocked
    passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
    assert {"initialize.answer", "auth.methods-for-sign-in"} <= passed


def test_a_sign_in_that_was_asked_for_unblocks_the_rest() -> None:
    report = checked(Locked, CheckSettings(sign_in="key"), QUICK)
    assert failed(report) == []
    assert not report.of(Verdict.BLOCKED)


def test_the_sessions_that_were_made_are_deleted_afterwards() -> None:
    memory = Memory()
    checks = [check for check in QUICK if check.rule.group in ("new", "prompt")]
    play(inspect(MemorySubject.of(Exemplar, memory), checks, CheckSettings(), shell=PlayedShell))
    assert not memory.sessions


def test_every_rule_that_can_be_seen_is_broken_by_a_fault() -> None:
    # Servers are broken in test_servers.py.
    of_agents = [check for check in CHECKS if check.rule.only is not Reach.SERVER]
    seen = {check.rule.id for check in of_agents if not check.unseen}
    assert seen - {fault.partition(":")[0] for fault in FAULTS} == PROCESSES_ONLY


def test_every_id_is_there_once() -> None:
    ids = [check.rule.id for check in CHECKS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("oddity", ODDITIES)
def test_no_rule_fails_an_agent_that_is_odd_and_right(oddity: str) -> None:
    report = checked(ODDITIES[oddity], CheckSettings(), QUICK)
    assert failed(report) == [], report.of(Verdict.FAIL)


def test_members_of_a_draft_are_told_as_such() -> None:
    agent = ODDITIES["tells its usage with the answer of a prompt, as a draft has it"]
    report = checked(agent, CheckSettings(), QUICK)
    (finding,) = (it for it in report.findings if it.rule.id == "extension.members")
    assert finding.verdict is Verdict.PASS
    assert finding.why == "$.usage of session/prompt is only in a draft of the protocol"


def test_an_error_about_a_notification_is_not_held_against_a_request_that_is_still_open() -> None:
    record = Record("the agent", {})
    record.add(0.0, "client", b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}')
    record.add(0.0, "client", b'{"jsonrpc":"2.0","method":"_x/notify"}')
    error = b'{"code":-32601,"message":"no such method: _x/notify"}'
    record.add(0.0, "agent", b'{"jsonrpc":"2.0","id":null,"error":%b}' % error)
    (same_id,) = (check for check in CHECKS if check.rule.id == "json-rpc.same-id")
    same_id.observe([record])
