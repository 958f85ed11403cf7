"""The rules for how clients answer: what the tour of the watcher shows, see `watcher`."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from itertools import zip_longest

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, SHOULD, Observer, Rules, Witness
from acp_check.record import Exchange, Json, Record, WireLine
from acp_check.verdicts import Level, RuleSource
from acp_check.watcher import (
    ARGUMENT,
    FENCE,
    FILE,
    FORM,
    LATE,
    LIMIT,
    LONG,
    LOOKS,
    OWN,
    OWN_LINES,
    PRINTS_LONG,
    RUNS_ON,
    SET,
    SHOWS,
    STATUS,
)
from acp_wire.errors import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND

RULES = Rules()

NO_TOUR = "the client saw no tour: it sent no prompt, or left before it"
REQUESTS = RuleSource("Extensibility", "Custom Requests")
FILES = "File System"
TERMINALS = "Terminals"


def was_given_up(record: Record, asked: WireLine) -> bool:
    """Return True if a question was still open when its turn was over."""
    return any(
        it.asked.session_id == asked.session_id
        and it.answer is not None
        and it.asked.number < asked.number < it.answer.number
        for it in record.exchanges("client", "session/prompt")
    )


def was_passed_over(record: Record, asked: WireLine) -> bool:
    """Return True if the client answered a later question, but not this one.

    One that answers nothing more may be slow, or its person may have closed it: at any moment.
    """
    exchanges = record.exchanges("agent")
    return any(it.asked.number > asked.number and it.answer is not None for it in exchanges)


# -- what no client knows ---------------------------------------------------------------------


def _fences(record: Record, behind: str) -> list[Exchange]:
    return [it for it in record.exchanges("agent", FENCE) if it.asked.params["behind"] == behind]


@RULES.observer("client.unknown-request", MUST, REQUESTS, NO_TOUR)
def unknown_request(record: Record, witness: Witness) -> None:
    """An unknown request is answered."""
    for fence in _fences(record, ""):
        if fence.answer is None and was_passed_over(record, fence.asked):
            witness.accuse("the client did not answer, but answers later requests", fence.asked)
        if fence.answer is not None:
            witness.saw()


@RULES.observer("client.unknown-request-error", SHOULD, REQUESTS, NO_TOUR)
def unknown_request_error(record: Record, witness: Witness) -> None:
    """An unknown request gets -32601, and is survived."""
    for first in _fences(record, "")[:1]:
        behind = record.since(first.asked.number)
        if first.answer is None and record.ended and not any(it.by == "client" for it in behind):
            witness.accuse("the client left when it was sent this request", first.asked)
    for fence in record.exchanges("agent", FENCE):
        if fence.answer is not None:
            is_unknown = fence.error.get("code") == METHOD_NOT_FOUND
            witness.check(is_unknown, "the answer is not -32601", *fence.lines)


def still_answers(record: Record, witness: Witness, behind: str, level: Level = SHOULD) -> None:
    """Accuse a client that answers no fence after something that it was sent.

    One that leaves then breaks no MUST, because its person may have closed it.
    """
    if any(it.answer is None for it in _fences(record, "")):
        return  # the client answers no unknown request at all
    for fence in _fences(record, behind):
        has_left = bool(record.ended) and level is not MUST
        if fence.answer is None and (has_left or was_passed_over(record, fence.asked)):
            message = record.lines[max(fence.asked.number - 1, 0)]
            why = "after this message, the client did not answer a request"
            witness.accuse(why, message, fence.asked)
            return
        if fence.answer is not None:
            witness.saw()


def _copes(behind: str, sentence: str, level: Level) -> Observer:
    """Return an observer that checks that the client still answers after a step of the tour."""

    def copes(record: Record, witness: Witness) -> None:
        still_answers(record, witness, behind, level)

    copes.__doc__ = sentence
    return copes


OPTIONS = "Session Config Options"

for _id, _level, _source, _behind, _sentence in (
    (
        "client.unknown-notification",
        SHOULD,
        RuleSource("Extensibility", "Custom Notifications"),
        "notification",
        "An unknown notification is ignored.",
    ),
    (
        "client.unknown-cancel",
        EXPECTED,
        RuleSource("Cancellation", "`$/cancel_request` Notification"),
        "cancel",
        "The client copes with the cancellation of an unknown request.",
    ),
    (
        "client.unknown-update",
        EXPECTED,
        RuleSource("Extensibility", ""),
        "update",
        "The client copes with an update of an unknown kind.",
    ),
    (
        "client.unknown-category",
        MUST,
        RuleSource(OPTIONS, "Option Categories"),
        "category",
        "The client copes with a config option of an unknown category.",
    ),
    (
        "client.unknown-option-type",
        SHOULD,
        RuleSource(OPTIONS, "Default Values and Graceful Degradation"),
        "type",
        "The client copes with a config option of an unknown type.",
    ),
    (
        "client.unknown-completion",
        MUST,
        RuleSource("Elicitation", "URL completion"),
        "completion",
        "The completion of an unknown elicitation is ignored.",
    ),
):
    RULES.observer(_id, _level, _source, NO_TOUR)(_copes(_behind, _sentence, _level))


# -- files ------------------------------------------------------------------------------------


def _file_calls(record: Record, *, own: bool = False) -> Iterator[tuple[Exchange, str | None]]:
    """Yield each use of the tour's file that was answered, and what the client has written there
    before, None for nothing; or of the file that the agent writes itself, its `own`."""
    written: dict[str, str] = {}
    for exchange in record.exchanges("agent", "fs/read_text_file", "fs/write_text_file"):
        path = str(exchange.asked.params.get("path"))
        name = os.path.basename(path)
        is_own = name.startswith(FILE + OWN)
        if not name.startswith(FILE) or is_own is not own or exchange.answer is None:
            continue
        yield exchange, written.get(path)
        if exchange.asked.method == "fs/write_text_file" and "result" in exchange.answer.message:
            written[path] = str(exchange.asked.params["content"])


def _is_read(exchange: Exchange) -> bool:
    return exchange.asked.method == "fs/read_text_file"


def _same_text(found: object, wanted: str) -> bool:
    """Return True for one text, however its lines end, and with a last line end or without."""
    return isinstance(found, str) and found.splitlines() == wanted.splitlines()


@RULES.observer(
    "client.file-created", MUST, RuleSource(FILES, "Writing Files"), "no file was written"
)
def file_created(record: Record, witness: Witness) -> None:
    """Writing a missing file creates it."""
    writes = [it for it, _ in _file_calls(record) if not _is_read(it)]
    for first in writes[:1]:
        if not first.is_refused:
            witness.saw()
            continue
        is_missed = first.error.get("code") == RESOURCE_NOT_FOUND
        if is_missed or any(not it.is_refused for it in writes[1:]):
            witness.accuse("the client only writes files that exist", *first.lines)


@RULES.observer(
    "client.file-content",
    MUST,
    RuleSource(FILES, "Writing Files"),
    "no file was written and then read",
)
def file_content(record: Record, witness: Witness) -> None:
    """Reading a file returns what was written last."""
    for exchange, written in _file_calls(record):
        params = exchange.asked.params
        if written is None or not _is_read(exchange) or {"line", "limit"} & params.keys():
            continue
        if exchange.is_refused and exchange.error.get("code") != RESOURCE_NOT_FOUND:
            continue  # a disk may fail
        is_same = _same_text(exchange.result.get("content"), written)
        witness.check(is_same, f"the file's text is {written!r}", *exchange.lines)


@RULES.observer(
    "client.file-exact",
    EXPECTED,
    RuleSource(FILES, "Reading Files"),
    "no file of the agent was read",
)
def file_exact(record: Record, witness: Witness) -> None:
    """A file is read and written as UTF-8, with its white space."""
    for exchange, written in _file_calls(record, own=True):
        if _is_read(exchange) and "content" in exchange.result:
            text = OWN_LINES if written is None else written
            # There is another rule for a text that is not written at all.
            is_same = any(_same_text(exchange.result["content"], it) for it in (OWN_LINES, text))
            witness.check(is_same, f"the file's text is {text!r}", *exchange.lines)


@RULES.observer(
    "client.file-lines", MUST, RuleSource(FILES, "Reading Files"), "no part of a file was read"
)
def file_lines(record: Record, witness: Witness) -> None:
    """`line` counts from 1, and reading returns `limit` lines from there."""
    is_kept = False
    for exchange, written in _file_calls(record):
        params = exchange.asked.params
        if written is None or not _is_read(exchange):
            continue
        if not {"line", "limit"} & params.keys():
            is_kept = _same_text(exchange.result.get("content"), written)
            continue
        if not is_kept:
            continue  # another rule has that
        first = params.get("line", 1) - 1
        lines = written.splitlines(keepends=True)[first:]
        wanted = "".join(lines[: params.get("limit", len(lines))])
        is_same = _same_text(exchange.result.get("content"), wanted)
        witness.check(is_same, f"these lines are {wanted!r}", *exchange.lines)


@RULES.observer(
    "client.file-missing", EXPECTED, RuleSource(FILES, "Reading Files"), "no missing file was read"
)
def file_missing(record: Record, witness: Witness) -> None:
    """Reading a missing file gets an error."""
    calls = [it for it, _ in _file_calls(record)]
    for exchange in calls[:1]:
        if _is_read(exchange):
            witness.check(
                exchange.is_refused, "the request was answered with a result", *exchange.lines
            )


# -- terminals --------------------------------------------------------------------------------

NO_TERMINAL = "no terminal was created, or no command ran in it"
RUNNING = RuleSource(TERMINALS, "Executing Commands")
RELEASING = RuleSource(TERMINALS, "Releasing Terminals")


class UsedTerminal:
    """A terminal of the tour: `made` is its creation, `uses` all that followed, in order."""

    def __init__(self, made: Exchange, uses: list[Exchange]) -> None:
        self.made = made
        self.uses = uses

    def of(self, method: str) -> list[Exchange]:
        """Return the uses by this method that were answered."""
        name = f"terminal/{method}"
        return [it for it in self.uses if it.asked.method == name and it.answer is not None]

    def first(self, method: str) -> Exchange | None:
        """Return the first use by this method that was answered."""
        return next(iter(self.of(method)), None)


def _terminals(record: Record, command: str) -> Iterator[UsedTerminal]:
    """Yield the terminals in which a command of the tour ran, to its end or not."""
    made = [
        it for it in record.exchanges("agent", "terminal/create") if it.result.get("terminalId")
    ]
    doubled = {exchange.result["terminalId"] for exchange in _duplicates(record)}
    for number, exchange in enumerate(made):
        if exchange.result["terminalId"] in doubled:
            continue  # another rule has that
        line = (exchange.asked.params.get("args") or ["", ""])[1]
        if not line.startswith(command):
            continue
        # The id of a terminal may be used again when it was released.
        id = exchange.result["terminalId"]
        again = (it.asked.number for it in made[number + 1 :] if it.result["terminalId"] == id)
        until = next(again, len(record.lines))
        uses = [
            it
            for it in record.exchanges("agent")
            if it.asked.params.get("terminalId") == id
            and exchange.asked.number < it.asked.number < until
        ]
        found = UsedTerminal(exchange, uses)
        # No shell: nothing ran.
        if not any(it.result.get("exitCode") in (126, 127) for it in found.of("wait_for_exit")):
            yield found


def _duplicates(record: Record) -> list[Exchange]:
    """Return the creations of terminals with the id of one that was not released."""
    found: list[Exchange] = []
    unreleased: set[object] = set()
    for exchange in record.exchanges("agent", "terminal/create", "terminal/release"):
        if exchange.asked.method == "terminal/release":
            unreleased.discard(exchange.asked.params.get("terminalId"))
        elif (id := exchange.result.get("terminalId")) is not None:
            if id in unreleased:
                found.append(exchange)
            unreleased.add(id)
    return found


@RULES.observer("client.terminal-ids", MUST, RUNNING, NO_TERMINAL)
def terminal_ids(record: Record, witness: Witness) -> None:
    """Terminals at the same time have different ids."""
    for exchange in record.exchanges("agent", "terminal/create"):
        if "terminalId" in exchange.result:
            witness.saw()
    for exchange in _duplicates(record):
        witness.accuse("another terminal has this id", *exchange.lines)


@RULES.observer("client.terminal-command", MUST, RUNNING, NO_TERMINAL)
def terminal_command(record: Record, witness: Witness) -> None:
    """A command gets its arguments, its environment variables and its folder."""
    for terminal in _terminals(record, SHOWS):
        output = terminal.first("output")
        if output is None or output.answer is None or "result" not in output.answer.message:
            continue
        witness.saw()
        text = str(output.result.get("output"))
        shown = re.search(r"([^|]*)\|([^|]*)\|([^\r\n]*)", text)
        variable, argument, folder = shown.groups() if shown else ("", "", "")
        cwd = str(terminal.made.asked.params["cwd"])
        lines = (terminal.made.asked, *output.lines)
        if ARGUMENT not in argument:
            witness.accuse(f"the command did not get its argument {ARGUMENT!r}", *lines)
        elif not variable.endswith(SET):
            witness.accuse(f"the command did not get its variable {SET!r}", *lines)
        elif os.path.realpath(folder.strip()) != os.path.realpath(cwd):
            witness.accuse(f"the command did not run in its folder {cwd!r}", *lines)


@RULES.observer(
    "client.terminal-exit", MUST, RuleSource(TERMINALS, "Waiting for Exit"), NO_TERMINAL
)
def terminal_exit(record: Record, witness: Witness) -> None:
    """`wait_for_exit` and the output report a command's exit status."""
    why = f"the command ended with {STATUS}"
    for terminal in _terminals(record, SHOWS):
        for waited in terminal.of("wait_for_exit"):
            witness.check(waited.result.get("exitCode") == STATUS, why, *waited.lines)
            if (output := terminal.first("output")) is not None:
                status = output.result.get("exitStatus")
                if not isinstance(status, dict) or status.get("exitCode") != STATUS:
                    witness.accuse(why, *output.lines)


