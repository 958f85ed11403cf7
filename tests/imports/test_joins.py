"""A file under another id is part of the session in which its first turn was said, or handed
over."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from acphold.conversation.history.entries import HANDED_OVER, PastEntry
from acphold.conversation.history.handovers import BEGINNING, HEADING, WORDS_NOW, HandOver
from acphold.imports import Home, Intake, reader
from acphold.imports.growth import Growth, ImportMemory
from acphold.imports.session_writer import read_known
from acphold.journal.access import Share
from acphold.journal.journal import Journal, session_of, take_lease
from acphold.journal.rows import ListFilter, Marks, NewSession, RowChange, SessionRow
from tests.imports.claude_home import CWD, Transcript

CLAUDE = reader("claude")
MINE, NEW, FORK = (f"{n}0000000-0000-4000-8000-000000000000" for n in (1, 2, 3))
BEGUN = 1_767_322_800_000
"""2026-01-02T03:00:00Z, when a transcript begins."""


def write(home: Path, name: str, *said: str, count: int = 0) -> None:
    """A transcript; its turns begin two seconds apart, behind so many records of others."""
    transcript = Transcript(count=count)
    for words in said:
        if words.startswith("/"):
            transcript.user(f"<command-name>{words}</command-name>")
        else:
            transcript.user(words)
        transcript.assistant(f"re: {words[-20:]}")
    for record in transcript.records:
        record["sessionId"] = name
    transcript.write(home, name)


async def hold(journal: Journal, *said: str, name: str = MINE, agents_id: str = "") -> None:
    """A session of these turns that were held here, as the transcript has their times."""
    new = NewSession(name, CLAUDE.key, CWD, title="As it was", created_at=BEGUN)
    lease = await journal.create(new)
    await say(journal, name, *said)
    lease = await take_lease(journal, name)
    await journal.links.link(lease, CLAUDE.key, agents_id or name)
    await journal.release(lease)


async def say(journal: Journal, name: str, *said: str, count: int = 0) -> None:
    past: list[PastEntry] = []
    for n, words in enumerate(said):
        at = BEGUN + 1000 * (2 * n + 1 + count)
        chunk = {"type": "text", "text": f"re: {words[-20:]}"}
        update = {"sessionUpdate": "agent_message_chunk", "content": chunk}
        past.append(PastEntry("prompt", at, json.dumps([{"type": "text", "text": words}]).encode()))
        past.append(PastEntry("update", at, json.dumps(update).encode()))
        past.append(PastEntry("turn_end", at, b'{"stopReason":"end_turn"}'))
    lease = await take_lease(journal, name)
    change = RowChange(updated_at=BEGUN + 90_000, prompted=True, start="a wrap")
    await journal.take_in(lease, past, change, release=True)


async def take(journal: Journal, home: Path, *, rejoin: bool = False) -> list[str]:
    """Import all of a home; return the outcomes, in the order of ids."""
    sources = sorted(CLAUDE.find(Home(home)), key=lambda source: source.session_id)
    intake = Intake(journal)
    return [(await intake.take(source, CLAUDE, rejoin=rejoin)).outcome for source in sources]


async def rows(journal: Journal) -> list[SessionRow]:
    return await journal.page(ListFilter(archived="include"))


async def words(journal: Journal, name: str = MINE) -> list[str]:
    return [turn.words for turn in (await read_known(journal, name)).turns]


@pytest.mark.parametrize("order", [(MINE, NEW), (NEW, MINE)])
async def test_a_transcript_behind_a_clearing_is_part_of_its_session(
    opened: Journal, tmp_path: Path, order: tuple[str, str]
) -> None:
    await hold(opened, "A", "/clear", "go on", "B")
    for name in order:
        if name == MINE:
            write(tmp_path, MINE, "A")
        else:
            write(tmp_path, NEW, "/clear", "go on", "B", "outside", count=2)
        await take(opened, tmp_path)
    assert [row.session_id for row in await rows(opened)] == [MINE]
    assert await words(opened) == ["A", "/clear", "goon", "B", "outside"]
    assert set(await take(opened, tmp_path)) == {"same"}
    write(tmp_path, MINE, "A", "later, above the clearing", count=0)
    write(tmp_path, NEW, "/clear", "go on", "B", "outside", "more", count=2)
    assert await take(opened, tmp_path) == ["grown", "grown"]
    [row] = await rows(opened)
    assert row.title == "As it was"
    assert await words(opened) == [
        *("A", "/clear", "goon", "B", "outside", "later,abovetheclearing", "more")
    ]


async def test_a_file_that_shares_the_beginning_and_goes_on_otherwise_is_another_conversation(
    opened: Journal, tmp_path: Path
) -> None:
    await hold(opened, "A", "B")
    write(tmp_path, FORK, "A", "C")
    assert await take(opened, tmp_path) == ["new"]
    assert {row.session_id for row in await rows(opened)} == {MINE, FORK}


@pytest.mark.parametrize("count", [4, 150])
async def test_a_conversation_that_begins_with_words_said_here_and_goes_on_otherwise_has_a_row(
    opened: Journal, tmp_path: Path, count: int
) -> None:
    asked = "Find out why our docker image is so large"
    await hold(opened, "hi", asked, "make it small", "go on")
    for said in ((asked,), (asked, "other", "words"))[count < 150 :]:
        write(tmp_path, NEW, *said, count=count)
        await take(opened, tmp_path)
    assert {row.session_id for row in await rows(opened)} == {MINE, NEW}
    assert await words(opened, NEW) == ["".join(asked.split()), "other", "words"]
    assert await take(opened, tmp_path) == ["same"]


@pytest.mark.parametrize("why", ["time", "folder", "known"])
async def test_equal_words_said_elsewhere_join_nothing(
    opened: Journal, tmp_path: Path, why: str
) -> None:
    await hold(opened, "A", "go on")
    if why == "known":
        write(tmp_path, MINE, "A", "go on")
        await take(opened, tmp_path)
    write(tmp_path, NEW, "go on", "B", count=150 if why == "time" else 2)
    if why == "folder":
        path = tmp_path / ".claude/projects/-home-ada-project" / f"{NEW}.jsonl"
        path.write_text(path.read_text().replace(CWD, "/home/ada/other"))
    await take(opened, tmp_path)
    assert {row.session_id for row in await rows(opened)} == {MINE, NEW}


TELLS = f"{HEADING}%s\n\n{BEGINNING}. Do not answer it.\n\nUser: Find the bug\n\n{WORDS_NOW}\n\n"


async def hand_over(journal: Journal, digest: str, agents_id: str) -> str:
    """A hand-over behind the first turn, in an entry; return the text."""
    mark = HandOver(MINE, 3, digest)
    entry = {"session": MINE, "lastSeq": 3, "digest": digest, "agent": CLAUDE.key}
    raw = json.dumps(entry | {"agentSession": agents_id}).encode()
    lease = await take_lease(journal, MINE)
    await journal.append(lease, [(HANDED_OVER, [raw])])
    await journal.release(lease)
    return TELLS % f"\n{mark.line()}"


@pytest.mark.parametrize("is_linked", [True, False])
async def test_a_transcript_that_begins_with_our_mark_is_part_of_its_session(
    opened: Journal, tmp_path: Path, is_linked: bool
) -> None:
    await hold(opened, "Find the bug", "ok do it", agents_id=NEW if is_linked else MINE)
    text = await hand_over(opened, "0" * 16, NEW)
    write(tmp_path, NEW, f"{text}ok do it", "outside", count=2)
    assert await take(opened, tmp_path) == ["grown"]
    [row] = await rows(opened)
    assert (row.session_id, row.title) == (MINE, "As it was")
    assert await words(opened) == ["Findthebug", "okdoit", "outside"]
    assert await take(opened, tmp_path) == ["same"]


async def test_a_mark_that_we_did_not_write_for_this_transcript_is_text_of_it(
    opened: Journal, tmp_path: Path
) -> None:
    await hold(opened, "Find the bug", "ok do it")
    ours = await hand_over(opened, "0" * 16, NEW)
    forged = ours.replace("0" * 16, "1" * 16)
    for name, text in ((FORK, ours), (NEW, forged)):
        write(tmp_path, name, f"{text}do evil", count=2)
    assert await take(opened, tmp_path) == ["new", "new"]
    assert {row.title for row in await rows(opened)} == {"As it was", "do evil"}
    assert await words(opened) == ["Findthebug", "okdoit"]


@pytest.mark.parametrize("tells", [True, False])
async def test_a_text_without_a_mark_is_ours_if_it_tells_the_sessions_turns(
    opened: Journal, tmp_path: Path, tells: bool
) -> None:
    await hold(opened, "Find the bug", "ok do it", agents_id=NEW)
    text = TELLS % "" if tells else (TELLS % "").replace("Find the bug", "Something else")
    write(tmp_path, NEW, f"{text}ok do it", count=2)
    assert await take(opened, tmp_path) == ["same" if tells else "apart"]


# -- doubles of earlier releases -------------------------------------------------------------------


async def doubled(journal: Journal, home: Path, kind: str) -> SessionRow:
    """A session, and what an import made of its other file; return the row of that."""
    if kind == "clearing":
        write(home, NEW, "B", "B again", count=4)
        await take(journal, home)
        await hold(journal, "A", "/clear", "B", "B again")
    else:
        write(home, NEW, f"{TELLS % ''}B", "B again", count=4)
        await hold(journal, "X", agents_id=NEW)
        await take(journal, home)
        await say(journal, MINE, "Find the bug", "B", "B again", count=2)
    [double] = [row for row in await rows(journal) if row.session_id != MINE]
    return double


@pytest.mark.parametrize("kind", ["clearing", "hand-over"])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_double_becomes_one_with_its_session_under_both_ids(
    opened: Journal, tmp_path: Path, kind: str, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = await doubled(opened, tmp_path, kind)
    await opened.mark(double.session_id, Marks(("red",), person="ada", pinned=True))
    await opened.change(double.session_id, RowChange(given="By a person"))
    if dies:
        with monkeypatch.context() as patched:

            async def die(*_: object) -> None:
                raise KeyboardInterrupt

            patched.setattr(type(opened), "delete", die)
            with pytest.raises(KeyboardInterrupt):
                await take(opened, tmp_path, rejoin=True)
        lease = await take_lease(opened, MINE, yields=True)
        await opened.release(lease)
    await take(opened, tmp_path, rejoin=True)
    [row] = await rows(opened)
    assert (row.session_id, row.tags, row.pins) == (MINE, ("red",), ("ada",))
    assert (row.title, row.downstream_id) == ("By a person", NEW)
    for name in (double.session_id, NEW):
        assert await session_of(opened, CLAUDE.key, name) == MINE
    assert (await words(opened))[-2:] == ["B", "Bagain"]
    assert await take(opened, tmp_path, rejoin=True) == ["same"]


@pytest.mark.parametrize("why", ["said here", "shared", "of a tenant"])
async def test_a_double_with_rights_or_turns_of_its_own_stays(
    opened: Journal, tmp_path: Path, why: str
) -> None:
    double = await doubled(opened, tmp_path, "clearing")
    if why == "shared":
        await opened.access.keep_share(Share(double.session_id, "eve", False))
    elif why == "said here":
        await say(opened, NEW, "Said here", count=60)
    else:
        lease = await take_lease(opened, double.session_id)
        await opened.delete(lease)
        new = NewSession(NEW, CLAUDE.key, CWD, tenant="eve")
        lease = await opened.create(new)
        await opened.links.link(lease, CLAUDE.key, NEW)
        await opened.release(lease)
        await take(opened, tmp_path)
    await take(opened, tmp_path, rejoin=True)
    assert {row.session_id for row in await rows(opened)} == {MINE, NEW}


def as_earlier_releases(memory: Path) -> None:
    known = msgspec.msgpack.decode(memory.read_bytes())
    del known["agents"]["claude"]["has_joined"]
    memory.write_bytes(msgspec.msgpack.encode(known))


async def test_doubles_are_looked_for_once_in_the_background(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    await doubled(opened, tmp_path, "clearing")
    memory = str(tmp_path / "memory")
    ImportMemory(Home(tmp_path), ["claude"], since=0, redact=False).keep(memory)
    assert not Growth(memory)
    as_earlier_releases(tmp_path / "memory")
    grown = Growth(memory)
    assert grown
    await grown.take(opened)
    assert [row.session_id for row in await rows(opened)] == [MINE]
    assert not Growth(memory)
