"""`acphold check`: which rules of the protocol an agent, a client or a server keeps."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, convert
from rich.console import Console
from rich.status import Status

from acphold.cli import bounds
from acphold.cli.check_files import ReportFiles, json_report, json_rule
from acphold.cli.check_report import CheckOutcome, print_report, print_rules, text_report
from acphold.cli.command_line import Exit, Parser, UsageError, a_name, seconds_above_zero
from acphold.cli.servers import add_ca, server_of
from acphold.cli.settings import chosen_agent
from acphold.cli.terminal_text import console
from acphold.conformance.checks import Check, chosen, inspect
from acphold.conformance.errands import Memory
from acphold.conformance.model_endpoint import answer, endpoint
from acphold.conformance.record import Record
from acphold.conformance.rules import CHECKS
from acphold.conformance.rules.clients import CHECKS as CLIENT_CHECKS
from acphold.conformance.stage import CheckSettings
from acphold.conformance.subject import ProgramSubject, ServerSubject, Subject
from acphold.conformance.verdicts import Level
from acphold.conformance.watcher import OFFERS, Watcher, judged
from acphold.transports.route import TOKEN_VARIABLE
from acphold.transports.runtime_folder import state_folder
from acphold.transports.stdio import stdio_transport


def parser() -> Parser:
    """The arguments of `check`."""
    usage = "[OPTIONS] {AGENT | --server URL | -- CMD...}"
    made = Parser(check, "check", usage, runs_program=True, takes_agent=True)
    made.add_value("--server", "URL", "check the agent of the server at this URL")
    made.add_value(
        "--token",
        "TOKEN",
        "with --server: the access token; not needed for a paired server "
        f"[default: {TOKEN_VARIABLE}]",
    )
    add_ca(made, "with --server")
    made.add_value(
        "--folder",
        "DIR",
        "create the sessions' folders in this one; a server on another machine must see it "
        "under the same path",
    )
    made.add_flag("--json", "print JSON", dest="as_json")
    made.add_repeatable(
        "--report",
        "FILE",
        "also write a report; the ending chooses its format: .html, .md (fits a comment on a pull "
        "request), .sarif, .xml (JUnit), .json, badge.json (shields.io), .txt",
    )
    made.add_value(
        "--trace",
        "FILE",
        "write all messages, and stderr, as JSON lines; secrets in them are not removed",
    )
    made.add_repeatable(
        "--only", "ID", "only checks with this id or in this group; `*` matches anything"
    )
    made.add_flag("--quick", "only the rules of the protocol itself: MUST and SHOULD")
    made.add_value(
        "--fail-on",
        "LEVEL",
        "the weakest level whose failures make the exit code 1: must, should or expected "
        "[default: must]",
        choices=[level.value.lower() for level in Level],
        default="must",
    )
    made.add_flag("--list", "list the checks and exit", dest="lists")
    made.add_value(
        "--baseline",
        "FILE",
        "file of expected failures: one check id per line, `#` starts a comment",
    )
    made.add_flag(
        "--client", "check a client instead: set this command as an agent in its settings"
    )
    made.add_argument(
        "--offers",
        choices=("all", *OFFERS, "next"),
        default="some",
        help="with --client: the capabilities to advertise, to see how a client behaves with and "
        "without them; `version` uses another version of the protocol, `next` takes the next of "
        "these at each start [default: some]",
    )
    made.add_value(
        "--timeout",
        "SECONDS",
        "time limit for each answer; turns and the start get three times as long "
        f"[default: {bounds.CHECK_ANSWER_SECONDS:g}]",
        type=seconds_above_zero,
        default=bounds.CHECK_ANSWER_SECONDS,
    )
    made.add_value(
        "--model-endpoint",
        "PORT",
        "serve a fake model to the agent at http://127.0.0.1:PORT/v1 (OpenAI's chat "
        "completions and responses); 0 picks a free port, for agents that read "
        "OPENAI_BASE_URL",
        type=a_port,
    )
    made.add_value(
        "--sign-in", "METHOD", "sign in first, with this one of the agent's methods", type=a_name
    )
    return made


class _CheckOptions(Struct, frozen=True):
    """The options of the command line, without the agent; see the help."""

    server: str | None
    token: str | None
    ca: str | None
    folder: str | None
    as_json: bool
    report: list[str]
    trace: str | None
    only: list[str]
    quick: bool
    fail_on: str
    lists: bool
    baseline: str | None
    client: bool
    offers: str
    timeout: float
    model_endpoint: int | None
    sign_in: str | None

    @property
    def level(self) -> Level:
        """The weakest level whose failures count."""
        return next(level for level in Level if level.value.lower() == self.fail_on)

    def again(self, program: Sequence[str]) -> list[str]:
        """Return the words that check the same agent again, after those that name the rule."""
        is_usual = self.timeout == bounds.CHECK_ANSWER_SECONDS
        given = (
            ("--server", self.server),
            ("--ca", self.ca),
            ("--folder", self.folder),
            ("--sign-in", self.sign_in),
            ("--timeout", None if is_usual else f"{self.timeout:g}"),
            ("--model-endpoint", None if self.model_endpoint is None else str(self.model_endpoint)),
        )
        words = [word for option, value in given if value is not None for word in (option, value)]
        return ["acphold", *words, *(["--", *program] if program else [])]


def check(*, agent: str | None, program: tuple[str, ...], **given: object) -> int:
    """Check an agent, a client or a server against the protocol.

    CMD starts the agent as an editor would; AGENT is a name from the settings file. acphold sends
    the agent every request that an editor can send, in temporary folders, and restarts it where a
    check needs that. Each check names the paragraph it comes from. A rule that could not be
    observed never counts as passed.

      acphold check -- gemini --acp

    With --server it checks the agent of a server: `acphold serve`, or another one that speaks ACP
    over WebSocket and HTTP. Checks that need a local program are skipped.

    With --client it acts as an agent and checks the editor that starts it: set `acphold check
    --client --report FILE` as the agent's command there. Any prompt will do; acphold updates the
    report in FILE after each turn.

    The exit code is 1 if a check of level MUST (see --fail-on) fails and is not in the baseline, or
    if a check in the baseline passes.
    """
    options = convert(given, _CheckOptions)
    catalogue = CLIENT_CHECKS if options.client else CHECKS
    patterns = [pattern for word in options.only for pattern in word.split(",") if pattern]
    for pattern in patterns:
        if not chosen(catalogue, [pattern]):
            raise UsageError(
                f"no check is called {pattern!r}; `acphold check --list` lists all of them"
            )
    checks = [
        check
        for check in chosen(catalogue, patterns)
        if not options.quick or check.rule.level is not Level.EXPECTED
    ]
    if options.lists:
        rules = [check.rule for check in checks]
        if options.as_json:
            for rule in rules:
                print(json.dumps(json_rule(rule), ensure_ascii=False))
        else:
            print_rules(rules, console())
        return Exit.OK
    program = chosen_agent(agent, program).command
    expected = _baseline(catalogue, options.baseline)
    files = ReportFiles(options.report, options.trace)
    if options.client:
        if program or options.server or options.model_endpoint is not None:
            raise UsageError(
                "--client cannot be combined with an agent, --server or --model-endpoint"
            )
        made = ClientCheck(checks, expected, options.level, files, options.as_json, options.offers)
        return made.run()

    if bool(program) is (options.server is not None):
        raise UsageError(
            "give an agent's command after `--`, as in `acphold check -- CMD`, or a --server"
        )
    return _check_agent(options, program, checks, expected, files)


def _check_agent(
    options: _CheckOptions,
    program: Sequence[str],
    checks: Sequence[Check],
    expected: frozenset[str],
    files: ReportFiles,
) -> int:
    """Check the agent of a program or of a server, and write the reports."""
    settings = CheckSettings(
        timeout=options.timeout,
        sign_in=options.sign_in,
        named=frozenset(options.only),
        folder=options.folder,
    )
    with _model(options.model_endpoint) as env, _progress(len(checks)) as on_check:
        subject = ProgramSubject(program, env) if options.server is None else _far_subject(options)
        records: list[Record] = []
        try:
            inspecting = inspect(subject, checks, settings, on_check=on_check, records=records)
            report = asyncio.run(inspecting)
        except BaseException:
            files.write_trace(records)
            raise
    outcome = CheckOutcome(report, expected, options.level, options.again(program))
    files.write(outcome)
    if options.as_json:
        print(json_report(outcome), end="")
    else:
        print_report(outcome, console())
        takes_model = any(TAKES_MODEL in it.why for it in report.findings)
        if options.model_endpoint is None and takes_model:
            print(
                "Some checks need a model that follows instructions: use --model-endpoint PORT",
                file=sys.stderr,
            )
    return Exit.OK if outcome.is_good else Exit.ERROR


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _far_subject(options: _CheckOptions) -> Subject:
    """Return the server that `--server` names, with a token for it; raises UsageError."""
    from acphold.cli.remote import paired  # late: it brings HTTP

    server = server_of(options.server, ca=options.ca)
    assert server is not None, "it is given"
    if options.folder is None and urlsplit(server.url).hostname not in LOOPBACK:
        raise UsageError(
            "the server must see the sessions' folders: name one with --folder that it has "
            "under the same path, or run the check on its machine"
        )
    token = options.token or asyncio.run(paired(server))
    url = server.url.partition("#")[0]
    return ServerSubject(url, token, seconds=options.timeout, ca=server.ca)


def _baseline(catalogue: Sequence[Check], path: str | None) -> frozenset[str]:
    """Return the ids in a baseline."""
    if path is None:
        return frozenset()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--baseline {path}: {error}") from None
    ids = [line.partition("#")[0].strip() for line in lines]
    known = [check.rule.id for check in catalogue]
    for id in filter(None, ids):
        if id not in known:
            raise UsageError(f"--baseline {path}: no check is called {id!r}")
    return frozenset(ids) - {""}


TAKES_MODEL = "the agent did not"
"""The beginning of reasons from checks that need a model to act."""


@contextmanager
def _model(port: int | None) -> Iterator[dict[str, str]]:
    """Run the stand-in model in this block; yields the variables that lead an agent to it."""
    if port is None:
        yield {}
        return
    try:
        with endpoint(answer, port) as found:
            yield {
                "OPENAI_BASE_URL": found.url,
                "OPENAI_API_BASE": found.url,
                "OPENAI_API_KEY": "none",
                "OPENAI_MODEL": "stand-in",
            }
    except OSError as error:
        raise UsageError(f"--model-endpoint {port}: {error.strerror}") from None


def a_port(text: str) -> int:
    """Parse an option that takes a TCP port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is required, or 0 for any")
    return int(text)


