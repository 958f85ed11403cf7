"""`acphold check`: its reports, its baseline, its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from acp_check.rules import CHECKS
from acphold.faces.cli.command_line import Exit
from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.faulty_agent import command
from tests.plugin import Until


def agent(fault: str = "") -> tuple[str, ...]:
    """The command of the bundled agent, with one fault."""
    return ("--", *command(fault))


ONLY = ("--only", "initialize.info", "--only", "initialize.answer*")


def test_an_agent_that_keeps_the_rules_ends_with_zero(acphold: CommandLine) -> None:
    done = acphold.run("check", *ONLY, *agent())
    assert done.code == Exit.OK
    assert "2 passed" in done.out
    assert "exemplar 1" in done.out


def test_reports_are_compared_on_one_page(acphold: CommandLine, tmp_path: Path) -> None:
    files = [tmp_path / "good.json", tmp_path / "bad.json"]
    for file, fault in zip(files, ("", "initialize.info"), strict=True):
        acphold.run("check", *ONLY, "--report", str(file), *agent(fault))
    told = acphold.run("check", "--compare", *map(str, files))
    assert told.code == Exit.OK
    head, _, counts, *rows = told.out.splitlines()
    assert head.startswith("| | level | exemplar 1 | ")
    assert counts == "| all | | 2 ✓ 0 ✗ | 1 ✓ 1 ✗ |"
    [row] = [row for row in rows if "`initialize.info`" in row]
    assert "The agent reports its name and version." in row
    assert "/protocol/v1/initialization#implementation-information" in row
    assert row.endswith("| SHOULD | ✓ | ✗ |")
    page = tmp_path / "page.html"
    acphold.run("check", "--compare", *map(str, files), "--report", str(page))
    assert '<tr id="initialize.info">' in page.read_text(encoding="utf-8")


def test_what_is_no_report_cannot_be_compared(acphold: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("[]", encoding="utf-8")
    done = acphold.run("check", "--compare", str(other))
    assert done.code == Exit.USAGE
    assert "not a report" in done.err


@pytest.mark.slow
def test_what_is_said_of_an_agent_without_a_fault_fits_a_screen(
    acphold: CommandLine, tmp_path: Path
) -> None:
    report = tmp_path / "report.txt"
    demo = (sys.executable, "-m", "acphold", "demo-agent")
    done = acphold.run("check", "--report", str(report), "--", *demo)
    assert done.code == Exit.OK
    assert len(done.out.splitlines()) <= 40
    assert "--verbose" in done.out
    assert "not advertised: " not in done.out
    assert "not observable: " in report.read_text(encoding="utf-8")


def test_a_failure_shows_the_rule_its_source_and_the_lines(acphold: CommandLine) -> None:
    done = acphold.run("check", "--fail-on", "should", *ONLY, *agent("initialize.info"))
    assert done.code == Exit.ERROR
    assert "✗ initialize.info  SHOULD · Initialization, “Implementation Information”" in done.out
    assert "/protocol/v1/initialization#implementation-information" in done.out
    assert '→ {"jsonrpc":"2.0"' in done.out
    again = shlex.join(["--only", "initialize.info", *agent("initialize.info")])
    assert f"run again: acphold check {again}" in done.out
    assert "SHOULD    0 passed, 1 failed, 0 not seen" in done.out
    assert "1 passed, 1 failed" in done.out


def test_the_level_from_which_a_failure_counts_decides_the_exit_code(acphold: CommandLine) -> None:
    mild = acphold.run("check", *ONLY, *agent("initialize.info"))
    assert mild.code == Exit.OK
    assert "1 failure below MUST does not count; --fail-on should counts it" in mild.out
    named = ("--only", "initialize.same-version", *agent("initialize.same-version"))
    assert acphold.run("check", *named).code == Exit.ERROR
    relied_on = ("--only", "session.unknown-id", *agent("session.unknown-id"))
    assert acphold.run("check", "--fail-on", "should", *relied_on).code == Exit.OK
    assert acphold.run("check", "--fail-on", "expected", *relied_on).code == Exit.ERROR
    assert acphold.run("check", "--fail-on", "often", *relied_on).code == Exit.USAGE


def test_a_baseline_makes_a_known_failure_good(acphold: CommandLine, tmp_path: Path) -> None:
    baseline = tmp_path / "known.txt"
    baseline.write_text("# nameless\ninitialize.info  # since ever\n", encoding="utf-8")
    known = ("--baseline", str(baseline), "--fail-on", "should")
    done = acphold.run("check", *known, *ONLY, *agent("initialize.info"))
    assert done.code == Exit.OK
    assert "1 passed, 1 failed as expected" in done.out
    stale = acphold.run("check", *known, *ONLY, *agent())
    assert stale.code == Exit.ERROR
    assert "initialize.info passes now" in stale.out


def test_a_baseline_with_an_id_that_does_not_exist_is_refused(
    acphold: CommandLine, tmp_path: Path
) -> None:
    baseline = tmp_path / "known.txt"
    baseline.write_text("initialise.info\n", encoding="utf-8")
    done = acphold.run("check", "--baseline", str(baseline), *agent())
    assert done.code == Exit.USAGE
    assert "initialise.info" in done.err


def test_a_run_writes_a_report_of_each_format_and_the_trace(
    acphold: CommandLine, tmp_path: Path
) -> None:
    names = ("r.xml", "r.sarif", "r.html", "r.md", "r.json", "r.txt", "badge.json")
    reports = [word for name in names for word in ("--report", str(tmp_path / name))]
    trace = tmp_path / "trace.jsonl"
    words = ("--fail-on", "should", "--json", *reports, "--trace", str(trace), *ONLY)
    done = acphold.run("check", *words, *agent("initialize.info"))
    assert done.code == Exit.ERROR
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
    acphold: CommandLine, tmp_path: Path
) -> None:
    for path in ("report.pdf", f"{tmp_path}/none/report.xml"):
        done = acphold.run("check", "--report", path, "--", "/no/such/agent")
        assert done.code == Exit.USAGE
        assert path in done.err


def test_the_stderr_of_an_agent_stands_beside_its_failure_and_in_the_trace(
    acphold: CommandLine, tmp_path: Path
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
    done = acphold.run("check", *words, "--", sys.executable, str(program))
    assert done.code == Exit.ERROR
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
    acphold: CommandLine, tmp_path: Path, until: Until, number: signal.Signals
) -> None:
    program, asked = tmp_path / "hangs.py", tmp_path / "asked"
    program.write_text(HANGS.format(path=str(asked)), encoding="utf-8")
    trace, report = tmp_path / "trace.jsonl", tmp_path / "report.json"
    words = ("check", "--trace", str(trace), "--report", str(report))
    running = subprocess.Popen(
        [*ACPHOLD, *words, "--", sys.executable, str(program)],
        env=acphold.environment,
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
    acphold: CommandLine, tmp_path: Path
) -> None:
    program = tmp_path / "hangs.py"
    program.write_text(HANGS.format(path=str(tmp_path / "asked")), encoding="utf-8")
    began = time.monotonic()
    done = acphold.run("check", "--json", "--within", "4", "--", sys.executable, str(program))
    assert time.monotonic() - began < SECONDS
    verdicts = {it["id"]: it["verdict"] for it in json.loads(done.out)["checks"]}
    assert verdicts["initialize.answer"] == "pass"
    assert verdicts["load.order"] == "not observable"


def test_the_report_in_the_documentation_is_of_a_real_run(acphold: CommandLine) -> None:
    page = (Path(__file__).parents[2] / "check/docs/conformance.md").read_text(encoding="utf-8")
    report = r"^\$ acphold check (--only [^\n]*) -- my-agent --acp\n(exemplar .*?)^```"
    [(options, shown)] = re.findall(report, page, re.MULTILINE | re.DOTALL)
    done = acphold.run("check", *shlex.split(options), *agent("cancel.stop-reason"))
    told = done.out.replace(shlex.join(command("cancel.stop-reason")), "my-agent --acp")

    def lasting(text: str) -> list[str]:
        """Without the command in the head, which is as wide as it is, ids and times."""
        text = text[text.index("\n\n") :]
        return re.sub(r'"id":\d+|in [0-9.]+ s', "…", text).splitlines()

    assert lasting(told) == lasting(shown)


def test_the_list_has_every_check_and_starts_nothing(acphold: CommandLine) -> None:
    done = acphold.run("check", "--list", "--json")
    assert done.code == Exit.OK
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [
        check.rule.id for check in CHECKS
    ]
    assert "Session Setup" in acphold.run("check", "--list", "--only", "new").out


def test_what_cannot_be_used_is_named(acphold: CommandLine) -> None:
    nothing = acphold.run("check")
    assert nothing.code == Exit.USAGE
    assert "after `--`" in nothing.err
    odd = acphold.run("check", "--only", "no.such", *agent())
    assert odd.code == Exit.USAGE
    assert "no.such" in odd.err
    missing = acphold.run("check", "--", "/no/such/agent")
    assert missing.code == Exit.AGENT


def test_on_a_terminal_it_tells_what_it_checks(acphold: CommandLine) -> None:
    done = acphold.on_terminal("check", *ONLY, *agent())
    assert done.code == Exit.OK
    assert "2/2 initialize.info" in done.plain  # the first may be over before it is drawn


def watched(acphold: CommandLine, *options: str, said: list[dict[str, object]]) -> tuple[int, str]:
    """Exit code and output of `check --client` for a client that writes these lines and leaves."""
    lines = b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in said)
    done = subprocess.run(
        [*ACPHOLD, "check", "--client", *options],
        input=lines,
        capture_output=True,
        env=acphold.environment,
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


def test_each_start_offers_a_client_other_capabilities_if_it_is_asked_to(
    acphold: CommandLine,
) -> None:
    said = [watched(acphold, "--offers", "next", said=[HELLO])[1] for _ in range(6)]
    names = [report.partition("advertising '")[2].partition("'")[0] for report in said]
    assert names == ["some", "others", "none", "version", "all", "some"]


def test_a_client_is_watched_and_the_report_goes_to_stderr(acphold: CommandLine) -> None:
    code, report = watched(acphold, said=[HELLO])
    assert code == Exit.OK
    assert "editor 2" in report
    assert "✗" not in report


def test_a_client_that_breaks_a_rule_is_told_in_the_file(
    acphold: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    deleting = {"id": 2, "method": "session/delete", "params": {"sessionId": "s"}}
    code, printed = watched(acphold, "--report", str(path), said=[HELLO, deleting])
    assert (code, printed) == (Exit.ERROR, "")
    found = json.loads(path.read_text(encoding="utf-8"))
    failed = [check["id"] for check in found["checks"] if check["verdict"] == "fail"]
    assert "client.advertised-methods" in failed


def test_a_report_takes_the_place_of_no_pipe_or_device(
    acphold: CommandLine, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    watched(acphold, "--report", str(pipe), said=[HELLO])
    assert b"editor 2" in os.read(reading, 65536)
    os.close(reading)
    assert pipe.is_fifo()


def test_a_report_that_cannot_be_written_is_told_at_once(acphold: CommandLine) -> None:
    code, printed = watched(acphold, "--report", "/no/such/folder/report", said=[])
    assert code == Exit.USAGE
    assert "--report" in printed
