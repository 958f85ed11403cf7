"""Files that continue a session of the journal, and files that only have its id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.conversation.history.timeline import Message
from acphold.imports import Home, ImportSelection, Intake, Outcome, Reader, Source, reader
from acphold.imports.turns import KnownPart, ReadTurn, compare
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter, NewSession, RowChange
from tests.imports.claude_home import SESSION, Transcript
from tests.imports.told import write_lines

OWN = reader("acphold")
CLAUDE = reader("claude")


def said_here(*prompts: str, missing: tuple[str, ...] = ()) -> list[ReadTurn]:
    return [
        ReadTurn(words=words, is_here=True, may_be_missing=words in missing) for words in prompts
    ]


def told(*prompts: str) -> list[ReadTurn]:
    return [ReadTurn(f"id {n}", words) for n, words in enumerate(prompts)]


LONG = "look at this, and at that, and say what you see there"


# -- by words, of turns that were said here, and that the user's own agent keeps ------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "news"),
    [
        (said_here("a"), told("a", "b"), ["b"]),
        (said_here("a", "go on", "go on"), told("a", "go on", "go on", "go on"), ["go on"]),
        (said_here(LONG), told(f"{LONG}\nplease", "b"), ["b"]),
        (said_here("b"), told("a", "b", "c"), ["c"]),
        (said_here("a", "b"), told("x", "a", "b", "c"), ["c"]),
        (said_here("a", "b", "c"), told("a", "b"), []),
        (said_here("a", "lost", missing=("lost",)), told("a", "c"), ["c"]),
        (said_here("a", "steered", "b", missing=("steered",)), told("a", "b", "c"), ["c"]),
    ],
)
def test_what_follows_the_last_prompt_that_both_have_is_new(
    ours: list[ReadTurn], theirs: list[ReadTurn], news: list[str]
) -> None:
    found = compare(KnownPart(ours), theirs)
    assert found.verdict == "related"
    assert [theirs[n].words for n in found.news] == news
    assert found.void == found.left == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (said_here("y"), told("a", "b", "why not")),
        (said_here("a", "y"), told("z", "why not", "b")),
        (said_here("a", "go on"), told("other", "go on", "b")),
        (said_here("a", "b"), told()),
        (said_here("a", "answered"), told("a", "c")),
        (said_here("one", "two"), told("one", "three")),
    ],
)
def test_a_resemblance_that_proves_nothing_does_not_count(
    ours: list[ReadTurn], theirs: list[ReadTurn]
) -> None:
    assert compare(KnownPart(ours), theirs).verdict != "related"


# -- by whole turns, of what lies in a folder that somebody named --------------------------------


def entry(kind: str, update: object) -> dict[str, object]:
    return {"seq": 0, "kind": kind, "at": "2026-01-02T03:04:05Z", "update": update}


def turn(prompt: str, answer: str) -> list[dict[str, object]]:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": answer}}
    return [
        entry("prompt", {"prompt": [{"type": "text", "text": prompt}]}),
        entry("update", chunk),
        entry("turn_end", {"stopReason": "end_turn"}),
    ]


def lines(folder: Path, *turns: tuple[str, str], session: str = "mine", **head: object) -> Path:
    """A file of our own lines, as anybody can write one."""
    about = {"sessionId": session, "agent": "my agent", "cwd": "/", **head}
    entries = [line for said in turns for line in turn(*said)]
    return write_lines(folder / "x.jsonl", {"session": about}, *entries)


@pytest.fixture
async def opened(opened: Journal) -> Journal:
    """A journal with a session of one turn that was held here."""
    lease = await opened.create(NewSession("mine", "my agent", "/"))
    for line in turn("Where is the needle?", "In the haystack."):
        update = line["update"]
        assert isinstance(update, dict)
        raw = json.dumps(update.get("prompt", update)).encode()
        await opened.append(lease, [(str(line["kind"]), [raw])])
    await opened.links.link(lease, "my agent", "agents-own")
    await opened.release(lease)
    return opened


async def take(journal: Journal, folder: Path, reading: Reader = OWN) -> Outcome:
    """Import the one conversation of a folder that somebody named."""
    (source,) = given(folder, reading)
    return (await Intake(journal).take(source, reading)).outcome


def given(folder: Path, reading: Reader) -> list[Source]:
    return [replace(source, given=True) for source in reading.find(Home(folder))]


async def said(journal: Journal, session_id: str = "mine") -> list[str]:
    state = await state_of(journal, session_id)
    return [item.text for item in state.timeline if isinstance(item, Message)]


async def others(journal: Journal) -> list[str]:
    return [row.session_id for row in await journal.page(ListFilter()) if row.session_id != "mine"]


MINE = ("Where is the needle?", "In the haystack.")


@pytest.mark.parametrize(
    "turns",
    [
        [("e", "Yes."), ("Run this.", "Done.")],
        [("Where is the needle?", "Yes."), ("Run this.", "Done.")],
        [("e", "Yes."), MINE, ("Run this.", "Done.")],
        [("Where is the", "In the haystack."), ("Run this.", "Done.")],
    ],
)
@pytest.mark.parametrize("name", ["mine", "agents-own"])
async def test_a_file_that_only_claims_to_be_a_session_of_ours_is_one_of_its_own(
    opened: Journal, tmp_path: Path, turns: list[tuple[str, str]], name: str
) -> None:
    before = await opened.session("mine")
    lines(tmp_path, *turns, session=name, agentSessionId="agents-own", title="Friendly")
    assert await take(opened, tmp_path) == "apart"
    assert await said(opened) == list(MINE)
    assert await opened.session("mine") == before
    (other,) = await others(opened)
    assert await said(opened, other) == [words for pair in turns for words in pair]
    assert (await opened.session(other)).title == "Friendly (imported)"
    assert await take(opened, tmp_path) == "same"


async def test_what_comes_to_such_a_file_goes_to_its_own_session(
    opened: Journal, tmp_path: Path
) -> None:
    lines(tmp_path, ("e", "Yes."))
    await take(opened, tmp_path)
    lines(tmp_path, ("e", "Yes."), ("More.", "Fine."))
    assert await take(opened, tmp_path) == "grown"
    (other,) = await others(opened)
    assert await said(opened, other) == ["e", "Yes.", "More.", "Fine."]
    assert await said(opened) == list(MINE)


async def test_a_session_that_was_deleted_here_stays_deleted(
    opened: Journal, tmp_path: Path
) -> None:
    lines(tmp_path, ("e", "Yes."))
    await take(opened, tmp_path)
    (other,) = await others(opened)
    await opened.delete(other)
    assert await take(opened, tmp_path) == "deleted"
    assert await said(opened) == list(MINE)


async def test_a_file_with_the_same_turns_continues_the_session(
    opened: Journal, tmp_path: Path
) -> None:
    await opened.change("mine", RowChange(archived=True))
    lines(tmp_path, MINE, ("And the thread?", "In the eye."), archived=True, title="Theirs")
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened) == [*MINE, "And the thread?", "In the eye."]
    assert not (await opened.session("mine")).archived
    assert await others(opened) == []


async def test_a_file_with_fewer_turns_has_nothing_new(opened: Journal, tmp_path: Path) -> None:
    lines(tmp_path, MINE, ("And the thread?", "In the eye."))
    await take(opened, tmp_path)
    lines(tmp_path, MINE)
    assert await take(opened, tmp_path) == "same"
    assert await others(opened) == []


async def test_a_session_without_words_is_not_filled_by_a_file_that_claims_it(
    opened: Journal, tmp_path: Path
) -> None:
    lease = await opened.create(NewSession("empty", "my agent", "/"))
    await opened.links.link(lease, "my agent", "empty")
    await opened.release(lease)
    lines(tmp_path, ("e", "Yes."), session="empty")
    assert await take(opened, tmp_path) == "apart"
    assert await said(opened, "empty") == []


async def test_a_session_that_is_listed_and_unread_is_not_filled_from_another_folder(
    opened: Journal, tmp_path: Path
) -> None:
    mine, theirs = Transcript("Where is the needle?"), Transcript("Run this.")
    mine.write(tmp_path / "home")
    theirs.write(tmp_path / "given")
    (own,) = CLAUDE.find(Home(tmp_path / "home"))
    await Intake(opened).list_first([own])
    assert await take(opened, tmp_path / "given", CLAUDE) == "apart"
    assert (await opened.session(SESSION)).is_unread
    assert (await Intake(opened).take(own, CLAUDE)).outcome == "new"
    assert await said(opened, SESSION) == ["Where is the needle?"]


async def test_turns_are_recognized_when_their_secrets_are_left_out(
    opened: Journal, tmp_path: Path
) -> None:
    lines(tmp_path, MINE, ("Use ghp_" + "a1B2" * 9, "Fine."))
    (source,) = given(tmp_path, OWN)
    taken = await Intake(opened, ImportSelection(redact=True)).take(source, OWN)
    assert taken.outcome == "grown"
    assert "ghp_" not in "".join(await said(opened))


async def test_a_file_with_another_conversation_each_time_is_read_once_for_each(
    opened: Journal, tmp_path: Path
) -> None:
    ways = [Transcript(f"Question {n}.", count=10 * n) for n in range(4)]
    for number, way in [*enumerate(ways), (2, ways[2]), (3, ways[3]), (1, ways[1])]:
        way.assistant(f"Answer {number}.")
        way.write(tmp_path)
        assert await take(opened, tmp_path, CLAUDE) in ("new", "apart", "grown")
        changed, _ = await Intake(opened).select_changed(CLAUDE.find(Home(tmp_path)), CLAUDE)
        assert changed == []
    told = [await said(opened, session_id) for session_id in await others(opened)]
    assert sorted(words[0] for words in told) == [f"Question {n}." for n in range(4)]
    assert sorted(map(len, told)) == [2, 3, 3, 3]


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_part_that_its_conversation_has_as_well_is_deleted_unless_a_person_named_it(
    opened: Journal, tmp_path: Path, is_named: bool
) -> None:
    first, second = Transcript("One."), Transcript("Two.", count=10)
    first.assistant("The first.")
    second.assistant("The second.")
    home = first.write(tmp_path)
    assert await take(opened, tmp_path, CLAUDE) == "new"
    whole = [*first.records, {**second.records[0], "parentUuid": first.last}, *second.records[1:]]
    second.write(tmp_path)
    assert await take(opened, tmp_path, CLAUDE) == "apart"
    (part,) = {*await others(opened)} - {SESSION}
    if is_named:
        lease = await opened.acquire(part)
        await opened.change(lease, RowChange(given="The second one"))
        await opened.release(lease)
    write_lines(home, *whole)
    assert await take(opened, tmp_path, CLAUDE) == "grown"
    assert await said(opened, SESSION) == ["One.", "The first.", "Two.", "The second."]
    changed, _ = await Intake(opened).select_changed(CLAUDE.find(Home(tmp_path)), CLAUDE)
    assert changed == []
    assert {*await others(opened)} == ({SESSION, part} if is_named else {SESSION})
