"""The rules for a person's choices in a session: modes, config options, commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec import Struct

from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness, one_by_one
from acp_check.dialogue import Call, Dialogue
from acp_check.record import (
    Exchange,
    Json,
    Record,
    WireLine,
    in_time,
    objects,
    twice,
)
from acp_check.rules.beginnings import plain_session
from acp_check.rules.prompt_turns import long_turn, plain_turn
from acp_check.stage import CheckedSession, Stage
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.schema.updates import has_capability

MODES = "Session Modes"
OPTIONS = "Session Config Options"
SETTING = RuleSource(OPTIONS, "Setting a Config Option")
BESIDE_MODES = RuleSource(OPTIONS, "Relationship to Session Modes")
NO_MODES = "the agent has no modes"
NO_OPTIONS = "the agent has no config options"
# `session/fork` is a draft: no rule expects anything of it.
CHOICES = ("modes.*", "options.*", "prompt.side-by-side", "resume.folder", "load.links")
"""The cases in which modes and options are set."""

RULES = Rules(over=CHOICES)
REOPENING = ("session/load", "session/resume")
OPENING = ("session/new", *REOPENING)
SET_OPTION = "session/set_config_option"


def _modes(record: Record) -> Iterator[tuple[WireLine, Json]]:
    for exchange in record.exchanges("client", *OPENING):
        modes = exchange.result.get("modes")
        if exchange.answer is not None and isinstance(modes, dict):
            yield exchange.answer, modes


def available_modes(modes: Json) -> list[str]:
    """Return the ids of the available modes."""
    return [str(it.get("id")) for it in objects(modes.get("availableModes"))]


@RULES.observer("modes.current", MUST, RuleSource(MODES, "Initial state"), NO_MODES)
def current_mode(record: Record, witness: Witness) -> None:
    """The current mode is one of the available modes."""
    for line, modes in _modes(record):
        current = modes.get("currentModeId")
        witness.check(current in available_modes(modes), f"{current!r} is not available", line)


@RULES.observer("modes.unique-ids", MUST, RuleSource(MODES, "SessionMode"), NO_MODES)
def unique_modes(record: Record, witness: Witness) -> None:
    """Each mode has a unique id."""
    for line, modes in _modes(record):
        id = twice(available_modes(modes))
        witness.check(id is None, f"two modes have the id {id!r}", line)


@RULES.observer(
    "modes.known-updates",
    MUST,
    RuleSource(MODES, "From the Agent"),
    "the agent reported no change of mode",
)
def only_known_updates(record: Record, witness: Witness) -> None:
    """A mode reported as current is one of the available modes."""
    known: dict[object, list[str]] = {}
    for exchange in record.exchanges("client", *OPENING):
        if isinstance(modes := exchange.result.get("modes"), dict):
            known[exchange.session_id] = available_modes(modes)
    for line in record.updates():
        if line.update_kind == "current_mode_update" and line.session_id in known:
            current = line.update.get("currentModeId")
            witness.check(current in known[line.session_id], f"{current!r} is not available", line)


async def _with_modes(stage: Stage) -> tuple[Dialogue, CheckedSession]:
    """Make a session with modes in the main process."""
    dialogue, session = await stage.session_after(plain_session)
    modes = session.answer.result.get("modes")
    if not isinstance(modes, dict) or not available_modes(modes):
        raise NotObservable(NO_MODES)
    return dialogue, session


def other_mode(session: CheckedSession) -> str:
    """Return a mode in which the session is not; raises NotObservable."""
    modes = session.answer.result.get("modes")
    modes = modes if isinstance(modes, dict) else {}
    for id in available_modes(modes):
        if id != modes.get("currentModeId"):
            return id
    raise NotObservable("the agent has only one mode")


async def set_other_mode(dialogue: Dialogue, session: CheckedSession) -> Call:
    """Set another mode; return the answer. Raises NotObservable."""
    params = {"sessionId": session.id, "modeId": other_mode(session)}
    return await dialogue.ask("session/set_mode", params)


@RULES.case("modes.set", MUST, RuleSource(MODES, "From the Client"))
async def set_mode(stage: Stage) -> None:
    """The client can set a mode."""
    dialogue, session = await _with_modes(stage)
    (await set_other_mode(dialogue, session)).require_result()


@RULES.case("modes.unknown", EXPECTED, RuleSource(MODES, "From the Client"))
async def unknown_mode(stage: Stage) -> None:
    """An unavailable mode is refused, and changes nothing."""
    dialogue, session = await _with_modes(stage)
    params = {"sessionId": session.id, "modeId": "check-no-such-mode"}

    async def refuse() -> Call:
        answer = await dialogue.ask("session/set_mode", params)
        answer.require_error("the agent accepted an unknown mode")
        return answer

    await _changes_nothing(dialogue, session, refuse)


@RULES.case("modes.in-turn", MUST, RuleSource(MODES, "Setting the current mode"))
async def mode_in_turn(stage: Stage) -> None:
    """A mode can be set while a turn is running."""
    await stage.need(plain_turn)
    dialogue, session = await _with_modes(stage)
    other_mode(session)  # without one, no turn has to begin
    async with long_turn(stage, dialogue, session) as call:
        answer = await set_other_mode(dialogue, session)
    await _is_taken_in_turn(dialogue, call, answer)


async def _is_taken_in_turn(dialogue: Dialogue, call: Call, answer: Call) -> None:
    """Raise Violation for an error that came while the turn was running, and only then."""
    if call.answer is not None and call.answer.number < answer.line.number:
        raise NotObservable("the turn ended before the answer")
    if not answer.is_refused:
        return
    later = await dialogue.ask(answer.asked.method or "", answer.asked.params)
    if later.is_refused:
        raise NotObservable("it is refused outside turns as well")
    answer.require_result()


# -- config options -------------------------------------------------------------------------


def _options(record: Record) -> Iterator[tuple[WireLine, list[Json]]]:
    """Yield every list of options the agent sent, with its line."""
    for exchange in record.exchanges("client", *OPENING, SET_OPTION):
        found = objects(exchange.result.get("configOptions"))
        if exchange.answer is not None and found:
            yield exchange.answer, found
    for line in record.updates():
        if found := objects(line.update.get("configOptions")):
            yield line, found


def option_values(option: Json) -> list[str]:
    """Return the values of a select, in groups or not."""
    found: list[str] = []
    for entry in objects(option.get("options")):
        inner = entry.get("options")
        members = objects(inner) if isinstance(inner, list) else [entry]
        found += [str(it.get("value")) for it in members]
    return found


def other_values(option: Json) -> list[str]:
    """Return the values that an option does not have now."""
    return [it for it in option_values(option) if it != option.get("currentValue")]


@RULES.observer("options.unique-ids", MUST, RuleSource(OPTIONS, "ConfigOption"), NO_OPTIONS)
def unique_options(record: Record, witness: Witness) -> None:
    """Config options have unique ids, and each option's values are unique."""
    for line, options in _options(record):
        id = twice(str(it.get("id")) for it in options)
        witness.check(id is None, f"two options have the id {id!r}", line)
        for option in options:
            if (value := twice(option_values(option))) is not None:
                witness.accuse(f"option {option.get('id')!r} has the value {value!r} twice", line)


