"""The check of an agent, a client or a server as a command: its options, and what it prints."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct, convert

from acp_check import bounds
from acp_check.checks import Check, CheckReport, checks_to_play, choose, inspect
from acp_check.console import stdout_console
from acp_check.record import Record
from acp_check.report import CheckOutcome, print_report, print_rules
from acp_check.report_files import ReportFiles, json_report, json_rule, write_file
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.subject import ProgramSubject, ServerSubject, Subject
from acp_check.usage import OFFERS, CheckExit, CheckUsageError
from acp_check.verdicts import Level
from acp_check.version import __version__
from acp_wire.errors import AcpError, AgentStartError
from acp_wire.transports.known_servers import origin_of
from acp_wire.transports.route import TOKEN_VARIABLE
from acp_wire.visible_text import visible

NAME: Final = "acp-check"

DESCRIPTION: Final = """\
Check an agent, a client or a server against the Agent Client Protocol.

CMD starts the agent as an editor would. It is sent every request that an editor can send, in
temporary folders, and is restarted where a check needs that. Each check names the paragraph it
comes from. A rule that could not be observed never counts as passed.

  acp-check -- gemini --acp

With --client it acts as an agent and checks the editor that starts it: set `acp-check --client
--report FILE` as the agent's command there. Any prompt will do; the report in FILE is updated after
each turn.

The exit code is 1 if a check of level MUST (see --fail-on) fails and is not in the baseline, or if
a check in the baseline passes.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    began = process_start() if arguments is None else time.monotonic()
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    end = words.index("--") if "--" in words else len(words)
    try:
        given = vars(_Parser().parse_args(words[:end]))
        return check(program=tuple(words[end + 1 :]), name=NAME, began=began, **given)
    except CheckUsageError as error:
        return _fail(error, CheckExit.USAGE)
    except AgentStartError as error:
        return _fail(error, CheckExit.AGENT)
    except AcpError as error:
        return _fail(error, CheckExit.ERROR)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as before `| head`
        return CheckExit.OK
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def process_start() -> float:
    """Return when this process was started, by the monotonic clock; where nothing tells it, when it
    would have been if it had only computed since."""
    now = time.monotonic()
    age = time.process_time()
    with suppress(OSError, ValueError, IndexError):  # proc_pid_stat(5), field 22
        ticks = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()[19]
        since_boot = float(Path("/proc/uptime").read_text("ascii").split()[0])
        age = max(age, since_boot - int(ticks) / os.sysconf("SC_CLK_TCK"))
    return now - age


