"""The command: its reports, its baseline, its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec import Struct

from acp_check.checks import inspect
from acp_check.command import main
from acp_check.console import stdout_console
from acp_check.exemplar import Exemplar
from acp_check.report import CheckOutcome, print_report, text_report
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.usage import CheckExit
from tests.faulty_agent import command
from tests.memory_subject import MemorySubject
from tests.played_shell import PlayedShell
from tests.plugin import Until
from tests.virtual_time import play

pytestmark = pytest.mark.slow

CHECK = (sys.executable, "-m", "acp_check")
SECONDS = 60.0
"""Longest run of any command."""


class Done(Struct):
    """A command that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of earlier runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""

    def run(*words: str) -> Done:
        return Done(main(words), *capsys.readouterr())

    return run


def agent(fault: str = "") -> tuple[str, ...]:
    """The command of the bundled agent, with one fault."""
    return ("--", *command(fault))


ONLY = ("--only", "initialize.info", "--only", "initialize.answer*")


def test_reports_are_compared_on_one_page(run: Run, tmp_path: Path) -> None:
    files = [tmp_path / "good.json", tmp_path / "bad.json"]
    for file, fault in zip(files, ("", "initialize.info"), strict=True):
        run(*ONLY, "--report", str(file), *agent(fault))
    told = run("--compare", *map(str, files))
    assert told.code == CheckExit.OK
    head, _, counts, *rows = told.out.splitlines()
    assert head.startswith("||exemplar 1|")
    assert counts == "|all|2 ✓ 0 ✗|1 ✓ 1 ✗|"
    broken, kept = rows
    assert "[`initialize.info`](https://agentclientprotocol.com/protocol/v1/" in broken
    assert broken.endswith("initialization#implementation-information)|✓|✗|")
    assert "[`initialize.answer`]" in kept
    file = tmp_path / "page.html"
    run("--compare", *map(str, files), "--report", str(file))
    page = file.read_text(encoding="utf-8")
    assert '<tr id="initialize.info">' in page
    assert "The agent reports its name and version." in page


def test_what_is_no_report_cannot_be_compared(run: Run, tmp_path: Path) -> None:
    (other := tmp_path / "other.json").write_text("[]", encoding="utf-8")
    done = run("--compare", str(other))
    assert done.code == CheckExit.USAGE
    assert "not a report" in done.err


def test_what_is_said_of_an_agent_without_a_fault_fits_a_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = [check for check in CHECKS if check.rule.group != "mcp"]  # servers are programs
    checking = inspect(MemorySubject.of(Exemplar), checks, CheckSettings(), shell=PlayedShell)
    outcome = CheckOutcome(play(checking))
    print_report(outcome, stdout_console())
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= 40
    assert "--verbose" in told
    assert "not advertised: " not in told
    assert "not observable: " in text_report(outcome)
    assert "\n✓ pass  ? not observable\n" in told


def test_the_level_from_which_a_failure_counts_decides_the_exit_code(run: Run) -> None:
    mild = run(*ONLY, *agent("initialize.info"))
    assert mild.code == CheckExit.OK
    assert "1 failure below MUST does not count; --fail-on should counts it" in mild.out
    named = ("--only", "initialize.same-version", *agent("initialize.same-version"))
    assert run(*named).code == CheckExit.ERROR
    relied_on = ("--only", "session.unknown-id", *agent("session.unknown-id"))
    assert run("--fail-on", "should", *relied_on).code == CheckExit.OK
    assert run("--fail-on", "expected", *relied_on).code == CheckExit.ERROR
    assert run("--fail-on", "often", *relied_on).code == CheckExit.USAGE


def test_a_baseline_makes_a_known_failure_good(run: Run, tmp_path: Path) -> None:
    baseline = tmp_path / "known.txt"
    baseline.write_text("# nameless\ninitialize.info  # since ever\n", encoding="utf-8")
    known = ("--baseline", str(baseline), "--fail-on", "should")
    done = run(*known, *ONLY, *agent("initialize.info"))
    assert done.code == CheckExit.OK
    assert "1 passed, 1 failed as expected" in done.out
    stale = run(*known, *ONLY, *agent())
    assert stale.code == CheckExit.ERROR
    assert "initialize.info passes now" in stale.out


