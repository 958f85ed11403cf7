"""The reports of `acphold check` stay readable for their programs, whatever an agent sends."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from itertools import count
from xml.etree import ElementTree

import msgspec
import pytest
from markdown_it import MarkdownIt

from acp_check.checks import CheckReport
from acp_check.record import Record, trace
from acp_check.report import CheckOutcome, excerpt
from acp_check.report_files import WRITERS, badge_report
from acp_check.verdicts import Finding, Level, Rule, RuleSource, Verdict
from acp_wire.schema import Implementation

HOSTILE = (
    "</code></pre></p><script>alert(1)</script><img src=x onerror=alert(1)> \"' ]]> &amp; "
    "```` ` ``` </details> | [a](javascript:alert(1)) @everyone #1 \x1b[31m \u202e \x00 \udc80 ￾"
)
SOURCE = RuleSource("Session Setup", "Loading a Session")


def record_of(*texts: str) -> Record:
    """A connection with a request and the agent's lines."""
    record, at = Record(f"main {HOSTILE}", {}), count()
    record.add(float(next(at)), "client", b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
    for text in texts:
        record.add(float(next(at)), "agent", text.encode("utf-8", "surrogatepass"))
    return record


def outcome_of(record: Record, failures: int = 1, level: Level = Level.MUST) -> CheckOutcome:
    """An outcome in which this many rules fail, by all of the record, and one was not seen."""
    findings = [
        Finding(
            Rule(f"load.rule-{index}", "A load replays all.", level, SOURCE),
            Verdict.FAIL,
            f"it said {HOSTILE}",
            tuple(record.lines),
            0.5,
            (HOSTILE,),
        )
        for index in range(failures)
    ]
    noted = Rule("extension.members", "Members are the protocol's.", Level.MUST, SOURCE)
    findings.append(Finding(noted, Verdict.PASS, f"of a draft: {HOSTILE}"))
    unseen = Rule("list.pages", "Pages come in order.", Level.SHOULD, SOURCE)
    findings.append(Finding(unseen, Verdict.NOT_OBSERVABLE, f"it wrote {HOSTILE}"))
    agent = Implementation(name=HOSTILE, version=HOSTILE)
    report = CheckReport(f"agent {HOSTILE}", agent, tuple(findings), 1.5, [record])
    return CheckOutcome(report, again=(("acphold", "check"), ("--", "agent", HOSTILE)))


@pytest.fixture
def hostile() -> CheckOutcome:
    message = {"jsonrpc": "2.0", "method": "session/update", "params": {"text": HOSTILE}}
    return outcome_of(record_of(json.dumps(message), HOSTILE))


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


def test_nothing_that_an_agent_says_becomes_markup_of_the_page(hostile: CheckOutcome) -> None:
    page = WRITERS[".html"](hostile)
    calm = WRITERS[".html"](outcome_of(record_of("{}", "x")))
    tags, plain = Tags(), Tags()
    tags.feed(page)
    plain.feed(calm)
    assert tags.found == plain.found
    assert "script" not in tags.found
    assert "default-src 'none'" in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    page.encode()


def test_nothing_that_an_agent_says_becomes_markup_of_a_comment(hostile: CheckOutcome) -> None:
    text = WRITERS[".md"](hostile)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    raw = "".join(it.content for it in (*tokens, *inside) if it.type.startswith("html_"))
    assert "script" not in raw
    assert "img" not in raw
    assert raw.count("<details>") == raw.count("</details>") == 2
    links = [it.attrs["href"] for it in inside if it.type == "link_open"]
    assert {str(link).partition("#")[0] for link in links} == {SOURCE.url.partition("#")[0]}
    said = "".join(it.content for it in inside if it.type == "text")
    assert "@everyone" not in said  # in code it calls nobody


def test_a_comment_fits_however_much_fails() -> None:
    record = record_of(*(json.dumps({"text": "x" * 5000}) for _ in range(80)))
    text = WRITERS[".md"](outcome_of(record, failures=200))
    assert len(text) <= 65_536
    assert "load.rule-199" in text
    assert text.count("\n<details>") == text.count("\n</details>\n")


def test_xml_and_json_stay_readable(hostile: CheckOutcome) -> None:
    (suite,) = ElementTree.fromstring(WRITERS[".xml"](hostile).encode())
    (failed, passed, skipped) = suite
    assert len(passed) == 0
    assert "<script>" in failed[0].get("message", "")
    assert skipped[0].tag == "skipped"
    for ending in (".json", ".sarif"):
        text = WRITERS[ending](hostile)
        json.loads(text)
        assert "\x1b" not in text
        assert "\u202e" not in text
        text.encode()


def test_a_sarif_log_has_what_github_asks_for(hostile: CheckOutcome) -> None:
    """See "SARIF support for code scanning" in the documentation of GitHub."""
    log = json.loads(WRITERS[".sarif"](hostile))
    assert log["version"] == "2.1.0"
    assert "sarif-2.1.0" in log["$schema"]
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    for rule in rules:
        assert rule["id"]
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
    (result,) = run["results"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["message"]["text"]
    assert result["partialFingerprints"]["primaryLocationLineHash"]
    for place in result["locations"]:
        assert not place["physicalLocation"]["artifactLocation"]["uri"].startswith("/")
        assert place["physicalLocation"]["region"]["startLine"] == 1


def test_a_test_report_has_what_gitlab_and_jenkins_read(hostile: CheckOutcome) -> None:
    """See "Unit test reports" in the documentation of GitLab; the sums are Jenkins's."""
    suites = ElementTree.fromstring(WRITERS[".xml"](hostile).encode())
    assert suites.tag == "testsuites"
    (suite,) = suites
    cases = suite.findall("testcase")
    for case in cases:
        assert case.get("name")
        assert case.get("classname")
        float(case.get("time", ""))
    assert suite.get("tests") == str(len(cases))
    assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
    assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))


