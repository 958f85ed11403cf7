"""docs/decisions.md: numbered in order, each linked with the modules that it explains."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_plan import SOURCES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
DECISIONS = re.findall(r"^### (\d+)\. .+\n((?:(?!##).*\n)+)", PAGE, re.M)
NAMED = {
    int(number): re.findall(r"`([\w/]+\.py)`", text.rpartition("\nCode: ")[2])
    for number, text in DECISIONS
}


def module(name: str) -> Path:
    """The file of a name on the page: below acphold, unless it names another place."""
    package, _, rest = name.partition("/")
    if package == "examples":
        return ROOT / name
    return SOURCES[package] / rest if package in SOURCES else SOURCES["acphold"] / name


def referred(file: Path) -> set[int]:
    """The numbers by which a module refers to the page."""
    text = file.read_text(encoding="utf-8")
    found = re.findall(r"docs/decisions\.md, (\d+(?:(?:, | and )\d+)*)", text)
    assert len(found) == text.count("decisions.md"), f"{file}: written otherwise"
    return {int(number) for each in found for number in re.findall(r"\d+", each)}


def test_decisions_are_numbered_in_order_and_few() -> None:
    assert [*NAMED] == list(range(1, PAGE.count("\n### ") + 1))
    assert len(NAMED) <= 38


def test_a_decision_is_short_and_says_what_it_rejects_and_costs() -> None:
    for number, text in DECISIONS:
        assert len(text.strip().splitlines()) <= 10, number
        assert {"Rejected:", "Cost:", "Code:"} <= set(text.split()), number
        assert text.count("**") == 2, number


def test_a_decision_names_modules_that_refer_to_it() -> None:
    for number, names in NAMED.items():
        assert names, number
        assert [it for it in names if number not in referred(module(it))] == [], number


def test_a_module_refers_to_decisions_that_name_it() -> None:
    for folder in (*SOURCES.values(), ROOT / "examples"):
        for file in folder.rglob("*.py"):
            for number in referred(file):
                assert file in map(module, NAMED.get(number, [])), file
