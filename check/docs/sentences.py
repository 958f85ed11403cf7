"""The sentences of the protocol with MUST or SHOULD, and the rules that look at each.

Facts alone: the page, the heading, the number of the sentence below it, and its words of demand; a
bullet is a sentence. One that no behaviour on the wire can show has a reason in place of rules.
"""

from __future__ import annotations

from msgspec import Struct


class Sentence(Struct, frozen=True):
    """One sentence; `rules` are the ids of those that fail if it is not kept, `why` is there if
    there are none.
    """

    page: str
    heading: str
    number: int
    words: str
    rules: tuple[str, ...] = ()
    why: str = ""


SCREEN = "it is about what a person sees"

_FIRST = "client.initialize-first"
_ADVERTISED = "client.advertised-methods"

_TABLE: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    # page, heading, and for each sentence its words and its rules, or "- " and the reason
    (
        "Initialization",
        "",
        (
            ("MUST", _FIRST),
            ("SHOULD", "client.info"),
            ("MUST", "initialize.answer initialize.capabilities"),
            ("SHOULD", "initialize.info"),
        ),
    ),
    ("Initialization", "Protocol version", (("MUST", "initialize.same-version client.closes"),)),
    (
        "Initialization",
        "Version Negotiation",
        (
            ("MUST", "client.schema client.closes"),
            ("MUST", "initialize.same-version"),
            ("MUST", "initialize.other-version"),
            ("SHOULD", "client.closes"),
        ),
    ),
    (
        "Initialization",
        "Capabilities",
        (
            ("SHOULD", "fs.offered terminal.offered initialize.few-members"),
            ("MUST", "fs.offered terminal.offered elicitation.offered options.boolean-offered"),
        ),
    ),
    ("Initialization", "Client Capabilities", (("SHOULD", "client.schema"),)),
    ("Initialization", "Agent Capabilities", (("SHOULD", "schema.results"),)),
    (
        "Initialization",
        "Prompt capabilities",
        (("MUST", "prompt.answer prompt.text-blocks prompt.resource-link"),),
    ),
    (
        "Initialization",
        "Session Capabilities",
        (("MUST", "new.answer prompt.answer cancel.stop-reason schema.updates"),),
    ),
    (
        "Initialization",
        "Implementation Information",
        (("SHOULD", "initialize.info client.info"),),
    ),
    (
        "Authentication",
        "Advertising Authentication",
        (("MUST NOT", _ADVERTISED),),
    ),
    ("Authentication", "Protocol-driven authentication", (("MUST NOT", "client.sign-in-methods"),)),
    (
        "Authentication",
        "Terminal authentication",
        (
            ("SHOULD", "auth.terminal-arguments"),
            ("MUST NOT", "client.sign-in-methods"),
        ),
    ),
    ("Authentication", "Active Sessions", (("SHOULD", "client.signed-out"),)),
    ("Session Setup", "", (("MUST", _FIRST),)),
    ("Session Setup", "Creating a Session", (("MUST", "new.answer new.unique-ids delete.own-id"),)),
    (
        "Session Setup",
        "Checking Support",
        (("MUST", _ADVERTISED), ("MUST NOT", _ADVERTISED)) * 3,
    ),
    (
        "Session Setup",
        "Loading a Session",
        (
            ("MUST", "client.schema client.same-folder"),
            (
                "MUST",
                "load.user-messages load.agent-messages load.tool-calls load.order load.links "
                "load.images load.audio load.embedded load.cancelled-turn load.refused-turn "
                "load.after-resume load.grows",
            ),
            ("MUST", "load.after-restart load.replay-first"),
        ),
    ),
    (
        "Session Setup",
        "Resuming a Session",
        (("MUST", "client.schema client.same-folder"), ("MUST NOT", "resume.no-history")),
    ),
    (
        "Session Setup",
        "Closing a Session",
        (("MUST", "client.schema"), ("MUST", "close.cancels mcp.closed close.silent")),
    ),
    (
        "Session Setup",
        "Additional Workspace Roots",
        (("MUST", "client.absolute"), ("MUST", "client.advertised-directories")),
    ),
    (
        "Session Setup",
        "Working Directory",
        (
            ("MUST", "client.absolute new.relative-folder"),
            ("MUST", "tool.folder"),
            ("MUST", "tool.folder load.folder resume.folder"),
            ("MUST", "tool.folder"),
            ("SHOULD", "tool.root-set"),
        ),
    ),
    (
        "Session Setup",
        "MCP Servers",
        (
            ("MUST", "mcp.stdio mcp.environment"),
            (
                "SHOULD",
                "- which agents are new is not known; `mcp.http` looks at those that have it",
            ),
        ),
    ),
    ("Session Setup", "Stdio Transport", (("MUST", "mcp.stdio mcp.environment"),)),
    (
        "Session Setup",
        "Checking Transport Support",
        (("MUST", "client.advertised-servers"), ("SHOULD", "mcp.all mcp.on-load mcp.on-resume")),
    ),
    ("Session List", "", (("MUST", _FIRST),)),
    ("Session List", "Checking Support", (("MUST", _ADVERTISED), ("MUST NOT", _ADVERTISED))),
    (
        "Session List",
        "Listing Sessions",
        (
            ("MUST", "list.answer"),
            ("MUST NOT", "client.listed-roots"),
            ("MUST", "list.no-match"),
        ),
    ),
    (
        "Session List",
        "Pagination",
        (
            ("MUST", "client.cursors"),
            ("MUST", "client.cursors"),
            ("SHOULD", "list.bad-cursor"),
            ("SHOULD", "list.page-size"),
        ),
    ),
    ("Session Delete", "", (("MUST", f"{_FIRST} {_ADVERTISED}"),)),
    ("Session Delete", "Checking Support", (("MUST", _ADVERTISED), ("MUST NOT", _ADVERTISED))),
    ("Session Delete", "Semantics", (("SHOULD", "delete.twice delete.unknown-id"),)),
    ("Prompt Turn", "", (("MUST", f"{_FIRST} client.known-sessions"),)),
    ("Prompt Turn", "1. User Message", (("MUST", "client.advertised-content"),)),
    ("Prompt Turn", "4. Check for Completion", (("MUST", "prompt.answer tool.turns"),)),
    ("Prompt Turn", "5. Tool Invocation and Status Reporting", (("SHOULD", "tool.in-progress"),)),
    (
        "Prompt Turn",
        "Cancellation",
        (
            ("SHOULD", f"- {SCREEN}"),
            ("MUST", "client.permission-cancelled"),
            ("SHOULD", "cancel.soon cancel.stops-tools"),
            ("MUST", "cancel.stop-reason cancel.at-once cancel.permission"),
            ("MUST", "cancel.tool cancel.stop-reason"),
            ("MUST", "cancel.updates-first"),
            ("SHOULD", "client.late-updates"),
        ),
    ),
    ("Content", "Text Content", (("MUST", "prompt.answer prompt.text-blocks"),)),
    ("Tool Calls", "Creating", (("SHOULD", "tool.reported"),)),
    ("Tool Calls", "Requesting Permission", (("MUST", "client.permission-cancelled"),)),
    ("File System", "Checking Support", (("MUST", "fs.offered"), ("MUST NOT", "fs.offered"))),
    ("File System", "Writing Files", (("MUST", "client.file-created"),)),
    (
        "Terminals",
        "Checking Support",
        (("MUST", "terminal.offered"), ("MUST NOT", "terminal.offered")),
    ),
    (
        "Terminals",
        "Executing Commands",
        (("MUST", "client.terminal-limit"), ("MUST", "terminal.released")),
    ),
    ("Terminals", "Killing Commands", (("MUST", "terminal.released"),)),
    ("Terminals", "Releasing Terminals", (("SHOULD", f"- {SCREEN}"),)),
    ("Agent Plan", "Creating Plans", (("SHOULD", "plan.told"),)),
    (
        "Agent Plan",
        "Updating Plans",
        (
            ("SHOULD", "plan.updated"),
            ("MUST", "plan.complete"),
            ("MUST", f"- {SCREEN}"),
        ),
    ),
    (
        "Session Config Options",
        "",
        (("SHOULD", "- a client may leave to a person which of the two is set"),),
    ),
    ("Session Config Options", "Initial State", (("SHOULD", f"- {SCREEN}"),)),
    (
        "Session Config Options",
        "Boolean Config Options",
        (("MUST NOT", "options.boolean-offered"),),
    ),
    (
        "Session Config Options",
        "Option Categories",
        (
            ("MUST NOT", "client.unknown-category"),
            ("MUST", "client.unknown-category"),
            ("SHOULD", f"- {SCREEN}"),
            ("SHOULD", f"- {SCREEN}"),
        ),
    ),
    (
        "Session Config Options",
        "Option Ordering",
        (
            ("SHOULD", "- only the agent knows which options are more important"),
            ("SHOULD", f"- {SCREEN}"),
        ),
    ),
    (
        "Session Config Options",
        "Default Values and Graceful Degradation",
        (("MUST", "options.current"), ("SHOULD", "client.unknown-option-type")),
    ),
    ("Session Config Options", "From the Client", (("MUST", "options.complete"),)),
    (
        "Session Config Options",
        "Relationship to Session Modes",
        (
            ("SHOULD", "options.and-modes"),
            ("SHOULD", "- a client may leave to a person which of the two is set"),
            ("SHOULD", "- a client need not set a mode"),
            ("SHOULD", "options.in-step"),
        ),
    ),
    ("Cancellation", "`$/cancel_request` Notification", (("MUST", "cancel-request.answered"),)),
    (
        "Cancellation",
        "Internal Cancellation",
        (("SHOULD", "cancel-request.code close.cancels"),),
    ),
    (
        "Extensibility",
        "The `_meta` Field",
        (
            ("SHOULD", "client.trace-context"),
            ("MUST NOT", "extension.members client.members"),
        ),
    ),
    (
        "Extensibility",
        "Custom Requests",
        (
            ("MUST", "extension.answered client.answers"),
            ("SHOULD", "extension.advertised"),
        ),
    ),
    ("Extensibility", "Custom Notifications", (("SHOULD", "extension.unknown-notification"),)),
    (
        "Extensibility",
        "Advertising Custom Capabilities",
        (("SHOULD", "extension.advertised extension.members client.members"),),
    ),
    ("Overview", "Argument requirements", (("MUST", "tool.absolute fs.absolute client.absolute"),)),
    (
        "Transports",
        "",
        (
            ("MUST", "stdio.utf-8 client.messages"),
            ("SHOULD", "initialize.answer"),
        ),
    ),
    (
        "Transports",
        "stdio",
        (
            ("MUST NOT", "stdio.only-messages"),
            ("MUST NOT", "stdio.only-messages"),
            ("MUST NOT", "client.messages"),
        ),
    ),
    (
        "Transports",
        "Custom Transports",
        (
            ("MUST", "json-rpc.version initialize.answer http.events websocket.text"),
            ("SHOULD", "- it is about documents"),
        ),
    ),
)

