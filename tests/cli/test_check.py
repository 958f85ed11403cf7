"""`acphold check`, the command of acp-check under acphold's name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from acphold.faces.cli.command_line import Exit
from tests.cli.command_line import CommandLine
from tests.faulty_agent import command


def agent(fault: str = "") -> tuple[str, ...]:
    """The command of the bundled agent, with one fault."""
    return ("--", *command(fault))


ONLY = ("--only", "initialize.info", "--only", "initialize.answer*")


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


def test_what_cannot_be_used_is_named(acphold: CommandLine) -> None:
    nothing = acphold.run("check")
    assert nothing.code == Exit.USAGE
    assert "after `--`" in nothing.err
    odd = acphold.run("check", "--only", "no.such", *agent())
    assert odd.code == Exit.USAGE
    assert "no.such" in odd.err
    missing = acphold.run("check", "--", "/no/such/agent")
    assert missing.code == Exit.AGENT


def test_an_agent_that_keeps_the_rules_ends_with_zero_and_a_terminal_is_told_what_is_checked(
    acphold: CommandLine,
) -> None:
    done = acphold.on_terminal("check", *ONLY, *agent())
    assert done.code == Exit.OK
    assert "2 passed" in done.plain
    assert "exemplar 1" in done.plain
    assert "2/2 initialize.info" in done.plain  # the first may be over before it is drawn
