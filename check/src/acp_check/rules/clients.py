"""The rules for what clients do, as an agent can see it: for `acphold check --client`."""

from __future__ import annotations

import posixpath

from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.grammar import NEEDS, agent_capabilities, data_of, is_base64
from acp_check.record import (
    Json,
    Record,
    WireLine,
    objects,
    sessions_in,
)
from acp_check.rules.client_answers import (
    RULES as ANSWERS,
    still_answers,
    was_passed_over,
)
from acp_check.rules.client_messages import RULES as MESSAGES, SILENT
from acp_check.verdicts import RuleSource
from acp_wire.errors import METHOD_NOT_FOUND, REQUEST_CANCELLED
from acp_wire.schema.updates import has_capability

RULES = Rules()

INITIALIZATION = RuleSource("Initialization", "")
SETUP = "Session Setup"
ROOTS = RuleSource(SETUP, "Additional Workspace Roots")
CANCELLATION = RuleSource("Prompt Turn", "Cancellation")

# -- introduction -----------------------------------------------------------------------------


@RULES.observer("client.initialize-first", MUST, INITIALIZATION, SILENT)
def initialize_first(record: Record, witness: Witness) -> None:
    """The client sends `initialize` before anything else, and waits for the answer."""
    hello = next(iter(record.exchanges("client", "initialize")), None)
    answered = hello.answer.number if hello and hello.answer else len(record.lines)
    for line in record.by("client"):
        if line.method is not None:
            is_in_order = line.method == "initialize" or line.number >= answered
            witness.check(
                is_in_order, f"{line.method} was sent before the answer to `initialize`", line
            )


@RULES.observer(
    "client.initialize-once", EXPECTED, INITIALIZATION, "the client did not send `initialize`"
)
def initialize_once(record: Record, witness: Witness) -> None:
    """A connection is initialized once."""
    taken = [
        it.asked
        for it in record.exchanges("client", "initialize")
        if it.answer is None or "result" in it.answer.message
    ]
    for _ in taken:
        witness.saw()
    if len(taken) > 1:
        witness.accuse("the client sent `initialize` again", *taken[:2])


@RULES.observer(
    "client.closes",
    SHOULD,
    RuleSource("Initialization", "Version Negotiation"),
    "the agent used the client's version; with `--offers version` it uses another one",
)
def closes(record: Record, witness: Witness) -> None:
    """A client without the agent's version closes the connection."""
    for exchange in record.exchanges("client", "initialize"):
        answered = exchange.result.get("protocolVersion")
        if exchange.answer is None or not isinstance(answered, int) or answered < 1000:
            continue
        witness.saw()
        for line in record.by("client"):
            if line.number > exchange.answer.number and line.method is not None:
                witness.accuse("the client sent another message", exchange.answer, line)


@RULES.observer(
    "client.info",
    SHOULD,
    RuleSource("Initialization", "Implementation Information"),
    "the client did not send `initialize`",
)
def info(record: Record, witness: Witness) -> None:
    """The client reports its name and version."""
    for line in record.calls("client", "initialize"):
        witness.saw()
        client_info = line.params.get("clientInfo")
        if (
            not isinstance(client_info, dict)
            or not client_info.get("name")
            or not client_info.get("version")
        ):
            witness.accuse("`clientInfo` lacks the name or the version", line)


# -- capabilities ----------------------------------------------------------------------------


@RULES.observer("client.advertised-methods", MUST, RuleSource(SETUP, "Checking Support"), SILENT)
def only_advertised_methods(line_record: Record, witness: Witness) -> None:
    """The client calls only methods that the agent advertises."""
    can = agent_capabilities(line_record)
    for line in line_record.by("client"):
        path = NEEDS.get(line.method or "")
        if line.method is not None:
            witness.saw()
        if path is not None and not has_capability(can, *path):
            witness.accuse(f"the agent did not advertise {'.'.join(path)}", line)


SETUPS = ("session/new", "session/load", "session/resume")
NO_SESSION = "the client opened no session"
NO_PROMPT = "the client sent no prompt"
NO_QUESTION = "the client answered no permission request"


