"""`acphold check`: its reports, its baseline, its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

from acphold.cli.command_line import Exit
from acphold.conformance.rules import CHECKS
from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.conformance.faulty_agent import command


def agent(fault: str = "") -> tuple[str, ...]:
    """The command of the bundled agent, with one fault."""
    return ("--", *command(fault))


ONLY = ("--only", "initialize.info", "--only", "initialize.answer*")


def test_an_agent_that_keeps_the_rules_ends_with_zero(acphold: CommandLine) -> None:
    done = acphold.run("check", *ONLY, *agent())
    assert done.code == Exit.OK
    assert "2 passed" in done.out
    assert "exemplar 1" in done.out


def test_a_failure_shows_the_rule_its_source_and_the_lines(acphold: CommandLine) -> None:
    done = acphold.run("check", *ONLY, *agent("initialize.info"))
    assert done.code == Exit.ERROR
    assert "✗ initialize.info  SHOULD · Initialization, “Implementation Information”" in done.out
    assert '→ {"jsonrpc":"2.0"' in done.out
    assert "1 passed, 1 failed" in done.out


def test_a_baseline_makes_a_known_failure_good(acphold: CommandLine, tmp_path: Path) -> None:
    baseline = tmp_path / "known.txt"
    baseline.write_text("# nameless\ninitialize.info  # since ever\n", encoding="utf-8")
    known = ("--baseline", str(baseline))
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


def test_programs_read_json_junit_and_markdown(acphold: CommandLine, tmp_path: Path) -> None:
    junit = tmp_path / "report.xml"
    done = acphold.run("check", "--json", "--junit", str(junit), *ONLY, *agent("initialize.info"))
    found = json.loads(done.out)
    assert found["agent"] == {"name": "exemplar", "version": ""}
    assert found["good"] is False
    assert [check["verdict"] for check in found["checks"]] == ["pass", "fail"]
    assert found["checks"][1]["excerpt"]
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    assert [case.get("name") for case in suite] == ["initialize.answer", "initialize.info"]
    table = acphold.run("check", "--markdown", *ONLY, *agent("initialize.info")).out
    assert "| `initialize.info` | SHOULD | **fail** |" in table


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
    assert "behind `--`" in nothing.err
    odd = acphold.run("check", "--only", "no.such", *agent())
    assert odd.code == Exit.USAGE
    assert "no.such" in odd.err
    missing = acphold.run("check", "--", "/no/such/agent")
    assert missing.code == Exit.AGENT


def test_on_a_terminal_it_tells_what_it_checks(acphold: CommandLine) -> None:
    done = acphold.on_terminal("check", *ONLY, *agent())
    assert done.code == Exit.OK
    assert "1/2 initialize.answer" in done.plain


def watched(acphold: CommandLine, *options: str, said: list[dict[str, object]]) -> tuple[int, str]:
    """What `check --client` says of a client that writes these lines and leaves."""
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
    code, printed = watched(acphold, "--json", "--report", str(path), said=[HELLO, deleting])
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
