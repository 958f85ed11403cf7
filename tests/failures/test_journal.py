"""The journal cannot be used: a clear error, existing history untouched, nothing pretended."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import JOURNAL_FAILED
from acphold.journal.sqlite.migrations import VERSION
from acphold.live.hub.ownership import BACK, LOCKED
from tests.editor import Editor, Refused, editor, introduced, scripted_agent, wrap_command
from tests.owners import lone_command
from tests.watched_processes import folder_contents, methods, until

COMMAND = lone_command(scripted_agent())
FRONT = wrap_command(scripted_agent())


async def conversation(journal: Path, *texts: str) -> str:
    """A journal with one session in it, closed in good order; the session's id."""
    async with introduced(COMMAND, journal=journal) as client:
        session = await client.new()
        for text in texts:
            await client.prompt(session, {"say": text})
        assert await client.leave() == 0
    return session


async def shown(journal: Path, session: str) -> str:
    """The agent's text in a session, as shown to a client that loads it."""
    async with introduced(COMMAND, journal=journal) as client:
        await client.load(session)
        return client.text()


def spoken(updates: list[dict[str, Any]]) -> str:
    """The agent's text; skips acphold's own notices, which no replay has."""
    return "".join(
        update["content"]["text"]
        for update in updates
        if update["sessionUpdate"] == "agent_message_chunk" and "_meta" not in update
    )


async def refusal(client: Editor) -> Refused:
    with pytest.raises(Refused) as caught:
        await client.initialize()
    return caught.value


async def prompts(client: Editor, session: str, count: int) -> None:
    """So many short turns."""
    for _ in range(count):
        await client.prompt(session, {"say": "."})