@RULES.observer(
    "client.advertised-servers", MUST, RuleSource(SETUP, "Checking Transport Support"), NO_SESSION
)
def only_advertised_servers(record: Record, witness: Witness) -> None:
    """MCP servers over HTTP and SSE are named only if the agent advertises them."""
    can = agent_capabilities(record)
    for line in record.calls("client", *SETUPS):
        witness.saw()
        for kind in (server.get("type") for server in _servers(line)):
            if kind in ("http", "sse") and not has_capability(can, "mcpCapabilities", kind):
                witness.accuse(f"the agent did not advertise mcpCapabilities.{kind}", line)


def _servers(line: WireLine) -> list[Json]:
    return objects(line.params.get("mcpServers"))


@RULES.observer("client.advertised-directories", MUST, ROOTS, NO_SESSION)
def only_advertised_directories(record: Record, witness: Witness) -> None:
    """The client names additional folders only if the agent advertises them."""
    can = agent_capabilities(record)
    for line in record.calls("client", *SETUPS):
        named = line.params.get("additionalDirectories")
        is_allowed = not named or has_capability(
            can, "sessionCapabilities", "additionalDirectories"
        )
        why = "the agent did not advertise sessionCapabilities.additionalDirectories"
        witness.check(is_allowed, why, line)


CONTENT = {"image": "image", "audio": "audio", "resource": "embeddedContext"}


@RULES.observer(
    "client.advertised-content", MUST, RuleSource("Prompt Turn", "1. User Message"), NO_PROMPT
)
def only_advertised_content(record: Record, witness: Witness) -> None:
    """Prompts have images, audio and files only if the agent advertises them."""
    can = agent_capabilities(record)
    for line in record.calls("client", "session/prompt"):
        witness.saw()
        for block in objects(line.params.get("prompt")):
            name = CONTENT.get(str(block.get("type")))
            if name is not None and not has_capability(can, "promptCapabilities", name):
                witness.accuse(f"the agent did not advertise promptCapabilities.{name}", line)


@RULES.observer(
    "client.content", EXPECTED, RuleSource("Content", "Content Types"), "no prompt had such data"
)
def content(record: Record, witness: Witness) -> None:
    """The data of images, audio and files in a prompt is base64."""
    for line in record.calls("client", "session/prompt"):
        for block in objects(line.params.get("prompt")):
            if (data := data_of(block)) is not None:
                witness.check(is_base64(data), "the data is not base64", line)


# -- sessions ---------------------------------------------------------------------------------


@RULES.observer("client.absolute", MUST, RuleSource(SETUP, "Working Directory"), NO_SESSION)
def absolute(record: Record, witness: Witness) -> None:
    """Folders, and the commands of MCP servers, are absolute paths."""
    for line in record.calls("client", *SETUPS, "session/list"):
        more = line.params.get("additionalDirectories")
        commands = [server["command"] for server in _servers(line) if "command" in server]
        paths = [*(more if isinstance(more, list) else ()), *commands]
        if line.params.get("cwd") is not None:
            paths.append(line.params["cwd"])
        for path in paths:
            is_absolute = isinstance(path, str) and path.startswith("/")
            witness.check(is_absolute, f"{path!r} is not absolute", line)


@RULES.observer(
    "client.known-sessions",
    MUST,
    RuleSource(SETUP, "Session ID"),
    "the client sent nothing about a session",
)
def only_known_sessions(record: Record, witness: Witness) -> None:
    """The client only uses sessions that it created, loaded or resumed."""
    answers = record.exchanges_by_answer("client")
    known: set[object] = set()
    for line in record.lines:
        if (exchange := answers.get(line.number)) is not None:
            if "result" not in line.message:
                continue
            if exchange.asked.method in ("session/close", "session/delete"):
                known.discard(exchange.asked.session_id)
            elif exchange.asked.method in SETUPS:
                known |= {exchange.result.get("sessionId"), exchange.asked.session_id}
        # One that is opened, closed or deleted may be known from an earlier run, or a list.
        elif line.by == "client" and line.session_id and line.method in OF_OPEN_SESSIONS:
            witness.check(line.session_id in known, "no session with this id is open", line)


OF_OPEN_SESSIONS = (
    "session/prompt",
    "session/cancel",
    "session/set_mode",
    "session/set_config_option",
)