@RULES.observer(
    "options.current",
    MUST,
    RuleSource(OPTIONS, "Default Values and Graceful Degradation"),
    NO_OPTIONS,
)
def current_values(record: Record, witness: Witness) -> None:
    """The current value of a config option is one of its possible values."""
    for line, options in _options(record):
        witness.saw()
        for option in options:
            value = option.get("currentValue")
            if option.get("type") == "select" and value not in option_values(option):
                witness.accuse(f"{value!r} is not a value of {option.get('id')!r}", line)
            elif option.get("type") == "boolean" and not isinstance(value, bool):
                why = f"the value of {option.get('id')!r} is {value!r}, neither true nor false"
                witness.accuse(why, line)


@RULES.observer(
    "options.boolean-offered",
    MUST,
    RuleSource(OPTIONS, "Boolean Config Options"),
    "the agent sent no config options to a client without boolean options",
)
def boolean_offered(record: Record, witness: Witness) -> None:
    """Boolean options go only to clients that offer them."""
    for line, options in _options(record):
        if not has_capability(record.offers, "session", "configOptions", "boolean"):
            witness.saw()
            for option in options:
                if option.get("type") == "boolean":
                    witness.accuse(f"{option.get('id')!r} is a boolean option", line)


CATEGORIES = {"mode", "model", "model_config", "thought_level"}