def test_a_failure_that_does_not_count_is_none_in_a_test_report() -> None:
    mild = outcome_of(record_of(), level=Level.SHOULD)
    assert mild.is_good
    (suite,) = ElementTree.fromstring(WRITERS[".xml"](mild))
    assert suite.get("failures") == "0"
    assert "does not count" in suite[0][0].get("message", "")


@pytest.mark.parametrize(
    ("level", "color"),
    [(Level.MUST, "red"), (Level.SHOULD, "yellow"), (Level.EXPECTED, "brightgreen")],
)
def test_a_badge_has_the_colour_of_the_strongest_failure(level: Level, color: str) -> None:
    badge = json.loads(badge_report(outcome_of(record_of(), level=level)))
    assert badge["color"] == color
    assert badge["schemaVersion"] == 1
    assert {"label", "message"} <= badge.keys()


@pytest.mark.parametrize("ending", [".txt", ".md", ".html", ".json"])
def test_what_is_to_be_said_of_a_pass_is_said(ending: str, hostile: CheckOutcome) -> None:
    assert "of a draft: " in WRITERS[ending](hostile)


def test_a_failure_shows_whole_lines_and_many_of_them() -> None:
    lines = record_of(*("x" * 3000 for _ in range(30))).lines
    assert [len(line) for line in excerpt(lines)][1:] == [3002] * 30
    many = excerpt(record_of(*(f"line {n}" for n in range(100))).lines)
    assert (many[1], many[-1]) == ("← line 0", "← line 99")
    assert "61 more lines" in many[20]


def test_the_page_has_the_lines_around_and_says_how_many_are_between() -> None:
    record = record_of(*(f"line {n}." for n in range(60)))
    outcome = outcome_of(record)
    report = outcome.report
    accused = msgspec.structs.replace(report.findings[0], lines=(record.lines[30],))
    shown = CheckOutcome(msgspec.structs.replace(report, findings=(accused,)))
    page = WRITERS[".html"](shown)
    assert page.count('class="from shown"') == 1
    assert "line 24." in page
    assert "line 34." in page
    assert "line 22." not in page
    assert "line 36." not in page
    assert "24 lines left out" in page  # before
    assert page.count("24 lines left out") == 2  # and behind


def test_a_trace_keeps_every_line_as_it_was_in_the_order_of_time() -> None:
    one = record_of('{"id":1, "result":{"z":1,"a":2.50}}', "no JSON \x1b", '{"text":\n"on two"}')
    other = Record("other", {})
    other.add(1.5, "agent", b"\xff\xfe")
    other.stderr.take(2.5, b"half ")
    other.stderr.take(2.75, b"a line\nand a rest")
    lines = list(trace([one, other]))
    assert '"message": {"id":1, "result":{"z":1,"a":2.50}}}' in lines[1]
    told = [json.loads(line) for line in lines]
    assert [line["at"] for line in told] == [0, 1, 1.5, 2, 2.75, 2.75, 3]
    assert told[2]["text"] == "\\xff\\xfe"
    assert told[3]["text"] == "no JSON \x1b"
    assert [line["text"] for line in told[4:6]] == ["half a line", "and a rest"]
    assert told[6]["message"] == {"text": "on two"}
    assert [line["connection"] for line in told] == [1, 1, 2, 1, 2, 2, 1]


def test_a_trace_has_an_end_however_much_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_check.bounds.TRACE_CHARS", 2000)
    monkeypatch.setattr("acp_check.bounds.TRACE_MESSAGE_CHARS", 100)
    lines = list(trace([record_of(*(json.dumps({"text": "x" * 500}) for _ in range(50)))]))
    assert sum(map(len, lines)) < 2100
    cut = json.loads(lines[1])
    assert (len(cut["text"]), cut["characters"]) == (100, 512)
    assert json.loads(lines[-1])["leftOut"] == 51 - (len(lines) - 1)
