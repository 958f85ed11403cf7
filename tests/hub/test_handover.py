"""The earlier conversation, written out for a model: its content, and the room for it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings, strategies as st

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.handovers import (
    BEGINNING,
    HEADING,
    WORDS_NOW,
    HandOver,
    is_named_by_it,
    own_words,
    read_handed_over,
    text_digest,
    without_its_title,
)
from acphold.live.hub import bounds
from acphold.live.hub.handover import (
    GIVEN,
    LOST,
    earlier_conversation,
)

Step = tuple[str, str]
"""A role (`user` or `agent`), and its words."""


def state(*steps: Step) -> SessionState:
    return fold(
        Entry(seq, "prompt", 0, json.dumps([{"type": "text", "text": text}]).encode())
        if who == "user"
        else Entry(seq, "update", 0, chunk(text, str(seq)))
        for seq, (who, text) in enumerate(steps, 1)
    )


def chunk(text: str, message_id: str) -> bytes:
    content = {"type": "text", "text": text}
    kind = "agent_message_chunk"
    return json.dumps({"sessionUpdate": kind, "messageId": message_id, "content": content}).encode()


def text_of(found: SessionState, **how: Any) -> str:
    context = earlier_conversation(found, **how)
    assert context is not None
    return context.text


def test_a_conversation_is_quoted_in_order() -> None:
    text = text_of(state(("user", "Hello"), ("agent", "Hi."), ("user", "Bye")))
    assert text.endswith("User: Hello\n\nAssistant: Hi.\n\nUser: Bye\n")
    assert "left out" not in text


def test_a_session_in_which_nothing_was_said_is_handed_over_as_nothing() -> None:
    assert earlier_conversation(state()) is None


def test_of_a_long_one_every_prompt_is_there_and_the_newest_of_all_else() -> None:
    steps: list[Step] = []
    for number in range(40):
        steps += [("user", f"question {number};"), ("agent", f"answer {number}; " + "x" * 8000)]
    found = state(*steps)
    text = text_of(found)
    assert all(f"User: question {number};" in text for number in range(40))
    assert "Assistant: answer 39;" in text
    assert "Assistant: answer 0;" not in text
    first_kept = min(number for number in range(40) if f"answer {number};" in text)
    assert all(f"answer {number};" in text for number in range(first_kept, 40))
    assert text.count("[… 1 left out …]") == first_kept
    context = earlier_conversation(found)
    assert context is not None
    assert f"{first_kept} messages and tool calls are left out" in context.description


def test_prompts_that_are_too_long_are_shortened_in_their_middle_the_longest_alone() -> None:
    text = text_of(state(("user", "short"), ("user", f"BEGIN{'x' * 200_000}END"), ("agent", "ok")))
    assert "User: short" in text
    assert "User: BEGINxx" in text
    assert "xxEND" in text
    assert "bytes left out" in text
    assert "Assistant: ok" in text


def test_the_last_word_is_there_however_long_it_is() -> None:
    text = text_of(
        state(("user", "x" * bounds.PROMPT_BYTES), ("agent", f"BEGIN{'y' * 200_000}END"))
    )
    assert "Assistant: BEGINyy" in text
    assert "yyEND" in text


def test_the_oldest_prompts_are_left_out_when_there_is_no_room_for_all() -> None:
    many = bounds.PROMPT_BYTES // bounds.LEAST_PROMPT_BYTES + 10
    text = text_of(state(*(("user", f"number {n}; " + "x" * 500) for n in range(many))))
    assert "[… 10 left out …]" in text
    assert "User: number 10;" in text
    assert "User: number 9;" not in text


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "agent"]),
            st.integers(1, 60_000).map(lambda size: "é" * size),
        ),
        max_size=40,
    )
)
@settings(max_examples=60)
def test_the_conversation_that_is_handed_over_is_never_longer_than_its_limit(
    steps: list[Step],
) -> None:
    context = earlier_conversation(state(*steps))
    if context is not None:
        assert len(context.text.encode()) <= bounds.CONTEXT_BYTES + 400  # the words before it


def test_the_model_and_the_person_are_told_who_held_the_conversation() -> None:
    found = state(("user", "Hello"))
    assert "began with another agent, codex." in text_of(found, held_with="codex")
    titles = [
        context.title
        for context in (
            earlier_conversation(found),
            earlier_conversation(found, is_new=True),
            earlier_conversation(found, "codex", is_new=True),
        )
        if context is not None
    ]
    assert titles == [LOST, GIVEN, f"{GIVEN}; it began with codex"]


ODD_ID = 'a "session" ]\n[acphold'


def sent(found: SessionState, *prompt: str) -> list[str]:
    """The texts that an agent is sent with a prompt."""
    context = earlier_conversation(found)
    assert context is not None
    own = [json.dumps({"type": "text", "text": each}).encode() for each in prompt]
    blocks = context.join(own, context.mark(ODD_ID, 7))
    return [json.loads(block)["text"] for block in blocks]


def test_the_earlier_conversation_is_read_before_the_new_words() -> None:
    history, *own = sent(state(("user", "Hello"), ("agent", "Hi.")), "And now?", "Look here")
    assert own == ["And now?", "Look here"]
    assert history.startswith("# Earlier in this conversation\n[acphold ")
    assert history.endswith(f"Assistant: Hi.\n\n{WORDS_NOW}\n\n")


def test_a_slash_command_stays_at_the_beginning_of_its_prompt() -> None:
    own, history = sent(state(("user", "Hello"), ("agent", "Hi.")), "/compact now")
    assert own == "/compact now"
    assert history.startswith("\n\n# Earlier in this conversation\n[acphold ")
    assert WORDS_NOW not in history


TRAPS = st.lists(
    st.sampled_from(["Hello", "\n", WORDS_NOW, HEADING, "/compact", BEGINNING, "User: x"]),
    min_size=1,
).map("".join)


@given(TRAPS, TRAPS, TRAPS, st.booleans())
def test_the_persons_own_words_are_found_in_what_an_agent_sends_back(
    asked: str, answered: str, now: str, is_part: bool
) -> None:
    found = state(("user", asked), ("agent", answered))
    context = earlier_conversation(found, is_part=is_part)
    assert context is not None
    mark = context.mark(ODD_ID, 7)
    blocks = context.join([json.dumps({"type": "text", "text": now}).encode()], mark)
    texts = [json.loads(block)["text"] for block in blocks]
    if HEADING not in now:
        read, told, own = read_handed_over("".join(texts))
        assert (read, own.strip()) == (mark, now.strip())
        assert text_digest(told) == mark.digest == text_digest(context.text)
    assert "".join(map(own_words, texts)).strip() == own_words(now).strip()


def test_words_without_a_handed_over_conversation_are_left_as_they_are() -> None:
    for words in ("Hello", f"{HEADING}\n\nmine", f"a {WORDS_NOW} b", BEGINNING, ""):
        assert own_words(words) == words


def test_a_text_of_an_earlier_release_is_known_without_a_mark_and_a_cut_one_by_its_mark() -> None:
    was = f"{HEADING}\n\n{BEGINNING}. Background only.\n\nUser: Hi\n\n{WORDS_NOW}\n\nGo on"
    mark, told, own = read_handed_over(was)
    assert (mark, own) == (None, "Go on")
    assert told.endswith("User: Hi\n")
    [text, _] = sent(state(("user", "Hello"), ("agent", "Hi.")), "Go on")
    mark, told, own = read_handed_over(text[:200])
    assert mark == HandOver(ODD_ID, 7, read_handed_over(text)[0].digest)  # type: ignore[union-attr]
    assert text_digest(told) != mark.digest


def test_a_title_that_was_made_of_the_earlier_conversation_is_known() -> None:
    title = " ".join(sent(state(("user", "Hello")), "Go on")[0].split())
    for made in (
        title,
        title[:60] + "…",
        title[2:40],
        "Earlier in this…",
        "# Earlier in this con...",
        f"ECHO: {title[:40]}",
        "Chat: # Earlier in…",
    ):
        assert is_named_by_it(made)
    for own in ("Earlier", "Go on", "The earlier conversation", ""):
        assert not is_named_by_it(own)
    info = {"sessionUpdate": "session_info_update", "title": title, "updatedAt": "x"}
    kept = without_its_title(json.dumps(info).encode())
    assert json.loads(kept) == {"sessionUpdate": "session_info_update", "updatedAt": "x"}
