"""The rules for plans: an agent reports a plan, reports each change, and always all entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from acp_check.checks import MUST, SHOULD, Rules, Witness
from acp_check.record import Json, Record, WireLine, objects
from acp_check.rules.listings import past
from acp_check.stage import Stage
from acp_check.verdicts import NotObservable, RuleSource, Violation

RULES = Rules(over=("plan.told",))

PAGE = "Agent Plan"
UPDATING = RuleSource(PAGE, "Updating Plans")

LISTS = ("todos", "plan", "entries", "steps")
"""Names that tools for plans give the list of steps."""

STATUSES = {"pending", "in_progress", "completed"}

ENOUGH = 3
"""Updates of a plan with changed entries alone that no agent sends by chance."""


class PlannedTurn(Struct, frozen=True):
    """A turn that was answered: its calls of tools for plans, and the plans that it reported."""

    calls: tuple[tuple[WireLine, list[Json]], ...]
    reports: tuple[WireLine, ...]


def _turns(record: Record) -> Iterator[PlannedTurn]:
    for exchange in record.exchanges("client", "session/prompt"):
        if exchange.result.get("stopReason") != "end_turn" or exchange.answer is None:
            continue
        made: dict[object, tuple[WireLine, list[Json]]] = {}
        reports: list[WireLine] = []
        since = exchange.asked.number
        for line in record.updates(exchange.asked.session_id, since=since):
            if line.number >= exchange.answer.number:
                break
            id = line.update.get("toolCallId")
            given = line.update.get("rawInput")
            lists = [given.get(name) for name in LISTS] if isinstance(given, dict) else []
            for steps in map(objects, lists) if id is not None else ():
                if steps and all(step.get("status") in STATUSES for step in steps):
                    made[id] = line, steps
                    break
            if line.update.get("status") == "failed":
                made.pop(id, None)
            if line.update_kind.startswith("plan"):
                reports.append(line)
        yield PlannedTurn(tuple(made.values()), tuple(reports))


@RULES.case("plan.told", SHOULD, RuleSource(PAGE, "Creating Plans"))
async def report(stage: Stage) -> None:
    """A plan made with a tool is reported."""
    record = (await stage.need(past)).record  # in it a plan is asked for
    made = [turn for turn in _turns(record) if turn.calls]
    for turn in made:
        if not turn.reports:
            raise Violation("the plan was only reported as a tool call", turn.calls[0][0])
    if not made:
        raise NotObservable("no tool call has a plan, and nothing else shows that one was made")


@RULES.observer(
    "plan.updated", SHOULD, UPDATING, "no reported plan was changed by a later tool call"
)
def report_again(record: Record, witness: Witness) -> None:
    """A plan changed with a tool is reported again."""
    for turn in _turns(record):
        changed = [(line, steps) for line, steps in turn.calls if steps != turn.calls[0][1]]
        if changed and turn.reports:
            is_reported_again = (
                len({msgspec.json.encode(line.update) for line in turn.reports}) != 1
            )
            witness.check(
                is_reported_again,
                "only the original plan was reported",
                turn.reports[0],
                changed[-1][0],
            )


@RULES.overview("plan.complete", MUST, UPDATING, "no plan was reported twice in a turn")
def complete(records: Sequence[Record], witness: Witness) -> None:
    """Each update of a plan has all entries."""
    # A plan may lose entries on purpose. But an agent that sends whole plans sends an unchanged
    # entry at some time, and does not always leave out exactly these.
    partial: list[WireLine] = []
    for turn in (turn for record in records for turn in _turns(record)):
        known: dict[object, Json] = {}
        last: set[object] = set()
        for line in turn.reports:
            entries = {it.get("content"): it for it in objects(line.update.get("entries"))}
            if known:
                witness.saw()
            if any(known.get(name) == entry for name, entry in entries.items()):
                return  # an unchanged entry: this agent sends whole plans
            left_out = known.keys() - entries.keys()
            is_pending = any(known[name].get("status") == "pending" for name in left_out)
            is_back = not entries.keys().isdisjoint(known.keys() - last)
            if (is_pending or is_back) and entries and entries.keys() <= known.keys():
                partial.append(line)
            known |= entries
            last = set(entries)
    if len(partial) >= ENOUGH:
        witness.accuse("the updates always leave out unchanged entries", *partial[:ENOUGH])
