"""The rules for what clients do, as an agent can see it: for `acphold check --client`."""

from __future__ import annotations

import base64
import posixpath

from acphold.conformance.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acphold.conformance.grammar import NEEDS, told_capabilities
from acphold.conformance.record import (
    Json,
    Record,
    WireLine,
    objects,
    sessions_in,
)
from acphold.conformance.rules.client_answers import RULES as ANSWERS
from acphold.conformance.rules.client_answers import goes_on
from acphold.conformance.rules.client_messages import RULES as MESSAGES
from acphold.conformance.rules.client_messages import SILENT
from acphold.conformance.verdicts import RuleSource
from acphold.errors import METHOD_NOT_FOUND, REQUEST_CANCELLED
from acphold.schema.updates import offered

RULES = Rules()

INITIALIZATION = RuleSource("Initialization", "")
SETUP = "Session Setup"

# -- introduction -----------------------------------------------------------------------------


@RULES.observer("client.initialize-first", MUST, INITIALIZATION, unless=SILENT)
def initialize_first(record: Record, witness: Witness) -> None:
    """The client introduces itself before anything else, and waits for the answer."""
    hello = next(iter(record.exchanges("client", "initialize")), None)
    answered = hello.answer.number if hello and hello.answer else len(record.lines)
    for line in record.by("client"):
        if line.method is not None:
            is_in_order = line.method == "initialize" or line.number >= answered
            witness.check(is_in_order, f"{line.method} came before", line)


@RULES.observer(
    "client.initialize-once", EXPECTED, INITIALIZATION, unless="the client did not introduce itself"
)
def initialize_once(record: Record, witness: Witness) -> None:
    """A connection is initialized once."""
    taken = [
        it.request
        for it in record.exchanges("client", "initialize")
        if it.answer is None or "result" in it.answer.message
    ]
    for _ in taken:
        witness.saw()
    if len(taken) > 1:
        witness.accuse("it came again", *taken[:2])


@RULES.observer(
    "client.closes",
    SHOULD,
    RuleSource("Initialization", "Version Negotiation"),
    unless="the agent spoke the client's version; `--offers version` speaks another one",
)
def closes(record: Record, witness: Witness) -> None:
    """A client that does not speak the agent's version closes the connection."""
    for exchange in record.exchanges("client", "initialize"):
        answered = exchange.result.get("protocolVersion")
        if exchange.answer is None or not isinstance(answered, int) or answered < 1000:
            continue
        witness.saw()
        for line in record.by("client"):
            if line.number > exchange.answer.number and line.method is not None:
                witness.accuse("it goes on", exchange.answer, line)


@RULES.observer(
    "client.info",
    SHOULD,
    RuleSource("Initialization", "Implementation Information"),
    unless="the client did not introduce itself",
)
def info(record: Record, witness: Witness) -> None:
    """The client tells its name and version."""
    for line in record.calls("client", "initialize"):
        witness.saw()
        told = line.params.get("clientInfo")
        if not isinstance(told, dict) or not told.get("name") or not told.get("version"):
            witness.accuse("`clientInfo` lacks one of them", line)


# -- capabilities ----------------------------------------------------------------------------


@RULES.observer(
    "client.advertised-methods", MUST, RuleSource(SETUP, "Checking Support"), unless=SILENT
)
def advertised_methods(line_record: Record, witness: Witness) -> None:
    """Methods that the agent did not advertise are not called."""
    can = told_capabilities(line_record)
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
    MUST,
    RuleSource(SETUP, "Checking Transport Support"),
    unless=NO_SESSION,
)
def advertised_servers(record: Record, witness: Witness) -> None:
    """MCP servers over HTTP and SSE are named only where the agent advertises them."""
    can = told_capabilities(record)
    for line in record.calls("client", *SETUPS):
        witness.saw()
        for kind in (server.get("type") for server in _servers(line)):
            if kind in ("http", "sse") and not offered(can, "mcpCapabilities", kind):
                witness.accuse(f"mcpCapabilities.{kind} was not advertised", line)


def _servers(line: WireLine) -> list[Json]:
    return objects(line.params.get("mcpServers"))