@RULES.observer(
    "options.categories",
    MUST,
    RuleSource(OPTIONS, "Option Categories"),
    "no config option has a category",
)
def categories(record: Record, witness: Witness) -> None:
    """Custom categories begin with an underscore."""
    for line, options in _options(record):
        for option in options:
            category = option.get("category")
            if isinstance(category, str):
                is_known = category in CATEGORIES or category.startswith("_")
                witness.check(is_known, f"the category {category!r} does not", line)


@RULES.observer(
    "options.and-modes",
    SHOULD,
    BESIDE_MODES,
    "the agent has no config option of the category `mode`",
)
def and_modes(record: Record, witness: Witness) -> None:
    """An agent with a config option for the mode also has modes."""
    for exchange in record.exchanges("client", "session/new"):
        options = objects(exchange.result.get("configOptions"))
        if "mode" in [it.get("category") for it in options]:
            has_modes = isinstance(exchange.result.get("modes"), dict)
            witness.check(has_modes, "the agent has no modes", *exchange.lines)


@RULES.overview(
    "options.in-step",
    SHOULD,
    BESIDE_MODES,
    "the agent does not have both an option for the mode and modes",
)
def in_step(records: Sequence[Record], witness: Witness) -> None:
    """The mode's option and the current mode agree."""
    for record in records:
        for exchange in record.exchanges("client", *OPENING):
            modes = exchange.result.get("modes")
            if isinstance(modes, dict):
                for option in _options_for_mode(exchange.result):
                    is_same = option.get("currentValue") == modes.get("currentModeId")
                    witness.check(is_same, "the option and the mode differ", *exchange.lines)
    for report in _mode_reports(records):
        exchange = report.exchange
        if exchange.asked.method != SET_OPTION or report.before is None:
            continue
        for option in _options_for_mode(exchange.result):
            if option.get("id") != exchange.asked.params.get("configId"):
                why = f"the mode is {report.before!r}, but the option has another value"
                is_same = option.get("currentValue") == report.before
                witness.check(is_same, why, *report.since, *exchange.lines)


def _options_for_mode(result: Json) -> list[Json]:
    """Return the config options of the category `mode` in an answer."""
    return [it for it in objects(result.get("configOptions")) if it.get("category") == "mode"]


class ModeReport(Struct, frozen=True):
    """An answer about a session, and the session's mode when the request was sent.

    `before` is the mode, None if it was not known; the lines `since` show it.
    """

    exchange: Exchange
    before: object
    since: tuple[WireLine, ...]


def _mode_reports(records: Sequence[Record]) -> Iterator[ModeReport]:
    """Yield each answer with a session's mode or its options, in the order of time.

    The mode is set by requests and by `current_mode_update`; a session outlives its process.
    """
    known: dict[object, tuple[object, tuple[WireLine, ...]]] = {}
    names: dict[object, object] = {}
    for line, exchange in _in_time(records, *OPENING, "session/set_mode", SET_OPTION):
        if exchange is None:
            if line.update_kind == "current_mode_update":
                known[line.session_id] = line.update.get("currentModeId"), (line,)
            continue
        asked, result = exchange.asked, exchange.result
        id = exchange.session_id
        if asked.method == "session/new":
            known.pop(id, None)
        mode, since = known.get(id, (None, ()))
        is_older = all(it.at < asked.at for it in since)
        yield ModeReport(exchange, mode if is_older else None, since)
        for option in _options_for_mode(result):
            names[id] = option.get("id")
        if asked.method == "session/set_mode":
            known[id] = asked.params.get("modeId"), exchange.lines
        elif asked.method == SET_OPTION:
            if asked.params.get("configId") == names.get(id):
                known[id] = asked.params.get("value"), exchange.lines
        elif isinstance(modes := result.get("modes"), dict):
            known[id] = modes.get("currentModeId"), exchange.lines


