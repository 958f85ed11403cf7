"""Characters that nobody sees are the same ones for cards, for rules and for redaction."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest

from acp_wire.visible_text import INVISIBLE, exact
from acphold.conversation.history.title_rules import title_by_rule
from acphold.safety.budget import Budget
from acphold.safety.redaction.forgotten import Blanking, ForgottenTexts, mark_of
from acphold.safety.redaction.texts import seen_text
from acphold.safety.standing.programs import UnreadableLine, read_line
from tests.redaction.test_corpus import Said
from tests.redaction.test_steps import KEY, shown

ALL = [*map(chr, range(sys.maxunicode + 1))]
UNSEEN = [char for char in ALL if re.match(f"[{INVISIBLE}]", char) and char not in "\r\x1b"]


def test_every_format_and_control_character_of_unicode_is_on_the_list() -> None:
    named = {char for char in ALL if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
    assert named - {"\t", "\n", "\r", "\x1b"} <= {*UNSEEN}
    assert {"\ufe0f", "\u3164", "\u2800", "\u034f", "\U000e0100"} <= {*UNSEEN}


def test_a_key_with_such_a_character_in_it_is_a_key_and_a_command_with_one_is_not_read() -> None:
    for char in UNSEEN:
        hidden = f"{KEY[:12]}{char}{KEY[12:]}"
        assert seen_text(hidden).text == KEY, ascii(char)
        assert char not in exact(hidden)
        assert isinstance(read_line(f"git sta{char}tus"), UnreadableLine), ascii(char)


@pytest.mark.parametrize("char", ["\ufe0f", "\u034f", "\u3164", "\U000e0041", "\u2062", "\0"])
def test_a_key_with_a_character_that_nobody_sees_is_removed(char: str) -> None:
    found = shown((f"use {KEY[:12]}{char}{KEY[12:]} now",), Budget(10**9))
    assert found == ["use [removed: API key] now"]
    assert title_by_rule(f"Use {KEY[:12]}{char}{KEY[12:]} now") == "Use [removed: API key] now"


@pytest.mark.parametrize("char", ["\0", "\b", "\ufe0f"])
def test_a_forgotten_text_with_a_character_that_nobody_sees_is_removed(char: str) -> None:
    blanking = Blanking(ForgottenTexts([mark_of(KEY)]))
    said = Said(1, "prompt", json.dumps([f"use {KEY[:12]}{char}{KEY[12:]} now"]).encode())
    blanking.look_through([said])
    assert blanking.redact(0, said) == b'["use [removed: forgotten] now"]'