@RULES.observer("client.same-folder", MUST, ROOTS, "no session with a known folder was reopened")
def same_folder(record: Record, witness: Witness) -> None:
    """The client reopens a session in its own folder."""
    folders: dict[object, object] = {}
    for exchange in record.exchanges("client", *SETUPS, "session/list"):
        if exchange.asked.method == "session/new":
            folders[exchange.result.get("sessionId")] = exchange.asked.params.get("cwd")
        folders |= {it.get("sessionId"): it.get("cwd") for it in sessions_in(exchange)}
        line = exchange.asked
        if line.method in ("session/load", "session/resume") and line.session_id in folders:
            folder, given = folders[line.session_id], line.params.get("cwd")
            is_same = given == folder
            if isinstance(given, str) and isinstance(folder, str):  # with a slash at its end or not
                is_same = posixpath.normpath(given) == posixpath.normpath(folder)
            witness.check(is_same, f"the session's folder is {folder!r}", line)


@RULES.observer(
    "client.listed-roots",
    MUST,
    RuleSource("Session List", "Listing Sessions"),
    "no session was reopened after its folders had changed in the list",
)
def roots_as_listed(record: Record, witness: Witness) -> None:
    """A session is not reopened with folders from an outdated list."""
    older: dict[object, set[object]] = {}
    newest: dict[object, set[object]] = {}
    own: set[object] = set()
    for exchange in record.exchanges("client", *SETUPS, "session/list"):
        for it in sessions_in(exchange):
            id = it.get("sessionId")
            older[id] = older.get(id, set()) | newest.get(id, set())
            newest[id] = _roots(it)
        line = exchange.asked
        old = older.get(line.session_id, set()) - newest.get(line.session_id, set()) - own
        if line.method in ("session/load", "session/resume") and old:
            witness.saw()
            if taken := old & _roots(line.params):
                witness.accuse(f"{sorted(map(str, taken))[0]} is from an outdated list", line)
                continue
        own |= _roots(line.params)


def _roots(of: Json) -> set[object]:
    roots = of.get("additionalDirectories")
    return {it for it in roots if isinstance(it, str)} if isinstance(roots, list) else set()


@RULES.observer(
    "client.cursors",
    MUST,
    RuleSource("Session List", "Pagination"),
    "the client requested no second page",
)
def cursors(record: Record, witness: Witness) -> None:
    """Cursors are those of this connection, unchanged, and none after the last page."""
    given: set[object] = set()
    asked: list[object] = []
    for exchange in record.exchanges("client", "session/list"):
        cursor = exchange.asked.params.get("cursor")
        asked.append(cursor)
        if cursor is not None:
            witness.saw()
            if cursor not in given:
                witness.accuse("the agent returned no such cursor", exchange.asked)
            elif asked[-3:] == [cursor] * 3:
                witness.accuse("the client requests the same page over and over", exchange.asked)
        given.add(exchange.result.get("nextCursor"))


# -- turns ------------------------------------------------------------------------------------


@RULES.observer("client.one-turn", EXPECTED, CANCELLATION, NO_PROMPT)
def one_turn(record: Record, witness: Witness) -> None:
    """A session's next prompt follows the previous one's answer."""
    last: dict[object, WireLine | None] = {}
    for exchange in record.exchanges("client", "session/prompt"):
        line = exchange.asked
        witness.saw()
        if line.session_id in last:
            before = last[line.session_id]
            if before is None or before.number > line.number:
                witness.accuse("the previous prompt was not answered yet", line)
        last[line.session_id] = exchange.answer


@RULES.observer("client.permission", MUST, RuleSource("Overview", "Baseline Methods"), NO_QUESTION)
def permission(record: Record, witness: Witness) -> None:
    """The client supports `session/request_permission`."""
    _knows(record, witness, "session/request_permission")


def _knows(record: Record, witness: Witness, *methods: str) -> None:
    """Accuse answers that report one of these methods as unknown."""
    for exchange in record.exchanges("agent", *methods):
        if exchange.answer is not None:
            is_known = exchange.error.get("code") != METHOD_NOT_FOUND
            witness.check(
                is_known, f"the client does not know {exchange.asked.method}", *exchange.lines
            )