@RULES.overview(
    "modes.kept",
    EXPECTED,
    RuleSource(MODES, "Initial state"),
    "no session with a mode was reopened",
    over=("resume.folder", "load.links"),
)
def modes_kept(records: Sequence[Record], witness: Witness) -> None:
    """A reopened session is in the mode in which it was left."""
    for report in _mode_reports(records):
        exchange = report.exchange
        if report.before is None or exchange.asked.method not in REOPENING:
            continue
        modes = exchange.result.get("modes")
        if isinstance(modes, dict):
            now = modes.get("currentModeId")
        else:
            values = (it.get("currentValue") for it in _options_for_mode(exchange.result))
            now = next(values, None)
        state = f"is in {now!r}" if now else "has no modes"
        why = f"the session was left in {report.before!r}, but {state}"
        witness.check(now == report.before, why, *report.since, *exchange.lines)


async def _with_options(stage: Stage) -> tuple[Dialogue, CheckedSession, list[Json]]:
    """Make a session with options in the main process; return also the options as received."""
    dialogue, session = await stage.session_after(plain_session)
    options = objects(session.answer.result.get("configOptions"))
    if not options:
        raise NotObservable(NO_OPTIONS)
    return dialogue, session, options


async def set_to(dialogue: Dialogue, session: CheckedSession, option: Json, value: object) -> Call:
    """Ask for another value of an option, which need not exist; return the answer."""
    kind = {"type": "boolean"} if option.get("type") == "boolean" else {}
    params = {"sessionId": session.id, "configId": option.get("id"), "value": value, **kind}
    return await dialogue.ask(SET_OPTION, params)


async def option_set(stage: Stage) -> tuple[Call, list[Json], str, str]:
    """Change the value of an option: return the answer, all options, the id, the value."""
    dialogue, session, options = await _with_options(stage)
    option, value = _other_value(options)
    answer = await set_to(dialogue, session, option, value)
    return answer, options, str(option.get("id")), value


def _other_value(options: list[Json]) -> tuple[Json, str]:
    """Return an option, and a value that it does not have now; raises NotObservable."""
    for option in options:
        if option.get("type") == "select" and (others := other_values(option)):
            return option, others[0]
    raise NotObservable("no option has a second value")


@RULES.case("options.set", MUST, SETTING)
async def set_option(stage: Stage) -> None:
    """A config option can be given another value."""
    answer, _, id, value = await stage.judge(option_set)
    answer.require_result()
    for option in objects(answer.result.get("configOptions")):
        if option.get("id") == id:
            if option.get("currentValue") != value:
                raise Violation(f"{id!r} does not have the new value {value!r}", *answer.lines)
            return
    raise Violation(f"{id!r} is not in the answer", *answer.lines)


@RULES.case("options.in-turn", MUST, SETTING)
async def option_in_turn(stage: Stage) -> None:
    """A config option can be set while a turn is running."""
    await stage.need(plain_turn)
    dialogue, session, options = await _with_options(stage)
    option, value = _other_value(options)
    async with long_turn(stage, dialogue, session) as call:
        answer = await set_to(dialogue, session, option, value)
    await _is_taken_in_turn(dialogue, call, answer)


@RULES.case("options.complete", MUST, RuleSource(OPTIONS, "From the Client"))
async def complete(stage: Stage) -> None:
    """The answer to setting an option contains all options."""
    answer, options, id, _ = await stage.need(option_set)
    if answer.is_refused:
        raise NotObservable("setting an option was refused", *answer.lines)
    ids = {it.get("id") for it in objects(answer.result.get("configOptions"))}
    if ids == {id} and len(options) > 1:
        raise Violation("the answer contains only the option that was set", *answer.lines)
    if not ids:
        raise Violation("the answer contains no options", *answer.lines)


