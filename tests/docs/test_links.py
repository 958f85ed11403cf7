"""The documents lead to each other, and the table of commands is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from acphold.faces.cli.main import COMMANDS, TASKS, split_name
from tests.distributions import FOLDERS, ROOT

PAGES = [
    page
    for folder in FOLDERS.values()
    for page in (folder / "README.md", *sorted((folder / "docs").glob("*.md")))
]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_in_a_page_names_a_command(page: Path) -> None:
    in_settings = r'"command": "[^"]*acphold",\s*"args": \["'
    lines = rf"(?:^\$ acphold |^acphold (?=.* -- )|{in_settings})([a-z][\w -]*)"
    text = page.read_text(encoding="utf-8").replace('", "', " ")
    named = re.findall(lines, text, re.MULTILINE)
    assert {split_name(words.split())[0] for words in named} <= {*COMMANDS}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [
        page.name
        for page in PAGES
        if page.name not in ("README.md", "index.md") and page.name not in index
    ] == []


def test_the_table_of_commands_has_each_that_a_person_calls_by_task_as_the_help_has() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    table = page.partition("| to | commands |\n|---|---|\n")[2].partition("\n\n")[0]
    tasks = {line.split(" | ")[0].strip("| "): line for line in table.splitlines()}
    assert [*tasks] == [*TASKS.values()]
    assert re.findall(r"\[([a-z -]+)\]\(#", table) == [*COMMANDS]


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