@RULES.observer(
    "client.advertised-directories",
    MUST,
    RuleSource(SETUP, "Additional Workspace Roots"),
    unless=NO_SESSION,
)
def advertised_directories(record: Record, witness: Witness) -> None:
    """Additional folders are named only where the agent advertises them."""
    can = told_capabilities(record)
    for line in record.calls("client", *SETUPS):
        named = line.params.get("additionalDirectories")
        is_right = not named or offered(can, "sessionCapabilities", "additionalDirectories")
        witness.check(is_right, "additionalDirectories was not advertised", line)


CONTENT = {"image": "image", "audio": "audio", "resource": "embeddedContext"}


@RULES.observer(
    "client.advertised-content",
    MUST,
    RuleSource("Prompt Turn", "1. User Message"),
    unless="the client sent no prompt",
)
def advertised_content(record: Record, witness: Witness) -> None:
    """Prompts hold images, sounds and files only where the agent advertises them."""
    can = told_capabilities(record)
    for line in record.calls("client", "session/prompt"):
        witness.saw()
        for block in objects(line.params.get("prompt")):
            name = CONTENT.get(str(block.get("type")))
            if name is not None and not offered(can, "promptCapabilities", name):
                witness.accuse(f"promptCapabilities.{name} was not advertised", line)


@RULES.observer(
    "client.content", EXPECTED, RuleSource("Content", "Content Types"), unless="no prompt had any"
)
def content(record: Record, witness: Witness) -> None:
    """The data of images, sounds and files in a prompt is base64."""
    for line in record.calls("client", "session/prompt"):
        for block in objects(line.params.get("prompt")):
            held = block.get("resource")
            data = held.get("blob") if isinstance(held, dict) else block.get("data")
            if isinstance(data, str):
                witness.saw()
                try:
                    base64.b64decode(data, validate=True)
                except ValueError:
                    witness.accuse("this is not", line)


# -- sessions ---------------------------------------------------------------------------------


@RULES.observer("client.absolute", MUST, RuleSource(SETUP, "Working Directory"), unless=NO_SESSION)
def absolute(record: Record, witness: Witness) -> None:
    """Folders, and the commands of MCP servers, are absolute paths."""
    for line in record.calls("client", *SETUPS, "session/list"):
        more = line.params.get("additionalDirectories")
        commands = [server["command"] for server in _servers(line) if "command" in server]
        paths = [*(more if isinstance(more, list) else ()), *commands]
        if line.params.get("cwd") is not None:
            paths.append(line.params["cwd"])
        for path in paths:
            witness.check(isinstance(path, str) and path.startswith("/"), f"{path!r} is not", line)


@RULES.observer(
    "client.known-sessions",
    MUST,
    RuleSource(SETUP, "Session ID"),
    unless="the client spoke of no session",
)
def known_sessions(record: Record, witness: Witness) -> None:
    """The client prompts, cancels and sets in sessions that it has begun, loaded or resumed."""
    answers = record.answered("client")
    known: set[object] = set()
    for line in record.lines:
        if (exchange := answers.get(line.number)) is not None:
            if "result" not in line.message:
                continue
            if exchange.request.method in ("session/close", "session/delete"):
                known.discard(exchange.request.session_id)
            elif exchange.request.method in SETUPS:
                known |= {exchange.result.get("sessionId"), exchange.request.session_id}
        # One that is opened, closed or deleted may be known from an earlier run, or a list.
        elif line.by == "client" and line.session_id and line.method in OF_OPEN_SESSIONS:
            witness.check(line.session_id in known, "no session with this id is open", line)


OF_OPEN_SESSIONS = (
    "session/prompt",
    "session/cancel",
    "session/set_mode",
    "session/set_config_option",
)


@RULES.observer(
    "client.same-folder",
    MUST,
    RuleSource(SETUP, "Additional Workspace Roots"),
    unless="no session was opened again whose folder is known",
)
def same_folder(record: Record, witness: Witness) -> None:
    """A session is opened again in its own folder."""
    folders: dict[object, object] = {}
    for exchange in record.exchanges("client", *SETUPS, "session/list"):
        if exchange.request.method == "session/new":
            folders[exchange.result.get("sessionId")] = exchange.request.params.get("cwd")
        folders |= {it.get("sessionId"): it.get("cwd") for it in sessions_in(exchange)}
        line = exchange.request
        if line.method in ("session/load", "session/resume") and line.session_id in folders:
            folder = folders[line.session_id]
            witness.check(
                _is_same(line.params.get("cwd"), folder), f"its folder is {folder!r}", line
            )