@RULES.also("options.complete", over=CHOICES)
@one_by_one
def complete_updates(record: Record, witness: Witness) -> None:
    known: dict[object, int] = {}
    for exchange in record.exchanges("client", *OPENING):
        known[exchange.session_id] = len(objects(exchange.result.get("configOptions")))
    for line in record.updates():
        options = objects(line.update.get("configOptions"))
        is_change = line.update_kind == "config_option_update"
        if is_change and len(options) == 1 and known.get(line.session_id, 0) > 1:
            witness.accuse("the update contains only the option that changed", line)


@RULES.case("options.own-session", MUST, RuleSource("Session Setup", ""))
async def own_session(stage: Stage) -> None:
    """A config option is set in one session only."""
    dialogue, first, options = await _with_options(stage)
    other = await stage.new_session(dialogue)
    selects = [option for option in options if option.get("type") == "select"]
    if len(selects) < 2:
        raise NotObservable("the agent has fewer than two options with a list of values")

    is_seen = False
    for changed, untouched in (selects[:2], selects[1::-1]):
        if not (values := other_values(changed)):
            continue
        is_seen = True
        (await set_to(dialogue, first, changed, values[0])).require_result()
        answer = await set_to(dialogue, other, untouched, untouched.get("currentValue"))
        for option in objects(answer.result.get("configOptions")):
            if option.get("id") == changed.get("id") and option.get("currentValue") == values[0]:
                raise Violation(f"{option.get('id')!r} was set in another session", *answer.lines)
    if not is_seen:
        raise NotObservable("no option has a second value")


@RULES.overview(
    "options.kept",
    EXPECTED,
    SETTING,
    "no session with options was reopened",
    over=("resume.folder", "load.links"),
)
def options_kept(records: Sequence[Record], witness: Witness) -> None:
    """A config option keeps its value when others are set, and after reopening."""
    held: dict[object, _HeldOptions] = {}
    last_update: dict[object, float] = {}
    for line in (line for record in records for line in record.updates()):
        if "configOptions" in line.update:
            last_update[line.session_id] = max(last_update.get(line.session_id, 0.0), line.at)
    # Where there are modes, other rules are about the option for the mode.
    has_modes = any(True for record in records for _ in _modes(record))
    for line, exchange in _in_time(records, *OPENING, SET_OPTION, "session/set_mode"):
        if exchange is None:
            changed = _values(line.update, has_modes)
            if changed and (known := held.get(line.session_id)) is not None:
                held[line.session_id] = _HeldOptions({**known.values, **changed}, (line,))
            continue
        asked, id = exchange.asked, exchange.session_id
        if asked.method == "session/set_mode":
            held.pop(id, None)  # a mode may have a model of its own
            continue
        if asked.method == "session/new":
            held.pop(id, None)  # some count their sessions from 0 in every process
        answer = exchange.answer
        if asked.method in OPENING and answer and answer.message.get("result") is None:
            continue  # as in the page's example of session/load: it reports no options
        values = _values(exchange.result, has_modes)
        before = held.get(id)
        if before is not None and all(it.at < asked.at for it in before.since):
            if asked.method == SET_OPTION:
                name = str(asked.params.get("configId"))
                is_unchanged = before.values.get(name) == asked.params.get("value")
            else:  # the agent may send the options in an update instead of the answer
                is_unchanged = bool(values) or last_update.get(id, 0.0) <= asked.at
            if is_unchanged:
                witness.saw()
                _compare_values(before, values, exchange, witness)
        if values:
            held[id] = _HeldOptions(values, exchange.lines)


class _HeldOptions(Struct, frozen=True):
    """The values of a session's options, as the lines `since` say."""

    values: Json
    since: tuple[WireLine, ...]


def _values(answer: Json, has_modes: bool) -> Json:
    """Return the values by id; without that for the mode where other rules are about it."""
    return {
        str(it.get("id")): it.get("currentValue")
        for it in objects(answer.get("configOptions"))
        if not (has_modes and it.get("category") == "mode")
    }


def _compare_values(before: _HeldOptions, now: Json, exchange: Exchange, witness: Witness) -> None:
    for id, value in before.values.items():
        # Some clients are not shown booleans.
        if now.get(id) != value and (id in now or not isinstance(value, bool)):
            words = f"is {now[id]!r}" if id in now else "is missing"
            witness.accuse(f"{id!r} was {value!r}, but {words}", *before.since, *exchange.lines)
            return