def test_a_baseline_with_an_id_that_does_not_exist_is_refused(run: Run, tmp_path: Path) -> None:
    (baseline := tmp_path / "known.txt").write_text("initialise.info\n", encoding="utf-8")
    done = run("--baseline", str(baseline), *agent())
    assert done.code == CheckExit.USAGE
    assert "initialise.info" in done.err


def test_a_run_writes_a_report_of_each_format_and_the_trace(run: Run, tmp_path: Path) -> None:
    names = ("r.xml", "r.sarif", "r.html", "r.md", "r.json", "r.txt", "badge.json")
    reports = [word for name in names for word in ("--report", str(tmp_path / name))]
    trace = tmp_path / "trace.jsonl"
    words = ("--fail-on", "should", "--json", *reports, "--trace", str(trace), *ONLY)
    done = run(*words, *agent("initialize.info"))
    assert done.code == CheckExit.ERROR
    texts = {name: (tmp_path / name).read_text(encoding="utf-8") for name in names}

    found = json.loads(done.out)
    assert json.loads(texts["r.json"]) == found
    assert found["agent"] == {"name": "exemplar", "version": ""}
    assert found["good"] is False
    assert [check["verdict"] for check in found["checks"]] == ["pass", "fail"]
    assert found["checks"][1]["excerpt"]
    assert found["tiers"]["SHOULD"] == {"passed": 0, "failed": 1, "unseen": 0}

    (suite,) = ElementTree.fromstring(texts["r.xml"])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    assert [case.get("name") for case in suite] == ["initialize.answer", "initialize.info"]
    (result,) = json.loads(texts["r.sarif"])["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("initialize.info", "warning")
    assert '<article id="initialize.info">' in texts["r.html"]
    assert "<code>initialize.info</code> SHOULD" in texts["r.md"]
    assert "✗ initialize.info" in texts["r.txt"]
    assert json.loads(texts["badge.json"])["message"] == "1/1 MUST, 0/1 SHOULD"

    lines = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["message"]["method"] == "initialize"
    assert (lines[0]["at"], lines[0]["connection"], lines[0]["from"]) == (0, 1, "client")
    assert "agent" in {line["from"] for line in lines}


def test_a_report_of_an_unknown_kind_is_refused_before_anything_starts(
    run: Run, tmp_path: Path
) -> None:
    for path in ("report.pdf", f"{tmp_path}/none/report.xml"):
        done = run("--report", path, "--", "/no/such/agent")
        assert done.code == CheckExit.USAGE
        assert path in done.err


def test_a_folder_that_holds_no_others_is_refused_before_anything_starts(
    run: Run, tmp_path: Path
) -> None:
    (file := tmp_path / "file").touch()
    for path in (f"{tmp_path}/none", f"{file}"):
        done = run("--folder", path, "--", "/no/such/agent")
        assert (done.code, done.out) == (CheckExit.USAGE, "")
        assert f"--folder {path}: " in done.err


def test_the_stderr_of_an_agent_stands_beside_its_failure_and_in_the_trace(
    run: Run, tmp_path: Path
) -> None:
    program = tmp_path / "loud agent.py"
    program.write_text(
        """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print("who was that?\\x1b[31m", file=sys.stderr, flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": {}}), flush=True)
""",
        encoding="utf-8",
    )
    trace = tmp_path / "trace.jsonl"
    words = ("--only", "initialize.answer", "--trace", str(trace))
    done = run(*words, "--", sys.executable, str(program))
    assert done.code == CheckExit.ERROR
    assert "stderr: who was that?\\x1b[31m" in done.out
    told = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    said = [line["text"] for line in told if line["from"] == "stderr"]
    assert said[0] == "who was that?\x1b[31m"


HANGS = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] != "initialize":
        open({path!r}, "w")
        time.sleep(600)
    result = {{"protocolVersion": 1, "agentCapabilities": {{}}}}
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_ended_by_a_signal_tells_what_it_has_seen(
    tmp_path: Path, until: Until, number: signal.Signals
) -> None:
    program, asked = tmp_path / "hangs.py", tmp_path / "asked"
    program.write_text(HANGS.format(path=str(asked)), encoding="utf-8")
    trace, report = tmp_path / "trace.jsonl", tmp_path / "report.json"
    words = ("--trace", str(trace), "--report", str(report))
    running = subprocess.Popen(
        [*CHECK, *words, "--", sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    until(asked.exists)
    running.send_signal(number)
    told, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + number
    assert "initialize       ✓" in told
    verdicts = {it["id"]: it["verdict"] for it in json.loads(report.read_text())["checks"]}
    assert verdicts["initialize.answer"] == verdicts["json-rpc.version"] == "pass"
    assert verdicts["prompt.answer"] == "not observable"
    first = trace.read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["message"]["method"] == "initialize"


def test_a_check_of_an_agent_that_hangs_ends_in_the_time_that_it_is_given(
    run: Run, tmp_path: Path
) -> None:
    program = tmp_path / "hangs.py"
    program.write_text(HANGS.format(path=str(tmp_path / "asked")), encoding="utf-8")
    began = time.monotonic()
    done = run("--json", "--within", "4", "--", sys.executable, str(program))
    assert time.monotonic() - began < SECONDS
    verdicts = {it["id"]: it["verdict"] for it in json.loads(done.out)["checks"]}
    assert verdicts["initialize.answer"] == "pass"
    assert verdicts["load.order"] == "not observable"


def test_a_time_limit_counts_from_the_start_of_the_process(tmp_path: Path) -> None:
    (program := tmp_path / "hangs.py").write_text(HANGS.format(path=str(tmp_path / "asked")))
    late = "import sys, time; time.sleep(3); from acp_check.command import main; sys.exit(main())"
    words = ["--json", "--within", "6", "--", sys.executable, str(program)]
    done = subprocess.run(
        [sys.executable, "-c", late, *words], capture_output=True, timeout=SECONDS, check=False
    )
    # Half of it was over, and the report may take as long.
    assert json.loads(done.stdout)["seconds"] < 3


STAYS = """\
import asyncio, signal, time
from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_wire.transports.stdio import stdio_transport
signal.signal(signal.SIGTERM, signal.SIG_IGN)
asyncio.run(Exemplar(stdio_transport(), Memory()).serve())
time.sleep(1000)
"""


def test_an_agent_that_does_not_end_delays_the_end_of_no_check(run: Run, tmp_path: Path) -> None:
    (program := tmp_path / "stays.py").write_text(STAYS, encoding="utf-8")
    began = time.monotonic()
    done = run("--json", "--within", "10", "--", sys.executable, str(program))
    assert time.monotonic() - began < 20  # it takes twice as long to end each of its processes
    assert json.loads(done.out)["checks"]


def test_the_list_has_every_check_and_starts_nothing(run: Run) -> None:
    done = run("--list", "--json")
    assert done.code == CheckExit.OK
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [
        check.rule.id for check in CHECKS
    ]
    assert "Session Setup" in run("--list", "--only", "new").out


def watched(*options: str, said: list[dict[str, object]]) -> tuple[int, str]:
    """Exit code and output of `check --client` for a client that writes these lines and leaves."""
    lines = b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in said)
    done = subprocess.run(
        [*CHECK, "--client", *options],
        input=lines,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stderr.decode()


WHO = {"name": "editor", "version": "2"}
HELLO = {
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": WHO},
}


def test_each_start_offers_a_client_other_capabilities_if_it_is_asked_to() -> None:
    said = [watched("--offers", "next", said=[HELLO])[1] for _ in range(6)]
    names = [report.partition("advertising '")[2].partition("'")[0] for report in said]
    assert names == ["some", "others", "none", "version", "all", "some"]


def test_a_client_is_watched_and_the_report_goes_to_stderr() -> None:
    code, report = watched(said=[HELLO])
    assert code == CheckExit.OK
    assert "editor 2" in report
    assert "✗" not in report


def test_a_client_that_breaks_a_rule_is_told_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    deleting = {"id": 2, "method": "session/delete", "params": {"sessionId": "s"}}
    code, printed = watched("--report", str(path), said=[HELLO, deleting])
    assert (code, printed) == (CheckExit.ERROR, "")
    found = json.loads(path.read_text(encoding="utf-8"))
    failed = [check["id"] for check in found["checks"] if check["verdict"] == "fail"]
    assert "client.advertised-methods" in failed


def test_a_report_takes_the_place_of_no_pipe_or_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    watched("--report", str(pipe), said=[HELLO])
    assert b"editor 2" in os.read(reading, 65536)
    os.close(reading)
    assert pipe.is_fifo()


def test_a_report_that_cannot_be_written_is_told_at_once() -> None:
    code, printed = watched("--report", "/no/such/folder/report", said=[])
    assert code == CheckExit.USAGE
    assert "--report" in printed