@RULES.observer(
    "client.offers",
    MUST,
    RuleSource("Initialization", "Client Capabilities"),
    "the agent used nothing that the client offers",
)
def offers(record: Record, witness: Witness) -> None:
    """The client supports what it offers in `initialize`: files, terminals, forms."""
    for name, path in OFFERED.items():
        if has_capability(record.offers, *path):
            _knows(record, witness, name)


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
    NO_QUESTION,
)
def permission_options(record: Record, witness: Witness) -> None:
    """A permission request gets one of its options, or `cancelled`."""
    for exchange in record.exchanges("agent", "session/request_permission"):
        outcome = exchange.result.get("outcome")
        if not isinstance(outcome, dict):
            continue
        witness.saw()
        options = objects(exchange.asked.params.get("options"))
        known = {option.get("optionId") for option in options}
        if outcome.get("outcome") == "selected" and outcome.get("optionId") not in known:
            witness.accuse(f"{outcome.get('optionId')!r} is not an option", *exchange.lines)


@RULES.observer(
    "client.permission-cancelled",
    MUST,
    CANCELLATION,
    "no turn was cancelled while a permission request was pending",
)
def permission_cancelled(record: Record, witness: Witness) -> None:
    """A cancelled turn's pending permissions get `cancelled`."""
    # The agent may also cancel its request itself, and the client confirms that with an error.
    withdrawn = [it.params.get("requestId") for it in record.calls("agent", "$/cancel_request")]
    for exchange in record.exchanges("agent", "session/request_permission"):
        asked, answer = exchange.asked, exchange.answer
        while_pending = record.lines[asked.number : answer.number if answer else None]
        cancels = [
            line
            for line in while_pending
            if line.method == "session/cancel" and line.session_id == asked.session_id
        ]
        if not cancels or (answer is None and not was_passed_over(record, asked)):
            continue
        outcome = exchange.result.get("outcome")
        chosen = outcome.get("outcome") if isinstance(outcome, dict) else None
        is_withdrawn = asked.message["id"] in withdrawn
        is_confirmed = is_withdrawn and exchange.error.get("code") == REQUEST_CANCELLED
        answered = f"answered with {chosen!r}" if answer else "not answered"
        why = f"the permission request was {answered}"
        is_kept = chosen == "cancelled" or is_confirmed
        witness.check(is_kept, why, asked, cancels[0], *exchange.lines[1:])


@RULES.observer("client.late-updates", SHOULD, CANCELLATION, "the client cancelled no turn")
def late_updates(record: Record, witness: Witness) -> None:
    """Updates of tool calls after a cancel are accepted."""
    still_answers(record, witness, "late")


# -- choices ----------------------------------------------------------------------------------


@RULES.observer(
    "client.known-choices",
    MUST,
    RuleSource("Session Modes", "From the Client"),
    "the client set no mode and no option",
)
def only_known_choices(record: Record, witness: Witness) -> None:
    """The client only sets modes, options and values that the agent has."""
    for exchange in record.exchanges("client", "session/set_mode", "session/set_config_option"):
        witness.check(
            not exchange.is_refused,
            "the agent does not have this mode, option or value",
            *exchange.lines,
        )


@RULES.observer(
    "client.sign-in-methods",
    MUST,
    RuleSource("Authentication", "Protocol-driven authentication"),
    "the client did not sign in",
)
def sign_in_methods(record: Record, witness: Witness) -> None:
    """`authenticate` names an advertised method that is not of type `terminal`."""
    known: dict[object, object] = {}
    for exchange in record.exchanges("client", "initialize", "authenticate"):
        for method in objects(exchange.result.get("authMethods")):
            known[method.get("id")] = method.get("type")
        if exchange.asked.method == "authenticate":
            witness.saw()
            method_id = exchange.asked.params.get("methodId")
            if known.get(method_id, "unknown") in ("unknown", "terminal"):
                witness.accuse(f"{method_id!r} is not such a method", exchange.asked)


@RULES.observer(
    "client.signed-out",
    SHOULD,
    RuleSource("Authentication", "Active Sessions"),
    "the client sent no prompt after a logout",
)
def after_sign_out(record: Record, witness: Witness) -> None:
    """The client copes with a prompt refused after a logout."""
    still_answers(record, witness, "signed-out")


RULES.unseen(
    "client.marks-cancelled",
    "The client marks unfinished tool calls as cancelled at once.",
    SHOULD,
    CANCELLATION,
    "the check cannot see what a client shows",
)

CHECKS = (*MESSAGES, *RULES, *ANSWERS)
"""Every check of a client."""
