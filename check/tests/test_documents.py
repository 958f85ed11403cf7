"""docs/rules.md and docs/conformance.md: current, and about rules that exist."""

from __future__ import annotations

import re

from acp_check.rules import CHECKS
from acp_check.rules.clients import CHECKS as CLIENT_CHECKS
from acp_check.verdicts import Verdict
from docs.rule_tables import PAGE, page

CONFORMANCE = PAGE.with_name("conformance.md").read_text(encoding="utf-8")


def test_the_page_of_rules_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_rule_that_the_page_names_exists() -> None:
    known = {check.rule.id for check in (*CHECKS, *CLIENT_CHECKS)}
    groups = "|".join(sorted({check.rule.group for check in (*CHECKS, *CLIENT_CHECKS)}))
    named = set(re.findall(rf"`((?:{groups})\.[a-z0-9-]+)`", CONFORMANCE))
    assert named
    assert named <= known


def test_every_verdict_is_explained() -> None:
    assert {
        verdict.value for verdict in Verdict if f"| {verdict.value} |" not in CONFORMANCE
    } == set()


def test_each_rule_of_the_page_has_its_page_and_section_at_the_protocol_s_site() -> None:
    rules = [check.rule for check in (*CHECKS, *CLIENT_CHECKS)]
    told = re.findall(r"^- \[`(.+)`\]\((.+?)\): ", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(told) == sorted((rule.id, rule.source.url) for rule in rules)
