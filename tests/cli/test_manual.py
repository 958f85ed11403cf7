"""`acphold help`: the documents, about a command or a topic; and words that no command has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import acphold as package
from acphold.faces.cli.main import COMMANDS, FAMILIES, MEANT, SAME
from acphold.faces.cli.manual import pages, topic_text
from acphold.version import __version__
from tests.cli.command_line import CommandLine


def test_help_alone_lists_the_commands_and_the_pages(acphold: CommandLine) -> None:
    done = acphold.run("help")
    assert done.code == 0
    assert "  setup       Put acphold" in done.out
    assert "  import        Import\n" in done.out


def test_about_each_command_there_is_something_to_read(acphold: CommandLine) -> None:
    for command in (*COMMANDS, *FAMILIES):
        done = acphold.run("help", *command.split())
        assert done.code == 0
        assert f"acphold {command}" in done.out


def test_a_page_is_read_whole_and_a_topic_is_a_part_of_one(acphold: CommandLine) -> None:
    assert acphold.run("help", "quickstart").out.startswith("# Quickstart\n")
    codes = acphold.run("help", "exit", "codes").out
    assert codes.startswith("## Exit codes\n")
    assert "\n## " not in codes
    settings = acphold.run("help", "settings").out
    assert "### Alerts" in settings, "what is below a heading belongs to it"
    assert "# for all agents\n" in settings, "a comment in some code is no heading"


def test_a_page_that_is_called_like_a_command_stands_behind_what_is_said_of_the_command(
    acphold: CommandLine,
) -> None:
    told = acphold.run("help", "export").out
    assert told.index("### `acphold export") < told.index("# Export\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["serach"], "no topic 'serach': `acphold help search`?"),
        (["tags"], "no topic 'tags': `acphold help session tag`?"),
        (["sandbox"], "no topic 'sandbox': `acphold help access places` or "),
        (["find"], "no topic 'find': `acphold help search`?"),
        (["quux"], "no topic 'quux'; `acphold help` lists the pages"),
        (["options"], "is ambiguous: `acphold help Common options"),
    ],
)
def test_a_topic_that_is_none_or_several_is_told_with_what_may_be_meant(
    acphold: CommandLine, words: list[str], why: str
) -> None:
    done = acphold.run("help", *words)
    assert (done.code, done.out) == (2, "")
    assert why in done.err


def test_on_a_terminal_a_page_is_laid_out_in_the_width_that_there_is(acphold: CommandLine) -> None:
    shown = acphold.shown("help", "the journal", columns=40).plain.splitlines()
    assert shown[0] == "  The journal"
    assert max(map(len, shown)) <= 40
    assert "`" not in "".join(shown)
    told = " ".join(acphold.shown("help", "use").plain.split())
    assert "see Serve (acphold help serve), A team (acphold help team)" in told


def test_a_word_that_no_command_has_is_told_with_the_command_that_is_meant(
    acphold: CommandLine,
) -> None:
    for typed, meant in (*MEANT.items(), ("serach", "search")):
        done = acphold.run(typed)
        assert done.code == 2, typed
        topic = meant.removeprefix("help ")
        if meant.partition(" --")[0] in {*COMMANDS, *SAME} or topic_text(topic):
            assert f"no command '{typed}' (`{meant}`?)" in done.err


def test_the_name_of_an_agent_is_told_with_the_command_that_talks_to_it(
    acphold: CommandLine,
) -> None:
    assert "no command 'claude' (`chat claude`?)" in acphold.run("claude").err
    assert (
        "no command 'session unpin' (`session pin --undo`?)"
        in acphold.run("session", "unpin", "x").err
    )


@pytest.mark.parametrize("typed", ["pagination", "Grüße, 你好"])
def test_a_word_that_is_like_no_command_is_one_to_search(acphold: CommandLine, typed: str) -> None:
    told = f"no command {typed!r}; `acphold search {shlex.quote(typed)}` searches your"
    assert told in acphold.run(typed).err


def test_some_commands_are_found_by_the_names_that_people_type_out_of_habit(
    acphold: CommandLine,
) -> None:
    assert acphold.run("find", "x").all == acphold.run("search", "x").all
    assert acphold.run("ls").all == acphold.run("list").all
    assert acphold.run("status").all == acphold.run("agent", "status").all
    assert acphold.run("stop").all == acphold.run("agent", "stop").all
    assert "acphold agent stop [OPTIONS] [ID]" in acphold.run("stop", "--help").out
    assert acphold.run("version").out == f"acphold {__version__}\n"
    assert not {*SAME, *MEANT} & {*COMMANDS}


def test_pages_that_messages_name_are_there() -> None:
    for path in Path(package.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for topic in re.findall(r"`acphold help ([a-z][a-z ]*)`", text):
            assert topic_text(topic), f"{path.name} names {topic!r}"
    assert pages()