@RULES.observer("client.terminal-at-once", MUST, RUNNING, NO_TERMINAL)
def terminal_at_once(record: Record, witness: Witness) -> None:
    """A terminal's id is returned at once, an exit status only after the end."""
    for terminal in _terminals(record, RUNS_ON):
        made, output = terminal.made, terminal.first("output")
        if output is None or output.answer is None or made.answer is None:
            continue
        witness.saw()
        if output.result.get("exitStatus") is None:
            continue
        asked = made.asked.at
        if made.answer.at - asked > bounds.TERMINAL_SECONDS:
            witness.accuse("the id was only returned after the command had ended", *made.lines)
        elif output.answer.at - asked < bounds.TERMINAL_SECONDS:
            witness.accuse("it has an exit status, but the command still runs", *output.lines)


@RULES.observer("client.terminal-limit", MUST, RUNNING, NO_TERMINAL)
def terminal_limit(record: Record, witness: Witness) -> None:
    """Output beyond `outputByteLimit` is cut at its beginning, between characters, and marked."""
    for terminal in _terminals(record, PRINTS_LONG):
        output = terminal.first("output")
        text = output and output.result.get("output")
        if output is None or not isinstance(text, str):
            continue
        witness.saw()
        if len(text.encode("utf-8", "surrogatepass")) > LIMIT:
            witness.accuse(f"the output has more than {LIMIT} bytes", *output.lines)
        elif not text or not LONG.endswith(text):
            witness.accuse("the output is not the end of what was printed", *output.lines)
        elif output.result.get("truncated") is not True:
            witness.accuse("`truncated` is not true", *output.lines)