def _fail(error: Exception, code: int) -> int:
    print(visible(f"{NAME}: {error}"), file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    def __init__(self) -> None:
        super().__init__(
            prog=NAME,
            usage=f"{NAME} [OPTIONS] {{--server URL | --client | -- CMD...}}",
            description=DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--version", action="version", version=f"{NAME} {__version__}")
        add_options(self)

    def error(self, message: str) -> NoReturn:
        raise CheckUsageError(f"{message.removeprefix('argument ')}; see `{NAME} --help`")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a check."""
    add = parser.add_argument
    add("--server", metavar="URL", help="check the agent of the server at this URL")
    add(
        "--token",
        metavar="TOKEN",
        help=f"with --server: the access token [default: {TOKEN_VARIABLE}]",
    )
    trusted = "with --server: also trust the certificates in this file"
    add("--ca", metavar="FILE", help=trusted)
    add(
        "--folder",
        metavar="DIR",
        help="create the sessions' folders in this one; a server on another machine must see it "
        "under the same path",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")
    add("--verbose", action="store_true", help="print why something was not seen, too")
    add(
        "--report",
        metavar="FILE",
        action="append",
        default=[],
        help="also write a report; the ending chooses its format: .html, .md (fits a comment on a "
        "pull request), .sarif, .xml (JUnit), .json, badge.json (shields.io), .txt; repeatable",
    )
    add(
        "--trace",
        metavar="FILE",
        help="write all messages, and stderr, as JSON lines; secrets in them are not removed",
    )
    add(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="only checks with this id or in this group, and what they need to be played; `*` "
        "matches anything; repeatable",
    )
    add(
        "--fail-on",
        metavar="LEVEL",
        help="the weakest level whose failures make the exit code 1: must, should or expected "
        "[default: must]",
        choices=[level.value.lower() for level in Level],
        default="must",
    )
    add("--list", action="store_true", dest="lists", help="list the checks and exit")
    add(
        "--compare",
        metavar="REPORT",
        nargs="+",
        default=[],
        help="instead of a check: print a page, in Markdown, with the programs of these reports "
        "(of --json) as columns and the rules as rows; --report FILE.html or FILE.md writes it",
    )
    add(
        "--baseline",
        metavar="FILE",
        help="file of expected failures: one check id per line, `#` starts a comment",
    )
    add(
        "--client",
        action="store_true",
        help="check a client instead: set this command as an agent in its settings",
    )
    add(
        "--offers",
        choices=("all", *OFFERS, "next"),
        default="some",
        help="with --client: the capabilities to advertise, to see how a client behaves with and "
        "without them; `version` uses another version of the protocol, `next` takes the next of "
        "these at each start [default: some]",
    )
    add(
        "--timeout",
        metavar="SECONDS",
        help="time limit for each answer; turns and the start get three times as long, and an MCP "
        "server is to be contacted within a quarter "
        f"[default: {bounds.TIMEOUT_SECONDS:g}]",
        type=_seconds,
        default=bounds.TIMEOUT_SECONDS,
    )
    add(
        "--model-endpoint",
        metavar="PORT",
        help="serve a fake model to the agent at http://127.0.0.1:PORT/v1 (OpenAI's chat "
        "completions and responses); 0 picks a free port, for agents that read "
        "OPENAI_BASE_URL",
        type=_port,
    )
    add(
        "--within",
        metavar="SECONDS",
        help="time limit for the whole check: what was not seen by then is reported as such",
        type=_seconds,
    )
    signing = "sign in first, with this one of the agent's methods"
    add("--sign-in", metavar="METHOD", help=signing, type=_name)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text) or not float(text):
        why = "a number of seconds above 0 is required, such as 2.5"
        raise argparse.ArgumentTypeError(f"{text!r}: {why}")
    return float(text)


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: a name is required")
    return text.strip()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is required, or 0 for any")
    return int(text)


class _CheckOptions(Struct, frozen=True):
    """The options of the command line; see the help. `name` is the command's own."""

    name: str
    server: str | None
    token: str | None
    ca: str | None
    folder: str | None
    as_json: bool
    verbose: bool
    report: list[str]
    trace: str | None
    only: list[str]
    fail_on: str
    lists: bool
    compare: list[str]
    baseline: str | None
    client: bool
    offers: str
    timeout: float
    model_endpoint: int | None
    sign_in: str | None
    within: float | None
    began: float

    @property
    def level(self) -> Level:
        """The weakest level whose failures count."""
        return next(level for level in Level if level.value.lower() == self.fail_on)

    def again(self, program: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the words that check the same agent again, before and after those that name the
        rule."""
        is_usual = self.timeout == bounds.TIMEOUT_SECONDS
        given = (
            ("--server", self.server),
            ("--ca", self.ca),
            ("--folder", self.folder),
            ("--sign-in", self.sign_in),
            ("--timeout", None if is_usual else f"{self.timeout:g}"),
            ("--model-endpoint", None if self.model_endpoint is None else str(self.model_endpoint)),
        )
        words = [word for option, value in given if value is not None for word in (option, value)]
        return self.name.split(), [*words, *(["--", *program] if program else [])]


def check(*, program: tuple[str, ...], name: str, began: float, **given: object) -> int:
    """Check an agent, a client or a server against the protocol; return the exit code.

    `program` starts the agent; `name` is the command as it is typed, and `began` when it was, by
    the monotonic clock; the rest are the options. Raises CheckUsageError.
    """
    options = convert({**given, "name": name, "began": began}, _CheckOptions)
    catalogue = CHECKS
    if options.client:  # late, as others below: a thin start leaves its time to the check
        from acp_check.rules.clients import CHECKS as catalogue
    patterns = [pattern for word in options.only for pattern in word.split(",") if pattern]
    for pattern in patterns:
        if not choose(catalogue, [pattern]):
            raise CheckUsageError(
                f"no check is called {pattern!r}; `{name} --list` lists all of them"
            )
    checks = choose(catalogue, patterns)
    if options.lists:
        rules = [check.rule for check in checks]
        if options.as_json:
            for rule in rules:
                print(json.dumps(json_rule(rule), ensure_ascii=False))
        else:
            print_rules(rules, stdout_console())
        return CheckExit.OK
    if options.compare:
        from acp_check.comparison import markdown_comparison, page_comparison, read_report

        reports = [read_report(path) for path in options.compare]
        if not options.report:
            print(markdown_comparison(reports), end="")
        for path in options.report:
            writer = {".html": page_comparison, ".md": markdown_comparison}.get(Path(path).suffix)
            if writer is None:
                raise CheckUsageError(
                    f"--report {path}: with --compare, the ending is .html or .md"
                )
            write_file("--report", path, [writer(reports)])
        return CheckExit.OK
    expected = _baseline(catalogue, options.baseline)
    files = ReportFiles(options.report, options.trace)
    if options.client:
        if program or options.server or options.model_endpoint is not None:
            raise CheckUsageError(
                "--client cannot be combined with an agent, --server or --model-endpoint"
            )
        from acp_check.client_check import check_client

        return check_client(
            checks,
            expected,
            options.level,
            files,
            as_json=options.as_json,
            offers=options.offers,
        )

    if bool(program) is (options.server is not None):
        raise CheckUsageError(
            f"give an agent's command after `--`, as in `{name} -- CMD`, or a --server"
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
    if options.folder is not None and not os.access(f"{options.folder}/", os.W_OK):
        raise CheckUsageError(f"--folder {options.folder}: no folder can be made in there")
    settings = CheckSettings(
        timeout=options.timeout,
        patience=options.timeout / 4,
        sign_in=options.sign_in,
        named=frozenset(options.only),
        folder=options.folder,
    )
    count = len({check.rule.id for check in (*checks, *checks_to_play(checks, CHECKS))})
    records: list[Record] = []
    outcome: CheckOutcome | None = None

    def tell(report: CheckReport) -> None:
        nonlocal outcome
        outcome = CheckOutcome(report, expected, options.level, options.again(program))
        files.write(outcome)
        if options.as_json:
            print(json_report(outcome), end="", flush=True)
        else:
            print_report(outcome, stdout_console(), verbose=options.verbose)
            sys.stdout.flush()

    with _model(options.model_endpoint) as env, _progress(count) as on_check:
        subject = ProgramSubject(program, env) if options.server is None else _far_subject(options)

        async def play() -> int:
            with _stops(options.within, options.began) as (stop, ended_by):
                await inspect(
                    subject,
                    checks,
                    settings,
                    catalogue=CHECKS,
                    on_check=on_check,
                    on_report=tell,
                    records=records,
                    stop=stop,
                )
                return sum(ended_by)

        try:
            ended_by = asyncio.run(play())
        except BaseException:
            files.write_trace(records)
            raise
    assert outcome is not None
    takes_model = any(TAKES_MODEL in it.why for it in outcome.report.findings)
    if options.model_endpoint is None and takes_model and not options.as_json:
        print(
            "Some checks need a model that follows instructions: use --model-endpoint PORT",
            file=sys.stderr,
        )
    if ended_by:
        return SIGNAL_EXIT + ended_by
    return CheckExit.OK if outcome.is_good else CheckExit.ERROR


SIGNAL_EXIT = 128
"""The exit code for an end by a signal is this and its number, as shells have it."""


@contextmanager
def _stops(seconds: float | None, began: float) -> Iterator[tuple[asyncio.Event, list[int]]]:
    """Yield an event that is set by a signal that ends programs, or in time for the report to be
    done so many seconds after the command began; and the signal, once there is one."""
    loop, stop, ended_by = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    def end(number: int) -> None:
        if not ended_by:
            ended_by.append(number)
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, end, number)
    timer = None
    if seconds is not None:
        start = time.monotonic() - began
        left = seconds - start
        # The report computes as long as the start did: on a busy machine both take longer.
        kept = max(bounds.REPORT_PART * seconds, min(bounds.REPORT_SECONDS, left / 2), start)
        timer = loop.call_later(max(left - kept, 0), stop.set)
    try:
        yield stop, ended_by
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        if timer is not None:
            timer.cancel()


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _far_subject(options: _CheckOptions) -> Subject:
    """Return the server that `--server` names, with a token for it; raises CheckUsageError."""
    url = options.server or ""
    try:
        origin_of(url)
    except ValueError as error:
        raise CheckUsageError(f"--server: {error}") from None
    if options.folder is None and urlsplit(url).hostname not in LOOPBACK:
        raise CheckUsageError(
            "the server must see the sessions' folders: name one with --folder that it has "
            "under the same path, or run the check on its machine"
        )
    token = options.token or os.environ.get(TOKEN_VARIABLE)
    return ServerSubject(url.partition("#")[0], token, seconds=options.timeout, ca=options.ca)


def _baseline(catalogue: Sequence[Check], path: str | None) -> frozenset[str]:
    """Return the ids in a baseline."""
    if path is None:
        return frozenset()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckUsageError(f"--baseline {path}: {error}") from None
    ids = [line.partition("#")[0].strip() for line in lines]
    known = [check.rule.id for check in catalogue]
    for id in filter(None, ids):
        if id not in known:
            raise CheckUsageError(f"--baseline {path}: no check is called {id!r}")
    return frozenset(ids) - {""}


TAKES_MODEL = "the agent did not"
"""The beginning of reasons from checks that need a model to act."""


@contextmanager
def _model(port: int | None) -> Iterator[dict[str, str]]:
    """Run the stand-in model in this block; yields the variables that lead an agent to it."""
    if port is None:
        yield {}
        return
    from acp_check.model_endpoint import answer, endpoint

    try:
        with endpoint(answer, port) as found:
            yield {
                "OPENAI_BASE_URL": found.url,
                "OPENAI_API_BASE": found.url,
                "OPENAI_API_KEY": "none",
                "OPENAI_MODEL": "stand-in",
            }
    except OSError as error:
        raise CheckUsageError(f"--model-endpoint {port}: {error.strerror}") from None


@contextmanager
def _progress(count: int) -> Iterator[Callable[[Check], None]]:
    """Show on a terminal, in a line on stderr, the check that runs."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.status import Status

    done = 0

    def show(check: Check) -> None:
        nonlocal done
        done += 1
        status.update(f"{done}/{count} {check.rule.id}")

    with Status("starting the agent", console=Console(stderr=True)) as status:
        yield show