@contextmanager
def _progress(count: int) -> Iterator[Callable[[Check], None]]:
    """Show on a terminal, in a line on stderr, the check that runs."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    done = 0

    def show(check: Check) -> None:
        nonlocal done
        done += 1
        status.update(f"{done}/{count} {check.rule.id}")

    with Status("starting the agent", console=Console(stderr=True)) as status:
        yield show


# -- a client --------------------------------------------------------------------------------

LAST_OFFERS = "check-offers"
"""The file in the folder for state that has the capabilities of the last start with `next`."""


def next_offers() -> str:
    """Return the name of the capabilities behind those of the last start, and note it; OSError."""
    names = (*OFFERS, "all")
    path = os.path.join(state_folder(), LAST_OFFERS)
    os.makedirs(state_folder(), 0o700, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # an editor may start two at once
        file.seek(0)
        last = file.read()
        name = names[(names.index(last) + 1) % len(names)] if last in names else names[0]
        file.truncate(0)
        file.write(name)
    return name


class ClientCheck:
    """One run: the record so far. Without `files` the report goes to stderr, at the end. `offers`
    names the capabilities that are advertised, `next` those of the next start."""

    def __init__(
        self,
        checks: Sequence[Check],
        expected: frozenset[str],
        fail_on: Level,
        files: ReportFiles,
        as_json: bool,
        offers: str,
    ) -> None:
        self._checks = checks
        self._expected = expected
        self._fail_on = fail_on
        self._files = files
        self._as_json = as_json
        self._offers = next_offers() if offers == "next" else offers
        if offers == "next":
            print(f"acphold check: advertising {self._offers!r} this time", file=sys.stderr)
        self._record = Record("the client", {})
        self._began = time.monotonic()

    def run(self) -> int:
        """Serve until the client leaves or we are told to end; returns the exit code."""
        self._write()  # an unwritable file is reported before an editor is started
        asyncio.run(self._serve())
        outcome = self._write()
        if not self._files:
            text = json_report(outcome) if self._as_json else text_report(outcome)
            # Stdout is the protocol's.
            print(text, end="", file=sys.stderr, flush=True)
        return Exit.OK if outcome.is_good else Exit.ERROR

    async def _serve(self) -> None:
        watcher = Watcher(
            stdio_transport(),
            Memory(),
            self._record,
            self._write,  # a check that is killed has reported all turns before its end
            self._offers,
        )
        serving = asyncio.ensure_future(watcher.serve())
        # Editors end agents by SIGTERM as well, some without closing stdin first.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    def _write(self) -> CheckOutcome:
        seconds = time.monotonic() - self._began
        report = judged(self._checks, self._record, seconds)
        outcome = CheckOutcome(report, self._expected, self._fail_on)
        self._files.write(outcome)
        return outcome