@RULES.observer(
    "client.terminal-kill", MUST, RuleSource(TERMINALS, "Killing Commands"), "no command was killed"
)
def terminal_kill(record: Record, witness: Witness) -> None:
    """After a kill the output and status can still be read."""
    for terminal in _terminals(record, RUNS_ON):
        output = terminal.first("output")
        if output is not None and output.result.get("exitStatus"):
            continue  # the command had ended before
        for killed in terminal.of("kill"):
            if killed.is_refused:
                continue
            witness.saw()
            later = [it for it in terminal.uses if it.asked.number > killed.asked.number]
            for use, following in zip_longest(later, later[1:]):
                asked, is_late = use.asked, False
                if use.answer is None:
                    is_late = was_given_up(record, asked) and was_passed_over(record, asked)
                elif following is not None:  # answered after that was sent?
                    is_late = use.answer.number > following.asked.number
                if asked.method == "terminal/wait_for_exit" and is_late:
                    witness.accuse("the command does not end", killed.asked, use.asked)
                elif use.asked.method != "terminal/release" and use.is_refused:
                    witness.accuse("the terminal no longer exists", killed.asked, *use.lines)
                elif use.result.get("exitCode") == 0:
                    witness.accuse("the command ran to its end", killed.asked, *use.lines)


@RULES.observer(
    "client.terminal-released", MUST, RELEASING, "no terminal was released and used again"
)
def terminal_released(record: Record, witness: Witness) -> None:
    """A released terminal's id is no longer valid."""
    for terminal in _terminals(record, SHOWS):
        for released in terminal.of("release"):
            for use in terminal.of("output"):
                if use.asked.number > released.asked.number:
                    witness.check(use.is_refused, "the id still works", released.asked, *use.lines)