@RULES.observer(
    "client.listed-roots",
    MUST,
    RuleSource("Session List", "Listing Sessions"),
    unless="no session was opened whose folders have changed from list to list",
)
def listed_roots(record: Record, witness: Witness) -> None:
    """A session is not opened with folders that only an older list had."""
    older: dict[object, set[object]] = {}
    newest: dict[object, set[object]] = {}
    own: set[object] = set()
    for exchange in record.exchanges("client", *SETUPS, "session/list"):
        for it in sessions_in(exchange):
            id = it.get("sessionId")
            older[id] = older.get(id, set()) | newest.get(id, set())
            newest[id] = _roots(it)
        line = exchange.request
        old = older.get(line.session_id, set()) - newest.get(line.session_id, set()) - own
        if line.method in ("session/load", "session/resume") and old:
            witness.saw()
            if taken := old & _roots(line.params):
                witness.accuse(f"{sorted(map(str, taken))[0]} is of an older list", line)
                continue
        own |= _roots(line.params)


def _roots(of: Json) -> set[object]:
    roots = of.get("additionalDirectories")
    return {it for it in roots if isinstance(it, str)} if isinstance(roots, list) else set()


def _is_same(path: object, other: object) -> bool:
    """Return True for one folder, with a slash at its end or without."""
    if not (isinstance(path, str) and isinstance(other, str)):
        return path == other
    return posixpath.normpath(path) == posixpath.normpath(other)


@RULES.observer(
    "client.cursors",
    MUST,
    RuleSource("Session List", "Pagination"),
    unless="no second page was asked for",
)
def cursors(record: Record, witness: Witness) -> None:
    """Cursors come back as they were given on this connection, and none after the last page."""
    given: set[object] = set()
    asked: list[object] = []
    for exchange in record.exchanges("client", "session/list"):
        cursor = exchange.request.params.get("cursor")
        asked.append(cursor)
        if cursor is not None:
            witness.saw()
            if cursor not in given:
                witness.accuse("this cursor was not given", exchange.request)
            elif asked[-3:] == [cursor] * 3:
                witness.accuse("the same page is asked for over and over", exchange.request)
        given.add(exchange.result.get("nextCursor"))


# -- turns ------------------------------------------------------------------------------------


@RULES.observer(
    "client.one-turn",
    EXPECTED,
    RuleSource("Prompt Turn", "Cancellation"),
    unless="the client sent no prompt",
)
def one_turn(record: Record, witness: Witness) -> None:
    """A session gets its next prompt only when the one before is answered."""
    last: dict[object, WireLine | None] = {}
    for exchange in record.exchanges("client", "session/prompt"):
        line = exchange.request
        witness.saw()
        if line.session_id in last:
            before = last[line.session_id]
            if before is None or before.number > line.number:
                witness.accuse("the one before was not answered yet", line)
        last[line.session_id] = exchange.answer


@RULES.observer(
    "client.permission",
    MUST,
    RuleSource("Overview", "Baseline Methods"),
    unless="no permission was answered",
)
def permission(record: Record, witness: Witness) -> None:
    """A client can be asked for permission: `session/request_permission` is no unknown method."""
    _known_here(record, witness, "session/request_permission")


def _known_here(record: Record, witness: Witness, *methods: str) -> None:
    """Accuse answers that say that there is no such method."""
    for exchange in record.exchanges("agent", *methods):
        if exchange.answer is not None:
            is_known = exchange.error.get("code") != METHOD_NOT_FOUND
            witness.check(is_known, f"{exchange.request.method} is unknown to it", *exchange.lines)


@RULES.observer(
    "client.offers",
    MUST,
    RuleSource("Initialization", "Client Capabilities"),
    unless="nothing that the client offers was used",
)
def offers(record: Record, witness: Witness) -> None:
    """The client has what it offers in `initialize`: files, terminals, forms."""
    for name, path in OFFERED.items():
        if offered(record.offers, *path):
            _known_here(record, witness, name)


OFFERED = {
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    **{
        f"terminal/{name}": ("terminal",)
        for name in ("create", "output", "wait_for_exit", "kill", "release")
    },
    "elicitation/create": ("elicitation",),
}
"""Methods of clients, and the capability that each needs."""


