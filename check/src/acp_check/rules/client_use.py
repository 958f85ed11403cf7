"""The rules for what an agent uses of its client: files, terminals, forms."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from acp_check.checks import MUST, SHOULD, Rules, Witness
from acp_check.record import Record, objects
from acp_check.rules.tool_reports import ARGUMENTS, CALLS
from acp_check.verdicts import RuleSource
from acp_wire.schema.updates import has_capability

RULES = Rules(over=CALLS)

FILES = "File System"
TERMINALS = "Terminals"
ELICITATION = "Elicitation"
EXECUTING = RuleSource(TERMINALS, "Executing Commands")


def _only_offered(record: Record, witness: Witness, methods: Mapping[str, tuple[str, ...]]) -> None:
    """Accuse each call of a method that the client did not offer; count turns without one."""
    missing = any(not has_capability(record.offers, *it) for it in methods.values())
    for line in record.lines:
        called = line.method or ""
        for name, path in methods.items():
            is_called = called == name or called.startswith(f"{name}/")
            if line.by == "agent" and is_called and not has_capability(record.offers, *path):
                witness.accuse(f"the client did not offer {'.'.join(path)}", line)
        if line.by == "client" and line.method == "session/prompt" and missing:
            witness.saw()


NO_TURN = "no turn ran with a client that offers less"
NO_TERMINAL = "the agent created no terminal"
NO_FOLDER = "the agent set no folder for a terminal"


BARE_TOOLS = ("tool.*", "permission.*", "load.tool-calls", "load.folder")
"""The cases in which a client that offers little asks for tools."""


@RULES.observer("fs.offered", MUST, RuleSource(FILES, "Checking Support"), NO_TURN, over=BARE_TOOLS)
def files_offered(record: Record, witness: Witness) -> None:
    """The agent uses its client's files only if the client offers them."""
    methods = {
        "fs/read_text_file": ("fs", "readTextFile"),
        "fs/write_text_file": ("fs", "writeTextFile"),
    }
    _only_offered(record, witness, methods)


@RULES.observer(
    "terminal.offered", MUST, RuleSource(TERMINALS, "Checking Support"), NO_TURN, over=BARE_TOOLS
)
def terminals_offered(record: Record, witness: Witness) -> None:
    """The agent uses terminals only if its client offers them."""
    _only_offered(record, witness, {"terminal": ("terminal",)})


@RULES.observer(
    "elicitation.offered",
    MUST,
    RuleSource(ELICITATION, "Checking support"),
    NO_TURN,
    over=BARE_TOOLS,
)
def elicitation_offered(record: Record, witness: Witness) -> None:
    """Forms and URLs go only to clients that offer them."""
    for line in record.lines:
        if line.by == "client" and line.method == "session/prompt":
            if not has_capability(record.offers, "elicitation"):
                witness.saw()
        elif line.by == "agent" and line.method == "elicitation/create":
            mode = str(line.params.get("mode"))
            if not has_capability(record.offers, "elicitation", mode):
                witness.accuse(f"the client did not offer elicitation.{mode}", line)


@RULES.observer("fs.absolute", MUST, ARGUMENTS, "the agent used no file of its client")
def absolute(record: Record, witness: Witness) -> None:
    """The paths of files are absolute."""
    for line in record.calls("agent", "fs/read_text_file", "fs/write_text_file"):
        path = str(line.params.get("path"))
        witness.check(path.startswith("/"), f"{path!r} is not absolute", line)


@RULES.observer("fs.lines", MUST, ARGUMENTS, "the agent read no file starting at a line")
def first_line(record: Record, witness: Witness) -> None:
    """The first line of a file is line 1."""
    for line in record.calls("agent", "fs/read_text_file"):
        number = line.params.get("line")
        if number is not None:
            witness.check(number != 0, "the agent asks for line 0", line)


@RULES.observer("terminal.absolute", MUST, EXECUTING, NO_FOLDER)
def terminal_folder(record: Record, witness: Witness) -> None:
    """The folder of a terminal is absolute."""
    for line in record.calls("agent", "terminal/create"):
        cwd = line.params.get("cwd")
        if cwd is not None:
            witness.check(str(cwd).startswith("/"), f"{cwd!r} is not absolute", line)


@RULES.observer(
    "terminal.folder", SHOULD, RuleSource("Session Setup", "Working Directory"), NO_FOLDER
)
def terminal_inside(record: Record, witness: Witness) -> None:
    """A terminal starts in one of the session's folders."""
    roots: dict[object, list[str]] = {}
    for opened in record.exchanges("client", "session/new", "session/load", "session/resume"):
        params = opened.asked.params
        named = (params.get("cwd"), *params.get("additionalDirectories", ()))
        roots.setdefault(opened.session_id, []).extend(os.path.realpath(str(it)) for it in named)
    for line in record.calls("agent", "terminal/create"):
        cwd = str(line.params.get("cwd"))
        if cwd.startswith("/") and line.session_id in roots:
            above = {os.path.realpath(cwd), *map(str, Path(os.path.realpath(cwd)).parents)}
            is_inside = above.intersection(roots[line.session_id])
            witness.check(is_inside, f"{cwd!r} is outside of the session's folders", line)


@RULES.observer("terminal.released", MUST, EXECUTING, NO_TERMINAL)
def releases(record: Record, witness: Witness) -> None:
    """Each terminal is released."""
    given_back = {
        line.params.get("terminalId") for line in record.calls("agent", "terminal/release")
    }
    for exchange in record.exchanges("agent", "terminal/create"):
        if exchange.result:
            witness.check(
                exchange.result.get("terminalId") in given_back,
                "this terminal was not released",
                *exchange.lines,
            )


@RULES.observer(
    "terminal.known-id", MUST, RuleSource(TERMINALS, "Releasing Terminals"), NO_TERMINAL
)
def only_open_terminals(record: Record, witness: Witness) -> None:
    """A terminal is used and embedded only between its creation and release."""
    made = {
        number: exchange.result.get("terminalId")
        for number, exchange in record.exchanges_by_answer("agent", "terminal/create").items()
        if exchange.result
    }
    known: set[object] = set()
    embeddable: set[object] = set()
    embedded: set[object] = set()
    for line in record.lines:
        if line.number in made:
            known.add(made[line.number])
            embeddable.add(made[line.number])
        elif (line.method or "").startswith("terminal/") and "terminalId" in line.params:
            witness.check(line.params["terminalId"] in known, "this terminal does not exist", line)
            if line.method == "terminal/release":
                known.discard(line.params["terminalId"])
        for shown in objects(line.update.get("content")):
            if shown.get("type") == "terminal":
                witness.saw()
                id = shown.get("terminalId")
                if made and id not in embeddable:
                    witness.accuse("the tool call embeds a terminal that was never created", line)
                elif made and id not in known | embedded:
                    witness.accuse("the tool call embeds a terminal that was released before", line)
                embedded.add(id)


for _id, _says, _why in (
    (
        "elicitation.secrets",
        "Forms do not ask for secrets.",
        "only a person can tell whether a form asks for a secret",
    ),
    (
        "elicitation.bound",
        "An elicitation belongs to the client and user that it was sent to.",
        "this needs a second client with another user",
    ),
    (
        "elicitation.declined",
        "The agent copes with a declined form, and a page that is not opened.",
        "no prompt makes every agent send a form or a page",
    ),
):
    RULES.unseen(_id, _says, MUST, RuleSource(ELICITATION, "Responses"), _why)