@RULES.observer(
    "client.terminal-release-ends",
    MUST,
    RELEASING,
    "no terminal was released while its command ran",
)
def terminal_release_ends(record: Record, witness: Witness) -> None:
    """Releasing a terminal kills its running command."""
    for terminal in _terminals(record, LATE):
        released = terminal.first("release")
        if released is None or released.answer is None or released.is_refused:
            continue
        if released.answer.at - terminal.made.asked.at >= bounds.LATE_COMMAND_SECONDS:
            continue  # the command may have been over
        for looked in _terminals(record, LOOKS):
            for output in looked.of("output"):
                has_ended = "alive" not in str(output.result.get("output")).splitlines()
                witness.check(has_ended, "the command ran on", *released.lines, *output.lines)


# -- forms ------------------------------------------------------------------------------------


@RULES.observer(
    "client.form-content", SHOULD, RuleSource("Elicitation", "Responses"), "no form was accepted"
)
def form_content(record: Record, witness: Witness) -> None:
    """The values in a form fit its schema."""
    for exchange in record.exchanges("agent", "elicitation/create"):
        is_form = exchange.asked.params.get("requestedSchema") == FORM
        if not is_form or exchange.result.get("action") != "accept":
            continue
        content = exchange.result.get("content")
        given: Json = content if isinstance(content, dict) else {}
        loaves = given.get("loaves")
        fits = (
            given.keys() == FORM["properties"].keys()
            and given["bread"] in FORM["properties"]["bread"]["enum"]
            and isinstance(loaves, int | float)
            and not isinstance(loaves, bool)
            and loaves in range(1, 10)
        )
        witness.check(fits, "the values do not fit the schema", *exchange.lines)