@RULES.observer(
    "client.permission-options",
    MUST,
    RuleSource("Tool Calls", "Requesting Permission"),
    unless="no permission was answered",
)
def permission_options(record: Record, witness: Witness) -> None:
    """A permission is answered with one of its options, or `cancelled`."""
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
    MUST,
    RuleSource("Prompt Turn", "Cancellation"),
    unless="no turn was cancelled while a permission waited",
)
def permission_cancelled(record: Record, witness: Witness) -> None:
    """When a turn is cancelled, each permission that waits is answered `cancelled`."""
    for exchange in record.exchanges("agent", "session/request_permission"):
        asked = exchange.request
        last = len(record.lines) if exchange.answer is None else exchange.answer.number
        cancelled = next(
            (
                line
                for line in record.lines[asked.number : last]
                if line.method == "session/cancel" and line.session_id == asked.session_id
            ),
            None,
        )
        if cancelled is None:
            continue
        witness.saw()
        outcome = exchange.result.get("outcome")
        said = outcome.get("outcome") if isinstance(outcome, dict) else None
        # The agent may have cancelled its request itself, and be told that this was done.
        was_called_off = exchange.error.get("code") == REQUEST_CANCELLED and any(
            line.params.get("requestId") == exchange.request.message["id"]
            for line in record.calls("agent", "$/cancel_request")
        )
        if said != "cancelled" and not was_called_off:
            lines = (asked, cancelled, *exchange.lines[1:])
            answered = "not answered" if exchange.answer is None else f"answered {said!r}"
            witness.accuse(f"it was {answered}", *lines)


@RULES.observer(
    "client.late-updates",
    SHOULD,
    RuleSource("Prompt Turn", "Cancellation"),
    unless="the client cancelled no turn",
)
def late_updates(record: Record, witness: Witness) -> None:
    """Updates of tool calls that come after a cancel do no harm."""
    goes_on(record, witness, "late")


# -- choices ----------------------------------------------------------------------------------


@RULES.observer(
    "client.known-choices",
    MUST,
    RuleSource("Session Modes", "From the Client"),
    unless="the client set no mode and no option",
)
def known_choices(record: Record, witness: Witness) -> None:
    """Only modes, options and values that the agent has are set."""
    for exchange in record.exchanges("client", "session/set_mode", "session/set_config_option"):
        witness.check(not exchange.is_refused, "the agent does not have this one", *exchange.lines)


@RULES.observer(
    "client.options-alone",
    SHOULD,
    RuleSource("Session Config Options", "Relationship to Session Modes"),
    unless="the client set no option",
)
def options_alone(record: Record, witness: Witness) -> None:
    """A client that sets config options does not set modes beside them."""
    modes = list(record.exchanges("client", "session/set_mode"))
    for exchange in record.exchanges("client", "session/set_config_option"):
        lines = (it.request for it in (exchange, *modes[:1]))
        witness.check(not modes, "it sets both", *lines)


@RULES.observer(
    "client.sign-in-methods",
    MUST,
    RuleSource("Authentication", "Protocol-driven authentication"),
    unless="the client did not sign in",
)
def sign_in_methods(record: Record, witness: Witness) -> None:
    """`authenticate` gets the id of a method that was advertised, and is no terminal's."""
    known: dict[object, object] = {}
    for exchange in record.exchanges("client", "initialize", "authenticate"):
        for method in objects(exchange.result.get("authMethods")):
            known[method.get("id")] = method.get("type")
        if exchange.request.method == "authenticate":
            witness.saw()
            method_id = exchange.request.params.get("methodId")
            if known.get(method_id, "unknown") in ("unknown", "terminal"):
                witness.accuse(f"{method_id!r} is none of those", exchange.request)


@RULES.observer(
    "client.signed-out",
    SHOULD,
    RuleSource("Authentication", "Active Sessions"),
    unless="the client sent no prompt behind a logout",
)
def signed_out(record: Record, witness: Witness) -> None:
    """A prompt that is refused after a logout, because it wants a sign-in, does no harm."""
    goes_on(record, witness, "signed-out")


RULES.unseen(
    "client.marks-cancelled",
    "Tool calls that are not over are marked as cancelled at once.",
    SHOULD,
    RuleSource("Prompt Turn", "Cancellation"),
    "what a client shows is not seen from here",
)

CHECKS = (*MESSAGES, *RULES, *ANSWERS)
"""Every check of a client."""