def _in_time(
    records: Sequence[Record], *methods: str
) -> Iterator[tuple[WireLine, Exchange | None]]:
    """Yield the agent's updates and its answers with a result, these with their exchange."""
    answers = {
        exchange.answer: exchange
        for record in records
        for exchange in record.exchanges("client", *methods)
        if exchange.answer is not None and "result" in exchange.answer.message
    }
    for line in in_time(records):
        if line in answers or (line.by == "agent" and line.update_kind):
            yield line, answers.get(line)


@RULES.case("options.unknown", EXPECTED, SETTING)
async def unknown_option(stage: Stage) -> None:
    """An unknown option is refused."""
    dialogue, session, _ = await _with_options(stage)
    answer = await set_to(dialogue, session, {"id": "check-no-such-option"}, "any")
    answer.require_error("the agent accepted an unknown option")


@RULES.case("options.unknown-value", EXPECTED, SETTING)
async def unknown_value(stage: Stage) -> None:
    """A value that the option lacks is refused, and changes nothing."""
    dialogue, session, options = await _with_options(stage)
    selects = [option for option in options if option.get("type") == "select"]
    if not selects:
        raise NotObservable("the agent has no option with a list of values")

    async def refuse() -> Call:
        answer = await set_to(dialogue, session, selects[0], "check-no-value")
        answer.require_error("the agent accepted an unknown value")
        return answer

    await _changes_nothing(dialogue, session, refuse)


async def _changes_nothing(
    dialogue: Dialogue, session: CheckedSession, refuse: Callable[[], Awaitable[Call]]
) -> None:
    """Have something refused, and raise Violation if an option has another value then.

    The answer to an option that is set to its own value tells those of all others.
    """
    options = objects(session.answer.result.get("configOptions"))
    selects = [option for option in options if option.get("type") == "select"][:2]
    before: Json = {}
    for option in (*selects, *selects[1:], *selects[:1]):
        refused = await refuse() if before else None
        value = before.get(str(option.get("id")), option.get("currentValue"))
        told = await set_to(dialogue, session, option, value)
        now = _values(told.result, has_modes=False)
        for id in before.keys() & now.keys():
            if refused is not None and now[id] != before[id]:
                why = f"{id!r} was {before[id]!r}, and is {now[id]!r} since a request was refused"
                raise Violation(why, *refused.lines, *told.lines)
        before = now
    if not before:
        await refuse()


@RULES.case("options.set-boolean", MUST, RuleSource(OPTIONS, "From the Client"))
async def set_boolean(stage: Stage) -> None:
    """Clients that offer boolean options can set them."""
    dialogue, session = await stage.full_session_after(plain_session)
    for option in objects(session.answer.result.get("configOptions")):
        if option.get("type") == "boolean":
            value = option.get("currentValue") is False
            (await set_to(dialogue, session, option, value)).require_result()
            return
    raise NotObservable("the agent has no boolean option")


# -- commands -------------------------------------------------------------------------------

NO_COMMANDS = "the agent reported no commands"
COMMANDS = RuleSource("Slash Commands", "AvailableCommand")


@RULES.observer("commands.names", EXPECTED, COMMANDS, NO_COMMANDS)
def command_names(record: Record, witness: Witness) -> None:
    """Command names are unique, without a leading slash or white space."""
    for line in record.updates():
        names = [str(it.get("name")) for it in objects(line.update.get("availableCommands"))]
        if names:
            witness.saw()
        for name in names:
            if not name or name.startswith("/") or len(name.split()) != 1:
                witness.accuse(f"a command is named {name!r}", line)
        if (again := twice(names)) is not None:
            witness.accuse(f"two commands are named {again!r}", line)


RULES.unseen(
    "commands.run",
    "A prompt that begins with the name of a command runs it.",
    EXPECTED,
    RuleSource("Slash Commands", "Running commands"),
    "the check cannot know what a command does, and it may not be possible to undo it",
)
RULES.unseen(
    "options.priority",
    "More important options come first.",
    SHOULD,
    RuleSource(OPTIONS, "Option Ordering"),
    "only the agent knows which options are more important",
)
