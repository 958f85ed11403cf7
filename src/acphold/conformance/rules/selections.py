"""The rules for a person's choices in a session: modes, config options, commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acphold.conformance.catalogue import EXPECTED, MUST, SHOULD, Rules, Witness
from acphold.conformance.dialogue import Answer, Dialogue
from acphold.conformance.record import Json, Line, Record, objects, twice
from acphold.conformance.rules.new_sessions import plain_session
from acphold.conformance.stage import Session, Stage
from acphold.conformance.verdicts import NotObservable, Source, Violation
from acphold.schema.update_kinds import offered

RULES = Rules()

MODES = "Session Modes"
OPTIONS = "Session Config Options"
SETTING = Source(OPTIONS, "Setting a Config Option")
NO_MODES = "the agent has no modes"
NO_OPTIONS = "the agent has no config options"
OPENING = ("session/new", "session/load", "session/resume")


def _modes(records: Sequence[Record]) -> Iterator[tuple[Record, Line, Json]]:
    for record in records:
        for exchange in record.exchanges("client", *OPENING):
            modes = exchange.result.get("modes")
            if exchange.answer is not None and isinstance(modes, dict):
                yield record, exchange.answer, modes


def _available(modes: Json) -> list[str]:
    """Return the ids of the available modes."""
    return [str(it.get("id")) for it in objects(modes.get("availableModes"))]


@RULES.observer(
    "modes.current",
    "The current mode is one of those that are available.",
    MUST,
    Source(MODES, "Initial state"),
    unless=NO_MODES,
)
def current_mode(records: Sequence[Record], witness: Witness) -> None:
    for _, line, modes in _modes(records):
        witness.saw()
        if modes.get("currentModeId") not in _available(modes):
            witness.accuse(f"{modes.get('currentModeId')!r} is not", line)


@RULES.observer(
    "modes.unique-ids",
    "Each mode has an id of its own.",
    MUST,
    Source(MODES, "SessionMode"),
    unless=NO_MODES,
)
def unique_modes(records: Sequence[Record], witness: Witness) -> None:
    for _, line, modes in _modes(records):
        witness.saw()
        if (id := twice(_available(modes))) is not None:
            witness.accuse(f"two modes are {id!r}", line)


@RULES.observer(
    "modes.known-updates",
    "A mode that is told to be the current one is one of those that are available.",
    MUST,
    Source(MODES, "From the Agent"),
    unless="the agent told no change of mode",
)
def known_updates(records: Sequence[Record], witness: Witness) -> None:
    for record, known in _modes_of_sessions(records):
        for line in record.updates():
            update = line.update
            if update.get("sessionUpdate") == "current_mode_update" and line.session_id in known:
                witness.saw()
                if update.get("currentModeId") not in known[line.session_id]:
                    witness.accuse(f"{update.get('currentModeId')!r} is not", line)


def _modes_of_sessions(
    records: Sequence[Record],
) -> Iterator[tuple[Record, dict[str | None, list[str]]]]:
    for record in records:
        known: dict[str | None, list[str]] = {}
        for exchange in record.exchanges("client", *OPENING):
            if isinstance(modes := exchange.result.get("modes"), dict):
                id = exchange.result.get("sessionId") or exchange.request.session_id
                known[id] = _available(modes)
        yield record, known


async def _with_modes(stage: Stage) -> tuple[Dialogue, Session, Json]:
    """Make a session with modes in the main process; return also the modes as received."""
    await stage.given(plain_session)
    dialogue = await stage.main()
    session = await stage.new_session(dialogue)
    modes = session.answer.result.get("modes")
    if not isinstance(modes, dict) or not _available(modes):
        raise NotObservable(NO_MODES)
    return dialogue, session, modes


@RULES.case(
    "modes.set",
    "A mode can be chosen, and the agent takes it.",
    MUST,
    Source(MODES, "From the Client"),
)
async def set_mode(stage: Stage) -> None:
    dialogue, session, modes = await _with_modes(stage)
    others = [id for id in _available(modes) if id != modes.get("currentModeId")]
    if not others:
        raise NotObservable("the agent has one mode only")
    answer = await dialogue.ask("session/set_mode", {"sessionId": session.id, "modeId": others[0]})
    answer.succeeded()


@RULES.case(
    "modes.unknown",
    "A mode that is not available is refused.",
    EXPECTED,
    Source(MODES, "From the Client"),
)
async def unknown_mode(stage: Stage) -> None:
    dialogue, session, _ = await _with_modes(stage)
    params = {"sessionId": session.id, "modeId": "check-no-such-mode"}
    answer = await dialogue.ask("session/set_mode", params)
    answer.refused("it was taken")


# -- config options -------------------------------------------------------------------------


def _options(records: Sequence[Record]) -> Iterator[tuple[Record, Line, list[Json]]]:
    """Yield every list of options the agent sent, with its line."""
    for record in records:
        for exchange in record.exchanges("client", *OPENING, "session/set_config_option"):
            found = objects(exchange.result.get("configOptions"))
            if exchange.answer is not None and found:
                yield record, exchange.answer, found
        for line in record.updates():
            if found := objects(line.update.get("configOptions")):
                yield record, line, found


def _values(option: Json) -> list[str]:
    """Return the values of a select, in groups or not."""
    found: list[str] = []
    for entry in objects(option.get("options")):
        inner = entry.get("options")
        members = objects(inner) if isinstance(inner, list) else [entry]
        found += [str(it.get("value")) for it in members]
    return found


@RULES.observer(
    "options.unique-ids",
    "Each config option has an id of its own, and each of its values.",
    MUST,
    Source(OPTIONS, "ConfigOption"),
    unless=NO_OPTIONS,
)
def unique_options(records: Sequence[Record], witness: Witness) -> None:
    for _, line, options in _options(records):
        witness.saw()
        if (id := twice(str(it.get("id")) for it in options)) is not None:
            witness.accuse(f"two options are {id!r}", line)
        for option in options:
            if (value := twice(_values(option))) is not None:
                witness.accuse(f"two values of {option.get('id')!r} are {value!r}", line)


@RULES.observer(
    "options.current",
    "Each config option has a value, which is one of its values.",
    MUST,
    Source(OPTIONS, "Default Values and Graceful Degradation"),
    unless=NO_OPTIONS,
)
def current_values(records: Sequence[Record], witness: Witness) -> None:
    for _, line, options in _options(records):
        witness.saw()
        for option in options:
            value = option.get("currentValue")
            if option.get("type") == "select" and value not in _values(option):
                witness.accuse(f"{value!r} is no value of {option.get('id')!r}", line)
            elif option.get("type") == "boolean" and not isinstance(value, bool):
                witness.accuse(f"{value!r} is neither true nor false", line)


@RULES.observer(
    "options.boolean-offered",
    "Options of type `boolean` are sent only to clients that offer to show them.",
    MUST,
    Source(OPTIONS, "Boolean Config Options"),
    unless="the agent sent no config options to a client that does not",
)
def boolean_offered(records: Sequence[Record], witness: Witness) -> None:
    for record, line, options in _options(records):
        if not offered(record.offers, "session", "configOptions", "boolean"):
            witness.saw()
            for option in options:
                if option.get("type") == "boolean":
                    witness.accuse(f"{option.get('id')!r} is one", line)


CATEGORIES = {"mode", "model", "model_config", "thought_level"}


@RULES.observer(
    "options.categories",
    "Categories that the protocol does not have begin with an underscore.",
    MUST,
    Source(OPTIONS, "Option Categories"),
    unless="no config option has a category",
)
def categories(records: Sequence[Record], witness: Witness) -> None:
    for _, line, options in _options(records):
        for option in options:
            category = option.get("category")
            if isinstance(category, str):
                witness.saw()
                if category not in CATEGORIES and not category.startswith("_"):
                    witness.accuse(f"{category!r} does not", line)


@RULES.observer(
    "options.and-modes",
    "An agent with an option for the mode has modes as well, for clients without options.",
    SHOULD,
    Source(OPTIONS, "Relationship to Session Modes"),
    unless="the agent has no config option of the category `mode`",
)
def and_modes(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        for exchange in record.exchanges("client", "session/new"):
            options = objects(exchange.result.get("configOptions"))
            if "mode" in [it.get("category") for it in options]:
                witness.saw()
                if not isinstance(exchange.result.get("modes"), dict):
                    witness.accuse("there are no modes", *exchange.lines)


@RULES.observer(
    "options.in-step",
    "The option for the mode and the current mode say the same.",
    SHOULD,
    Source(OPTIONS, "Relationship to Session Modes"),
    unless="the agent does not have both",
)
def in_step(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        for exchange in record.exchanges("client", *OPENING):
            modes = exchange.result.get("modes")
            if not isinstance(modes, dict):
                continue
            for option in objects(exchange.result.get("configOptions")):
                if option.get("category") == "mode":
                    witness.saw()
                    if option.get("currentValue") != modes.get("currentModeId"):
                        witness.accuse("they do not", *exchange.lines)


async def _with_options(stage: Stage) -> tuple[Dialogue, Session, list[Json]]:
    """Make a session with options in the main process; return also the options as received."""
    await stage.given(plain_session)
    dialogue = await stage.main()
    session = await stage.new_session(dialogue)
    options = objects(session.answer.result.get("configOptions"))
    if not options:
        raise NotObservable(NO_OPTIONS)
    return dialogue, session, options


async def option_set(stage: Stage) -> tuple[Answer, list[Json], str, str]:
    """Change the value of an option: return the answer, all options, the id, the value."""
    dialogue, session, options = await _with_options(stage)
    for option in options:
        others = [value for value in _values(option) if value != option.get("currentValue")]
        if option.get("type") == "select" and others:
            id = str(option.get("id"))
            params = {"sessionId": session.id, "configId": id, "value": others[0]}
            answer = await dialogue.ask("session/set_config_option", params)
            return answer, options, id, others[0]
    raise NotObservable("no option has another value")


@RULES.case("options.set", "A config option can be given another value.", MUST, SETTING)
async def set_option(stage: Stage) -> None:
    answer, _, id, value = await stage.judge(option_set)
    answer.succeeded()
    for option in objects(answer.result.get("configOptions")):
        if option.get("id") == id:
            if option.get("currentValue") != value:
                raise Violation(f"{id!r} does not have the value", *answer.lines)
            return
    raise Violation(f"{id!r} is not in the answer", *answer.lines)


@RULES.case(
    "options.complete",
    "Setting an option is answered with all of them.",
    MUST,
    Source(OPTIONS, "From the Client"),
)
async def complete(stage: Stage) -> None:
    answer, options, id, _ = await stage.given(option_set)
    if answer.error is not None:
        raise NotObservable("setting an option was refused", *answer.lines)
    told = {it.get("id") for it in objects(answer.result.get("configOptions"))}
    if told == {id} and len(options) > 1:
        raise Violation("only the one that was set is there", *answer.lines)
    if not told:
        raise Violation("there are none", *answer.lines)


@RULES.case(
    "options.own-session",
    "A config option that is set in one session stays as it was in another.",
    MUST,
    Source("Session Setup", ""),
)
async def own_session(stage: Stage) -> None:
    dialogue, first, options = await _with_options(stage)
    other = await stage.new_session(dialogue)
    selects = [option for option in options if option.get("type") == "select"]
    if len(selects) < 2:
        raise NotObservable("the agent has one option only")
    changed, untouched = selects[:2]
    values = [it for it in _values(changed) if it != changed.get("currentValue")]
    if not values:
        raise NotObservable("the option has one value only")

    async def answer_to(session: Session, option: Json, value: object) -> Answer:
        params = {"sessionId": session.id, "configId": option.get("id"), "value": value}
        return await dialogue.ask("session/set_config_option", params)

    (await answer_to(first, changed, values[0])).succeeded()
    answer = await answer_to(other, untouched, untouched.get("currentValue"))
    for option in objects(answer.result.get("configOptions")):
        if option.get("id") == changed.get("id") and option.get("currentValue") == values[0]:
            raise Violation(f"{option.get('id')!r} was set in another session", *answer.lines)


@RULES.case("options.unknown", "An option that does not exist is refused.", EXPECTED, SETTING)
async def unknown_option(stage: Stage) -> None:
    dialogue, session, _ = await _with_options(stage)
    params = {"sessionId": session.id, "configId": "check-no-such-option", "value": "any"}
    answer = await dialogue.ask("session/set_config_option", params)
    answer.refused("it was taken")


@RULES.case(
    "options.unknown-value", "A value that an option does not have is refused.", EXPECTED, SETTING
)
async def unknown_value(stage: Stage) -> None:
    dialogue, session, options = await _with_options(stage)
    selects = [option for option in options if option.get("type") == "select"]
    if not selects:
        raise NotObservable("the agent has no option with a list of values")
    params = {"sessionId": session.id, "configId": selects[0].get("id"), "value": "check-no-value"}
    answer = await dialogue.ask("session/set_config_option", params)
    answer.refused("it was taken")


@RULES.case(
    "options.set-boolean",
    "A boolean option can be switched, where the client offers to show it.",
    MUST,
    Source(OPTIONS, "From the Client"),
)
async def set_boolean(stage: Stage) -> None:
    await stage.given(plain_session)
    dialogue = await stage.equipped()
    session = await stage.new_session(dialogue)
    for option in objects(session.answer.result.get("configOptions")):
        if option.get("type") == "boolean":
            value = option.get("currentValue") is False
            params = {"sessionId": session.id, "configId": option.get("id"), "type": "boolean"}
            answer = await dialogue.ask("session/set_config_option", {**params, "value": value})
            answer.succeeded()
            return
    raise NotObservable("the agent has no boolean option")


# -- commands -------------------------------------------------------------------------------

NO_COMMANDS = "the agent told no commands"
COMMANDS = Source("Slash Commands", "AvailableCommand")


def _commands(records: Sequence[Record]) -> Iterator[tuple[Line, list[Json]]]:
    for record in records:
        for line in record.updates():
            if found := objects(line.update.get("availableCommands")):
                yield line, found


@RULES.observer(
    "commands.names",
    "A command is named without a slash and without white space, each once.",
    EXPECTED,
    COMMANDS,
    unless=NO_COMMANDS,
)
def command_names(records: Sequence[Record], witness: Witness) -> None:
    for line, commands in _commands(records):
        witness.saw()
        names = [str(it.get("name")) for it in commands]
        for name in names:
            if not name or name.startswith("/") or len(name.split()) != 1:
                witness.accuse(f"one is named {name!r}", line)
        if (again := twice(names)) is not None:
            witness.accuse(f"two are named {again!r}", line)


RULES.unseen(
    "commands.run",
    "A prompt that begins with the name of a command runs it.",
    EXPECTED,
    Source("Slash Commands", "Running commands"),
    "what a command does is not known here, and it may be something that cannot be undone",
)
RULES.unseen(
    "options.priority",
    "Options of more importance come first.",
    SHOULD,
    Source(OPTIONS, "Option Ordering"),
    "what is more important is the agent's to know",
)