def file_limit(size: int) -> Callable[[], None]:
    """No file can grow beyond `size` bytes: a full disk, as a program sees it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


# -- cannot be opened ---------------------------------------------------------------------------


def written(journal: Path) -> None:
    journal.write_text("my diary\n" * 50)


def overwritten(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (journal.stat().st_size - 100))


@pytest.mark.parametrize("is_ours", [False, True])
async def test_a_file_that_is_not_our_journal_is_named_in_the_answer_and_left_as_it_is(
    journal: Path, is_ours: bool
) -> None:
    if is_ours:
        await conversation(journal, "kept")
        overwritten(journal)
    else:
        written(journal)
    before = folder_contents(journal.parent)
    async with editor(FRONT, journal=journal) as client:
        for _ in range(2):
            error = await refusal(client)
            assert error.code == JOURNAL_FAILED
            assert str(journal) in error.message
            words = "is damaged" if is_ours else "is not an acphold journal"
            assert words in error.message
        with pytest.raises(Refused, match=words):
            await client.new()
        assert await client.leave() == 1
    assert folder_contents(journal.parent) == before


@pytest.mark.parametrize("url", ["mysql://x", "https://host/db", "sqlite://", "sqlite:///"])
async def test_a_journal_that_cannot_be_named_so_is_reported(url: str, tmp_path: Path) -> None:
    command = wrap_command(scripted_agent(), "--journal", url)
    async with editor(command, journal="unused", cwd=tmp_path) as client:
        assert (await refusal(client)).code == JOURNAL_FAILED
        assert await client.leave() == 1


# -- locked -------------------------------------------------------------------------------------


@pytest.mark.parametrize("existing", [False, True])
async def test_a_locked_journal_is_reported_and_can_be_used_once_it_is_free(
    journal: Path, existing: bool
) -> None:
    session = await conversation(journal, "kept") if existing else None
    other = sqlite3.connect(journal, isolation_level=None)
    if existing:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("CREATE TABLE IF NOT EXISTS held (x)")
    async with editor(COMMAND, journal=journal) as client:
        await client.initialize()
        with pytest.raises(Refused, match="another program holds it"):
            await client.new()
        other.execute("ROLLBACK")
        other.close()
        again = await client.new()
        assert await client.prompt(again, {"say": "hello"}) == {"stopReason": "end_turn"}
        if session is not None:
            place = len(client.updates())
            await client.load(session)
            assert spoken(client.updates()[place:]) == "kept"
        assert await client.leave() == 0
    assert await shown(journal, again) == "hello"


@pytest.mark.slow
async def test_a_turn_waits_for_a_lock_of_another_program_and_goes_on_when_it_is_gone(
    journal: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    async with introduced(COMMAND, journal=journal) as client:
        session = await client.new()
        turn = client.begin_prompt(session, {"say": "a"}, {"until": str(flag)}, {"say": "b"})
        await client.until_text("a")
        other = sqlite3.connect(journal, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        flag.touch()
        await client.until_text(LOCKED)
        assert not turn.done()
        other.execute("ROLLBACK")
        assert await turn == {"stopReason": "end_turn"}
        await client.until_text(BACK)
        assert spoken(client.updates()) == "ab"
    assert await shown(journal, session) == "ab"


@pytest.mark.slow
async def test_a_cancel_reaches_the_agent_while_another_program_locks_the_journal(
    journal: Path, tmp_path: Path
) -> None:
    flag, log = tmp_path / "flag", tmp_path / "log"
    command = lone_command(scripted_agent(log=str(log)))
    async with introduced(command, journal=journal) as client:
        session = await client.new()
        turn = client.begin_prompt(session, {"say": "a"}, {"until": str(flag)}, {"say": "b"})
        await client.until_text("a")
        other = sqlite3.connect(journal, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        await client.until_text(LOCKED)
        client.tell("session/cancel", {"sessionId": session})
        await until(lambda: "session/cancel" in methods(log))
        other.execute("ROLLBACK")
        assert await turn == {"stopReason": "cancelled"}
        assert await client.prompt(session, {"say": "c"}) == {"stopReason": "end_turn"}


# -- a newer release ----------------------------------------------------------------------------


async def test_a_wrap_that_runs_while_a_newer_release_migrates_says_to_start_it_again(
    journal: Path,
) -> None:
    async with introduced(COMMAND, journal=journal) as client:
        session = await client.new()
        await client.prompt(session, {"say": "kept"})
        newer = sqlite3.connect(journal, isolation_level=None)
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")
        newer.execute("UPDATE leases SET epoch = 0")  # as any upgrade of a journal does
        newer.close()
        for asked in (client.prompt(session, {"say": "more"}), client.load(session), client.new()):
            with pytest.raises(Refused, match="restart the agent in your editor"):
                await asked
        assert client.text() == "kept"


# -- full ---------------------------------------------------------------------------------------


async def test_a_disk_that_fills_up_in_mid_turn_fails_the_turn_and_keeps_all_that_was_shown(
    journal: Path,
) -> None:
    session = await conversation(journal, "kept")
    async with introduced(COMMAND, journal=journal, before=file_limit(400_000)) as client:
        await client.load(session)
        place = len(client.updates())
        with pytest.raises(Refused) as caught:
            await client.prompt(session, {"say": "begin"}, {"flood": [1000, 1000]})
        assert str(journal) in caught.value.message
        assert "disk" in caught.value.message
        said = spoken(client.updates()[place:])
        assert said.startswith("begin00000000x")
        # What acphold promises does not hold for another turn either: it is not begun. What the
        # large write has left free may take a small one; a prompt as large as the disk it cannot.
        with pytest.raises(Refused, match="disk"):
            await client.prompt(session, {"say": "more" + "x" * 400_000})
        assert "more" not in client.text()
        with pytest.raises(Refused, match="disk"):
            await prompts(client, session, 200)
        with pytest.raises(Refused, match="disk"):
            await client.new()
        assert len(await client.sessions()) == 1
        assert await client.leave() == 0
    again = await shown(journal, session)
    assert again.startswith("kept" + said)
    with sqlite3.connect(journal) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


async def test_when_there_is_room_again_the_session_goes_on(journal: Path) -> None:
    session = await conversation(journal, "kept")

    def soft_limit() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))

    tool: dict[str, Any] = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}
    async with introduced(COMMAND, journal=journal, before=soft_limit) as client:
        await client.load(session)
        with pytest.raises(Refused, match="disk"):
            await client.prompt(session, {"update": tool}, {"flood": [1000, 1000]})
        hard = resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert await client.prompt(session, {"say": "on"}) == {"stopReason": "end_turn"}
        live = client.updates()
        statuses = [u["status"] for u in live if u.get("toolCallId") == "t" and "status" in u]
        assert statuses == ["failed"]
        await client.load(session)
        assert spoken(client.updates()[len(live) :]) == spoken(live)
        assert await client.leave() == 0


async def test_what_is_queued_waits_while_the_disk_is_full_and_is_held_by_the_turn_that_failed(
    journal: Path,
) -> None:
    def soft_limit() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (440_000, hard))

    command = lone_command(scripted_agent(), "--log-level", "info")
    async with introduced(command, journal=journal, before=soft_limit) as client:
        session = await client.new()
        go = journal.with_name("go")
        turn = client.begin_prompt(
            session, {"say": "on"}, {"until": str(go)}, {"flood": [1000, 1000]}
        )
        await client.until_text("on")
        add = {"do": "add", "prompt": [{"type": "text", "text": '[{"say": "queued"}]'}]}
        await client.call("_acphold/queue", {"sessionId": session, "change": add})
        go.touch()
        with pytest.raises(Refused, match="disk"):
            await turn
        with pytest.raises(Refused, match="disk"):
            await client.prompt(session, {"say": "more" + "x" * 400_000})
        hard = resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        await client.prompt(session, {"say": "again"})
        queue = (await client.call("_acphold/queue", {"sessionId": session}))["queue"]
        assert (queue["held"], len(queue["waiting"])) == ("failed", 1)
        assert "queued" not in client.text()
        assert client.stderr.count(b"a queued prompt") <= 1, "tried again at once"
        assert await client.leave() == 0


async def test_a_journal_that_is_deleted_under_us_is_reported_and_costs_no_other_file(
    journal: Path,
) -> None:
    keep = journal.parent / "keep"
    session = await conversation(journal, "kept")
    shutil.copy(journal, keep)
    async with introduced(COMMAND, journal=journal) as client:
        await client.load(session)
        for name in folder_contents(journal.parent).keys() - {"keep"}:
            (journal.parent / name).unlink()
        with pytest.raises(Refused, match="deleted or replaced"):
            await prompts(client, session, 1000)
        with pytest.raises(Refused, match="deleted or replaced"):
            await client.new()
        await client.leave()
    assert folder_contents(journal.parent).keys() == {"keep"}
    assert await shown(keep, session) == "kept"


@pytest.mark.parametrize("gone_too", [(), ("journal.db-shm",)])
async def test_a_log_that_is_deleted_under_us_costs_nothing_that_was_shown(
    journal: Path, gone_too: tuple[str, ...]
) -> None:
    async with introduced(COMMAND, journal=journal) as client:
        session = await client.new()
        await client.prompt(session, {"say": "before, "})
        for name in ("journal.db-wal", *gone_too):
            (journal.parent / name).unlink()
        await client.prompt(session, {"say": "behind, "})
        await client.prompt(session, {"say": "and later"})
        assert client.text() == "before, behind, and later"
        await client.kill()
        await client.read_stderr()
    assert client.stderr.count(b"journal.db-wal was deleted") == 1
    assert await shown(journal, session) == "before, behind, and later"