SENTENCES: tuple[Sentence, ...] = tuple(
    Sentence(page, heading, number, words, why=told[2:])
    if told.startswith("- ")
    else Sentence(page, heading, number, words, tuple(told.split()))
    for page, heading, found in _TABLE
    for number, (words, told) in enumerate(found, start=1)
)
"""All sentences of the pages of version 1, but for those about elicitation and the schema's own."""

DIGESTS: dict[str, str] = {
    "Agent Plan": "3f67c0d138dcc0c2",
    "Authentication": "8e40c60425aaa7e4",
    "Cancellation": "780119ee6f089ea8",
    "Content": "77995e0c6e65c641",
    "Extensibility": "1ba6992a338c7fbd",
    "File System": "614eda36742b09b7",
    "Initialization": "53b315e1be02b221",
    "Overview": "59bad9e1409d7892",
    "Prompt Turn": "9307daa36297e9a5",
    "Session Config Options": "330eeb299a0684b9",
    "Session Delete": "bb8e7db98fce70d4",
    "Session List": "36fe1fad0ad438a6",
    "Session Setup": "281729e308ccf341",
    "Terminals": "8d9f26fb7008345e",
    "Tool Calls": "70004a61db645d8f",
    "Transports": "79cca69ea0ed79fc",
}
"""Of the facts of each page, as `protocol_pages` found them there; a test compares the table."""
