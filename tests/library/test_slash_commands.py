from __future__ import annotations

import pytest

from acp_wire.schema import ContentBlock, ResourceLink, TextContent
from acphold.library.session import arguments, missing, slash_command
from acphold.mcp_servers.offers import Prompt, PromptArgument


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/plan", ("plan", "")),
        ("/plan  two words ", ("plan", "two words")),
        ("/plan\ntwo\nlines", ("plan", "two\nlines")),
        ("/", ("", "")),
        ("no /plan", None),
        ("", None),
    ],
)
def test_a_command_is_the_first_word_behind_a_slash(
    text: str, found: tuple[str, str] | None
) -> None:
    assert slash_command((TextContent(text=text),)) == found


def test_a_prompt_that_begins_with_no_text_is_no_command() -> None:
    link: ContentBlock = ResourceLink(name="/plan", uri="file:///plan")
    assert slash_command((link,)) is None
    assert slash_command(()) is None


def prompt(*names: str, required: tuple[str, ...] = ()) -> Prompt:
    made = [PromptArgument(name, required=name in required) for name in names]
    return Prompt(name="p", server="s", arguments=tuple(made))


@pytest.mark.parametrize(
    ("names", "words", "found"),
    [
        (("a",), "all of it", {"a": "all of it"}),
        (("a", "b"), "one 'two three'", {"a": "one", "b": "two three"}),
        (("a", "b"), "one two three", {"a": "one", "b": "two three"}),
        (("a", "b"), "b=2 a='1 1'", {"a": "1 1", "b": "2"}),
        (("a", "b"), "one", {"a": "one"}),
        (("a", "b"), "it's fine", {"a": "it's", "b": "fine"}),
        (("a",), "", {}),
        ((), "ignored", {}),
    ],
)
def test_words_become_the_arguments_of_a_prompt(
    names: tuple[str, ...], words: str, found: dict[str, str]
) -> None:
    assert arguments(prompt(*names), words) == found


def test_arguments_that_are_needed_and_not_given_are_named() -> None:
    assert missing(prompt("a", "b", "c", required=("a", "c")), {"a": ""}) == ["c"]
