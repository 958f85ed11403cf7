"""The rules for clients, as an agent can see them: for `acphold check --client`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acphold.conformance.catalogue import EXPECTED, MUST, SHOULD, Rules, Witness
from acphold.conformance.grammar import Message, custom_member, odd_kind, problem, spoken
from acphold.conformance.record import Json, Line, Record, calls, id_of, objects, said, sessions_in
from acphold.conformance.verdicts import Source
from acphold.schema import AGENT_METHODS, PROTOCOL_METHODS
from acphold.schema.update_kinds import offered

RULES = Rules()

INITIALIZATION = Source("Initialization", "")
SETUP = "Session Setup"
STDIO = Source("Transports", "stdio")
SILENT = "the client said nothing"

# -- lines and messages -----------------------------------------------------------------------


@RULES.observer(
    "client.messages",
    "Each line is one whole message in UTF-8, and nothing else is written.",
    MUST,
    STDIO,
    unless=SILENT,
)
def messages(records: Sequence[Record], witness: Witness) -> None:
    for line in said(records, "client"):
        witness.saw()
        if line.problem:
            witness.accuse(line.problem, line)
        elif line.message.get("jsonrpc") != "2.0":
            witness.accuse('it does not say `"jsonrpc": "2.0"`', line)


@RULES.observer(
    "client.schema",
    "All that the client says fits the schema.",
    MUST,
    Source("Schema", ""),
    unless=SILENT,
)
def schema(records: Sequence[Record], witness: Witness) -> None:
    for message in _known(records):
        witness.saw()
        if wrong := problem(message):
            witness.accuse(f"{message.method}: {wrong}", message.line)


@RULES.observer(
    "client.members",
    "Custom members stand in `_meta`, not beside those of the protocol.",
    MUST,
    Source("Extensibility", "The `_meta` Field"),
    unless=SILENT,
)
def members(records: Sequence[Record], witness: Witness) -> None:
    for message in _known(records):
        witness.saw()
        if path := custom_member(message):
            witness.accuse(f"{path} is no part of the protocol", message.line)


def _known(records: Sequence[Record]) -> Iterator[Message]:
    for record in records:
        yield from spoken(record, "client")


@RULES.observer(
    "client.methods",
    "Methods that the protocol does not have begin with an underscore.",
    MUST,
    Source("Extensibility", "Extension Methods"),
    unless=SILENT,
)
def methods(records: Sequence[Record], witness: Witness) -> None:
    for line in said(records, "client"):
        if line.method is not None:
            witness.saw()
            known = line.method in AGENT_METHODS or line.method in PROTOCOL_METHODS
            if not known and not line.method.startswith("_"):
                witness.accuse(f"{line.method!r} does not", line)


@RULES.observer(
    "client.answers",
    "Each request of the agent is answered once, with a result or an error.",
    MUST,
    Source("Overview", "Error Handling"),
    unless="the agent asked nothing",
)
def answers(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        for exchange in record.exchanges("agent", *UNATTENDED):
            if exchange.answer is None and _was_given_up(record, exchange.request):
                witness.accuse("it was not answered while its turn ran", exchange.request)
        asked = {id_of(line) for line in record.by("agent") if line.is_request}
        answered: dict[bytes, Line] = {}
        for line in record.by("client"):
            if not line.is_response:
                continue
            witness.saw()
            if id_of(line) not in asked:
                witness.accuse("no request has this id", line)
            elif id_of(line) in answered:
                witness.accuse("the second answer to one request", answered[id_of(line)], line)
            elif ("result" in line.message) == ("error" in line.message):
                witness.accuse("it has both a result and an error, or none", line)
            answered[id_of(line)] = line


UNATTENDED = (
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/kill",
    "terminal/release",
)
"""Requests a client answers by itself; a person, or a command, may take any time."""


def _was_given_up(record: Record, asked: Line) -> bool:
    """Return True if a question was still open when its turn was over."""
    return any(
        it.request.session_id == asked.session_id
        and it.answer is not None
        and it.request.number < asked.number < it.answer.number
        for it in record.exchanges("client", "session/prompt")
    )


@RULES.observer(
    "client.kinds",
    "What asks for an answer has an id, and a notification has none.",
    MUST,
    Source("Overview", "Communication Model"),
    unless=SILENT,
)
def kinds(records: Sequence[Record], witness: Witness) -> None:
    for line in said(records, "client"):
        if line.method is not None:
            witness.saw()
            if wrong := odd_kind(line):
                witness.accuse(wrong, line)


# -- introduction -----------------------------------------------------------------------------


@RULES.observer(
    "client.initialize-first",
    "The client introduces itself before anything else, and waits for the answer.",
    MUST,
    INITIALIZATION,
    unless=SILENT,
)
def initialize_first(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        answered = False
        for line in record.lines:
            if line.by == "agent":
                answered = answered or line.is_response
            elif line.method is not None:
                witness.saw()
                if line.method != "initialize" and not answered:
                    witness.accuse(f"{line.method} came before", line)


@RULES.observer(
    "client.info",
    "The client tells its name and version.",
    SHOULD,
    Source("Initialization", "Implementation Information"),
    unless="the client did not introduce itself",
)
def info(records: Sequence[Record], witness: Witness) -> None:
    for _, line in calls(records, "client", "initialize"):
        witness.saw()
        told = line.params.get("clientInfo")
        if not isinstance(told, dict) or not told.get("name") or not told.get("version"):
            witness.accuse("`clientInfo` lacks one of them", line)


# -- capabilities ----------------------------------------------------------------------------

NEEDS = {
    "session/load": ("loadSession",),
    "session/list": ("sessionCapabilities", "list"),
    "session/resume": ("sessionCapabilities", "resume"),
    "session/close": ("sessionCapabilities", "close"),
    "session/delete": ("sessionCapabilities", "delete"),
    "logout": ("auth", "logout"),
}
"""The capability that an agent has to advertise for each method."""


def _can(record: Record) -> Json:
    """Return the capabilities the agent advertised."""
    for exchange in record.exchanges("client", "initialize"):
        can = exchange.result.get("agentCapabilities")
        return can if isinstance(can, dict) else {}
    return {}


@RULES.observer(
    "client.advertised-methods",
    "Methods that the agent did not advertise are not called.",
    MUST,
    Source(SETUP, "Checking Support"),
    unless=SILENT,
)
def advertised_methods(records: Sequence[Record], witness: Witness) -> None:
    for line_record in records:
        can = _can(line_record)
        for line in line_record.by("client"):
            path = NEEDS.get(line.method or "")
            if line.method is not None:
                witness.saw()
            if path is not None and not offered(can, *path):
                witness.accuse(f"{'.'.join(path)} was not advertised", line)


SETUPS = ("session/new", "session/load", "session/resume")
NO_SESSION = "the client opened no session"


@RULES.observer(
    "client.advertised-servers",
    "MCP servers over HTTP and SSE are named only where the agent advertises them.",
    MUST,
    Source(SETUP, "Checking Transport Support"),
    unless=NO_SESSION,
)
def advertised_servers(records: Sequence[Record], witness: Witness) -> None:
    for record, line in calls(records, "client", *SETUPS):
        witness.saw()
        for server in _servers(line):
            kind = server.get("type")
            if kind in ("http", "sse") and not offered(_can(record), "mcpCapabilities", kind):
                witness.accuse(f"mcpCapabilities.{kind} was not advertised", line)


def _servers(line: Line) -> list[Json]:
    return objects(line.params.get("mcpServers"))


@RULES.observer(
    "client.advertised-directories",
    "Additional folders are named only where the agent advertises them.",
    MUST,
    Source(SETUP, "Additional Workspace Roots"),
    unless=NO_SESSION,
)
def advertised_directories(records: Sequence[Record], witness: Witness) -> None:
    for record, line in calls(records, "client", *SETUPS):
        witness.saw()
        advertised = offered(_can(record), "sessionCapabilities", "additionalDirectories")
        if line.params.get("additionalDirectories") and not advertised:
            witness.accuse("additionalDirectories was not advertised", line)


CONTENT = {"image": "image", "audio": "audio", "resource": "embeddedContext"}


@RULES.observer(
    "client.advertised-content",
    "Prompts hold images, sounds and files only where the agent advertises them.",
    MUST,
    Source("Prompt Turn", "1. User Message"),
    unless="the client sent no prompt",
)
def advertised_content(records: Sequence[Record], witness: Witness) -> None:
    for record, line in calls(records, "client", "session/prompt"):
        witness.saw()
        for block in objects(line.params.get("prompt")):
            name = CONTENT.get(str(block.get("type")))
            if name is not None and not offered(_can(record), "promptCapabilities", name):
                witness.accuse(f"promptCapabilities.{name} was not advertised", line)


# -- sessions ---------------------------------------------------------------------------------


@RULES.observer(
    "client.absolute",
    "Folders, and the commands of MCP servers, are absolute paths.",
    MUST,
    Source(SETUP, "Working Directory"),
    unless=NO_SESSION,
)
def absolute(records: Sequence[Record], witness: Witness) -> None:
    for _, line in calls(records, "client", *SETUPS, "session/list"):
        more = line.params.get("additionalDirectories")
        commands = [server["command"] for server in _servers(line) if "command" in server]
        paths = [*(more if isinstance(more, list) else ()), *commands]
        if line.params.get("cwd") is not None:
            paths.append(line.params["cwd"])
        for path in paths:
            witness.saw()
            if not isinstance(path, str) or not path.startswith("/"):
                witness.accuse(f"{path!r} is not", line)


@RULES.observer(
    "client.known-sessions",
    "The client speaks of sessions that it has from the agent.",
    MUST,
    Source(SETUP, "Session ID"),
    unless="the client spoke of no session",
)
def known_sessions(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        answers = {it.answer.number: it for it in record.exchanges("client") if it.answer}
        known: set[object] = set()
        for line in record.lines:
            if (exchange := answers.get(line.number)) is not None:
                known |= {exchange.result.get("sessionId"), exchange.request.session_id}
                known |= {entry.get("sessionId") for entry in sessions_in(exchange)}
            # A session that is opened may be known from an earlier run.
            elif line.by == "client" and line.session_id and line.method not in SETUPS:
                witness.saw()
                if line.session_id not in known:
                    witness.accuse("it has no session with this id", line)


@RULES.observer(
    "client.same-folder",
    "A session is opened again in its own folder.",
    MUST,
    Source(SETUP, "Additional Workspace Roots"),
    unless="no session was opened again whose folder is known",
)
def same_folder(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        folders: dict[object, object] = {}
        for exchange in record.exchanges("client", *SETUPS, "session/list"):
            if exchange.request.method == "session/new":
                folders[exchange.result.get("sessionId")] = exchange.request.params.get("cwd")
            folders |= {it.get("sessionId"): it.get("cwd") for it in sessions_in(exchange)}
            line = exchange.request
            if line.method in ("session/load", "session/resume") and line.session_id in folders:
                witness.saw()
                if line.params.get("cwd") != folders[line.session_id]:
                    witness.accuse(f"its folder is {folders[line.session_id]!r}", line)


@RULES.observer(
    "client.cursors",
    "Cursors come back as they were given, with the same filter.",
    MUST,
    Source("Session List", "Pagination"),
    unless="no second page was asked for",
)
def cursors(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        given: dict[object, object] = {}
        for exchange in record.exchanges("client", "session/list"):
            cursor, cwd = (exchange.request.params.get(name) for name in ("cursor", "cwd"))
            if cursor is not None:
                witness.saw()
                if cursor not in given:
                    witness.accuse("this cursor was not given", exchange.request)
                elif given[cursor] != cwd:
                    witness.accuse("this cursor is one of another filter", exchange.request)
            given[exchange.result.get("nextCursor")] = cwd


# -- turns ------------------------------------------------------------------------------------


@RULES.observer(
    "client.one-turn",
    "A session gets its next prompt when the one before is answered.",
    EXPECTED,
    Source("Prompt Turn", "Cancellation"),
    unless="the client sent no prompt",
)
def one_turn(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        last: dict[object, Line | None] = {}
        for exchange in record.exchanges("client", "session/prompt"):
            line = exchange.request
            witness.saw()
            if line.session_id in last:
                before = last[line.session_id]
                if before is None or before.number > line.number:
                    witness.accuse("the one before was not answered yet", line)
            last[line.session_id] = exchange.answer


@RULES.observer(
    "client.permission-options",
    "A permission is answered with one of its options, or `cancelled`.",
    MUST,
    Source("Tool Calls", "Requesting Permission"),
    unless="no permission was answered",
)
def permission_options(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        for exchange in record.exchanges("agent", "session/request_permission"):
            outcome = exchange.result.get("outcome")
            if not isinstance(outcome, dict):
                continue
            witness.saw()
            options = objects(exchange.request.params.get("options"))
            known = {option.get("optionId") for option in options}
            if outcome.get("outcome") == "selected" and outcome.get("optionId") not in known:
                witness.accuse(f"{outcome.get('optionId')!r} is none of them", *exchange.lines)


@RULES.observer(
    "client.permission-cancelled",
    "When a turn is cancelled, each permission that waits is answered `cancelled`.",
    MUST,
    Source("Prompt Turn", "Cancellation"),
    unless="no turn was cancelled while a permission waited",
)
def permission_cancelled(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        for exchange in record.exchanges("agent", "session/request_permission"):
            cancelled = _cancel_within(record, exchange.request, exchange.answer)
            if cancelled is None:
                continue
            witness.saw()
            outcome = exchange.result.get("outcome")
            said = outcome.get("outcome") if isinstance(outcome, dict) else None
            if said != "cancelled":
                lines = (exchange.request, cancelled, *exchange.lines[1:])
                answered = "not answered" if exchange.answer is None else f"answered {said!r}"
                witness.accuse(f"it was {answered}", *lines)


def _cancel_within(record: Record, asked: Line, answer: Line | None) -> Line | None:
    """Return the cancel of a session between a request and its answer."""
    last = len(record.lines) if answer is None else answer.number
    for line in record.lines[asked.number : last]:
        if line.method == "session/cancel" and line.session_id == asked.session_id:
            return line
    return None


# -- choices ----------------------------------------------------------------------------------


@RULES.observer(
    "client.known-choices",
    "Modes, options and values are set that the agent has.",
    MUST,
    Source("Session Modes", "From the Client"),
    unless="the client set no mode and no option",
)
def known_choices(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        for exchange in record.exchanges("client", "session/set_mode", "session/set_config_option"):
            witness.saw()
            if exchange.answer is not None and "error" in exchange.answer.message:
                witness.accuse("the agent does not have this one", *exchange.lines)


@RULES.observer(
    "client.sign-in-methods",
    "`authenticate` gets the id of a method that was advertised, and is no terminal's.",
    MUST,
    Source("Authentication", "Protocol-driven authentication"),
    unless="the client did not sign in",
)
def sign_in_methods(records: Sequence[Record], witness: Witness) -> None:
    for record in records:
        known: dict[object, object] = {}
        for exchange in record.exchanges("client", "initialize", "authenticate"):
            for method in objects(exchange.result.get("authMethods")):
                known[method.get("id")] = method.get("type")
            if exchange.request.method == "authenticate":
                witness.saw()
                method_id = exchange.request.params.get("methodId")
                if known.get(method_id, "unknown") in ("unknown", "terminal"):
                    witness.accuse(f"{method_id!r} is none of those", exchange.request)


for _id, _says, _source, _why in (
    (
        "client.marks-cancelled",
        "Tool calls that are not over are marked as cancelled at once.",
        Source("Prompt Turn", "Cancellation"),
        "what a client shows is not seen from here",
    ),
    (
        "client.closes",
        "A client that does not speak the agent's version closes the connection.",
        Source("Initialization", "Version Negotiation"),
        "the agent here speaks what every client speaks",
    ),
):
    RULES.unseen(_id, _says, SHOULD, _source, _why)

CHECKS = tuple(RULES)
"""Every check of a client."""
