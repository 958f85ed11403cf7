"""`acphold journal restore`: a backup takes the place of the journal, if none is in use."""

from __future__ import annotations

import asyncio
import filecmp
import json
import os
import shutil
import signal
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import psycopg
import pytest

from acphold.errors import JournalUnavailableError
from acphold.faces.cli.main import parser_of
from acphold.journal.journal import Journal, Lease
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.safety.standing.decision import pausing_rule
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.conversations import chunk
from tests.editor import introduced, say, scripted_agent, wrap_command
from tests.journal.promises.promise import append, begun, turn
from tests.owners import lone_command
from tests.postgresql import Databases
from tests.raw_entries import CONVERSATION, prompt, said

pytestmark = pytest.mark.slow


@pytest.fixture
def backup(journal: Path, acphold: CommandLine, tmp_path: Path) -> Path:
    """A backup of a journal with a session; there is another one in it by now."""
    remember(journal, "aa-1", *CONVERSATION, title="Greeting")
    kept = tmp_path / "backup.db"
    assert acphold.run("journal", "backup", str(kept)).code == 0
    remember(journal, "bb-1", prompt("later"), said("on"), title="Later")
    return kept


def listed(acphold: CommandLine) -> set[str]:
    shown = acphold.run("list").out
    return {title for title in ("Greeting", "Later") if title in shown}


def test_a_backup_takes_the_place_of_the_journal_which_is_kept_beside_it(
    backup: Path, journal: Path, acphold: CommandLine
) -> None:
    before = backup.read_bytes()
    done = acphold.run("journal", "restore", str(backup))
    assert (done.code, done.err) == (0, "")
    assert listed(acphold) == {"Greeting"}
    assert backup.read_bytes() == before
    [former] = journal.parent.glob(f"{journal.name}-before-*")
    assert listed(CommandLine(former)) == {"Greeting", "Later"}
    assert journal.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_leaves_the_journal_as_it_is(
    backup: Path, journal: Path, acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def interrupted(*paths: str) -> str:
        if paths[0] == str(backup):
            signal.raise_signal(signal.SIGINT)
        return copy(*paths)

    monkeypatch.setattr(shutil, "copyfile", interrupted)
    monkeypatch.setenv("ACPHOLD_JOURNAL", str(journal))
    with pytest.raises(KeyboardInterrupt):
        parser_of("journal restore").run([str(backup)])
    assert listed(acphold) == {"Greeting", "Later"}


async def test_nothing_is_done_while_somebody_has_the_journal_open(
    backup: Path, journal: Path, acphold: CommandLine
) -> None:
    opened = open_journal(journal)
    try:
        await opened.count()
        done = acphold.run_as_process("journal", "restore", str(backup))
        assert done.code != 0
        assert "is in use; close the editors" in done.err
        await begun(opened)  # and it goes on
    finally:
        await opened.aclose()
    assert listed(acphold) == {"Greeting", "Later"}


async def test_the_daemon_of_the_journal_is_ended_first_if_that_is_asked_for(
    backup: Path, journal: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    words = wrap_command(scripted_agent())
    other = tmp_path / "other.db"
    async with introduced(words, journal=journal) as one, introduced(words, journal=other) as two:
        for editor in (one, two):
            await editor.talk(say("in the background"))
            await editor.leave()
        done = acphold.run("journal", "restore", str(backup))
        assert done.code != 0
        assert "--stop" in done.err
        done = acphold.run("journal", "restore", "--stop", str(backup))
        assert done.code == 0, done.err
        assert "Ended" in done.out
        done = acphold.run("agent", "stop", "--all")
        assert done.out.count("Ended scripted") == 1  # that of the other journal went on
    assert listed(acphold) == {"Greeting"}


def test_a_damaged_journal_is_replaced_and_a_damaged_backup_replaces_nothing(
    backup: Path, journal: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    spoiled = tmp_path / "spoiled.db"
    spoiled.write_bytes(backup.read_bytes()[: 3 * 4096] + bytes(backup.stat().st_size - 3 * 4096))
    assert acphold.run("journal", "restore", str(spoiled)).code != 0
    assert acphold.run("journal", "restore", str(tmp_path / "none.db")).code != 0
    with closing(sqlite3.connect(":memory:")) as altered:
        altered.deserialize(backup.read_bytes())
        altered.execute("CREATE TRIGGER gone AFTER INSERT ON segments BEGIN DELETE FROM rules; END")
        spoiled.write_bytes(altered.serialize())
    told = acphold.run("journal", "restore", str(spoiled))
    assert (told.code != 0, "has not made, 'gone'" in told.err) == (True, True)
    assert listed(acphold) == {"Greeting", "Later"}
    journal.write_bytes(b"x" * 10_000)
    assert acphold.run("journal", "restore", str(backup)).code == 0
    assert listed(acphold) == {"Greeting"}


@pytest.mark.parametrize(
    ("version", "said"), [(1, "before the first release of acphold"), (99, "update")]
)
def test_a_backup_of_another_time_is_refused_by_its_own_name(
    backup: Path, journal: Path, acphold: CommandLine, version: int, said: str
) -> None:
    with closing(sqlite3.connect(backup)) as database:
        database.execute(f"PRAGMA user_version = {version}")
    done = acphold.run("journal", "restore", str(backup))
    assert done.code != 0
    assert f"the journal {backup} has version {version}" in done.err
    assert said in done.err
    assert listed(acphold) == {"Greeting", "Later"}


async def test_positions_of_before_do_not_hold_in_a_restored_journal(
    journal: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    opened = open_journal(journal)
    lease = await begun(opened)
    await append(opened, lease, turn("One", chunk("agent_message", "two")))
    await opened.aclose()
    assert acphold.run("journal", "backup", str(tmp_path / "backup.db")).code == 0
    seen = {lease.lineage}
    for _ in range(2):  # the same backup twice makes two histories
        assert acphold.run("journal", "restore", str(tmp_path / "backup.db")).code == 0
        opened = open_journal(journal)
        seen.add((await opened.acquire("s1")).lineage)
        await opened.aclose()
    assert len(seen) == 3


async def test_a_backup_that_is_copied_over_a_journal_in_use_is_noticed_and_left_whole(
    backup: Path, journal: Path, acphold: CommandLine
) -> None:
    opened = open_journal(journal)
    lease = await begun(opened)
    await append(opened, lease, turn("One", chunk("agent_message", "x" * 100_000)))
    shutil.copyfile(backup, journal)

    async def go_on() -> None:
        while True:  # for half a second at most
            await append(opened, lease, turn("Two", chunk("agent_message", "y" * 100)))

    with pytest.raises(JournalUnavailableError, match="overwritten while it was in use"):
        await go_on()
    with pytest.raises(JournalUnavailableError, match="overwritten"):
        await opened.settle(lease, lease.next_seq - 1)
    with pytest.raises(JournalUnavailableError, match="overwritten"):
        await opened.acquire("s1")
    await opened.aclose()
    assert filecmp.cmp(journal, backup, shallow=False)
    shown = acphold.run_as_process("list").out
    assert ("Greeting" in shown, "Later" in shown) == (True, False)
    assert "it is intact" in acphold.run_as_process("doctor", "--deep").out


async def test_a_process_that_is_killed_right_behind_such_a_copy_leaves_no_log_for_it(
    backup: Path, journal: Path, acphold: CommandLine
) -> None:
    async with introduced(lone_command(scripted_agent()), journal=journal) as editor:
        await editor.talk(say("z" * 100_000))
        assert (journal.parent / f"{journal.name}-wal").stat().st_size
        shutil.copyfile(backup, journal)
        await editor.kill()
    assert listed(acphold) == {"Greeting"}
    assert "it is intact" in acphold.run_as_process("doctor", "--deep").out


async def test_an_earlier_copy_of_the_journal_itself_that_is_put_there_by_hand_is_noticed(
    journal: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    opened = open_journal(journal)
    before = await begun(opened)
    await opened.release(before)
    await opened.aclose()
    shutil.copyfile(journal, tmp_path / "copy.db")
    opened = open_journal(journal)
    lease = await opened.acquire("s1")
    assert lease.lineage == before.lineage
    await append(opened, lease, turn("One", chunk("agent_message", "two")))
    await opened.aclose()
    shutil.copyfile(tmp_path / "copy.db", journal)
    for _ in range(2):  # both `doctor` and an owner find it
        assert "acphold found an earlier copy" in acphold.run_as_process("doctor").out
        opened = open_journal(journal)
        assert (await opened.acquire("s1")).lineage != lease.lineage
        await opened.aclose()


async def going_on(journal: Journal, lease: Lease) -> None:
    """Append until that is refused, for half a second at most."""
    while True:
        await append(journal, lease, turn("Three", chunk("agent_message", "z" * 100)))


async def with_a_copy_put_over_it(journal: Path, copy: Path) -> tuple[Journal, Lease]:
    """A journal in use, which has seen its file change, and then an earlier copy is put there."""
    opened = open_journal(journal)
    lease = await begun(opened)
    await opened.release(lease)
    await opened.aclose()
    shutil.copyfile(journal, copy)
    opened = open_journal(journal)
    lease = await opened.acquire("s1")
    await append(opened, lease, turn("One", chunk("agent_message", "x" * 100_000)))
    with closing(sqlite3.connect(journal)) as other:
        other.execute("PRAGMA wal_checkpoint(PASSIVE)")
    await append(opened, lease, turn("Two", chunk("agent_message", "y")))
    assert opened.file is not None
    await opened.file.unswept()  # it looks at the file every now and then
    shutil.copyfile(copy, journal)
    return opened, lease


async def test_who_learns_of_such_a_copy_leaves_the_log_of_the_next_process_alone(
    journal: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    opened, lease = await with_a_copy_put_over_it(journal, tmp_path / "copy.db")
    async with introduced(wrap_command(scripted_agent()), journal=journal) as editor:
        await editor.talk(say("a needle"))
        its_log = os.stat(f"{journal}-wal").st_ino
        with pytest.raises(JournalUnavailableError, match="overwritten while it was in use"):
            await going_on(opened, lease)
        await opened.aclose()
        assert os.stat(f"{journal}-wal").st_ino == its_log
        await editor.talk(say("another needle"))
    assert "it is intact" in acphold.run_as_process("doctor", "--deep").out
    assert "another needle" in acphold.run_as_process("search", "another", "needle").out


async def test_such_a_copy_gets_nothing_from_the_log_that_a_killed_process_left(
    journal: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    opened = open_journal(journal)
    await opened.release(await begun(opened))
    await opened.aclose()
    shutil.copyfile(journal, tmp_path / "copy.db")
    async with introduced(wrap_command(scripted_agent()), journal=journal) as editor:
        await editor.talk(say("y" * 100_000))
        with closing(sqlite3.connect(journal)) as other:
            other.execute("PRAGMA wal_checkpoint(PASSIVE)")
        await editor.talk(say("z" * 100_000))  # which sees that the file has changed
        await editor.kill()
    assert (journal.parent / f"{journal.name}-wal").stat().st_size
    shutil.copyfile(tmp_path / "copy.db", journal)
    assert "it is intact" in acphold.run_as_process("doctor", "--deep").out
    assert len(acphold.run("list", "--all", "--json").out.splitlines()) == 1
    [aside] = journal.parent.glob(f"{journal.name}-wal-of-another-*")
    assert aside.stat().st_size


async def three(location: str) -> None:
    """Sessions with four entries each."""
    journal = open_journal(location)
    for name in ("hole", "doubled", "gone"):
        lease = await journal.create(NewSession(name, "a", "/"))
        for number in range(4):
            await journal.append(lease, [("update", [b"%d" % number])])
        await journal.change(lease, RowChange(prompted=True))
    await journal.aclose()


def test_doctor_finds_holes_doubled_positions_and_entries_without_a_session(
    journal: Path, acphold: CommandLine
) -> None:
    asyncio.run(three(str(journal)))
    with closing(sqlite3.connect(journal)) as other:
        numbers = dict(other.execute("SELECT session_id, number FROM sessions"))
        other.execute("DELETE FROM segments WHERE key = ?", (numbers["hole"] << 32 | 2,))
        other.execute(
            "UPDATE segments SET first_seq = 1 WHERE key = ?", (numbers["doubled"] << 32 | 3,)
        )
        other.execute("DELETE FROM sessions WHERE session_id = 'gone'")
        other.commit()
    quick = acphold.run("doctor")
    assert quick.code == 0
    assert "not read in full; `acphold doctor --deep` checks every history" in quick.out
    done = acphold.run("doctor", "--deep")
    assert done.code == 1
    assert "session 'hole': entry 3 follows 1" in done.out
    assert "session 'doubled': entry 1 follows 2" in done.out
    assert f"belong to session number {numbers['gone']}, which does not exist" in done.out


@pytest.mark.postgresql
def test_doctor_finds_the_same_in_a_database(databases: Databases) -> None:
    with databases.new() as url:
        asyncio.run(three(url))
        acphold = CommandLine(url)  # type: ignore[arg-type]  # a URL is no path
        assert "it is intact" in acphold.run("doctor", "--deep").out
        with psycopg.connect(url, autocommit=True) as line:
            line.execute("DELETE FROM acphold.segments WHERE session_id = 'hole' AND last_seq = 2")
            line.execute(
                "UPDATE acphold.segments SET first_seq = 1"
                " WHERE session_id = 'doubled' AND last_seq = 3"
            )
            line.execute("DELETE FROM acphold.sessions WHERE session_id = 'gone'")
        done = acphold.run("doctor", "--deep")
        assert done.code == 1
        assert "session 'hole': entry 3 follows 1" in done.out
        assert "session 'doubled': entry 1 follows 2" in done.out
        assert "there are entries of session 'gone', which does not exist" in done.out


@pytest.fixture
def granting(journal: Path, acphold: CommandLine, tmp_path: Path) -> Path:
    """A backup of a journal with three tokens, two shares and three rules."""
    for id_ in ("aa-1", "bb-1"):
        remember(journal, id_, *CONVERSATION, title="Greeting")
        assert acphold.run("access", "share", id_, "--with", "bert", "--prompt").code == 0
    for name in ("phone", "tablet"):
        assert acphold.run("access", "token", "--name", name).code == 0
    for rule in ("run make check", "run pytest ...", "ask run make clean"):
        assert acphold.run("rules", "add", rule, "--cwd", str(tmp_path)).code == 0
    kept = tmp_path / "backup.db"
    assert acphold.run("journal", "backup", str(kept)).code == 0
    return kept


def tokens(acphold: CommandLine) -> dict[str, str]:
    listed = map(json.loads, acphold.run("access", "list", "--json").out.splitlines())
    return {it["name"]: it["state"] for it in listed}


def shared(journal: Path) -> list[tuple[str, bool]]:
    async def read() -> list[tuple[str, bool]]:
        async with aclosing(open_journal(journal)) as opened:
            return [
                (it.session_id, it.prompts) for it in await opened.access.shares() if not it.is_held
            ]

    return asyncio.run(read())


def pause(journal: Path, session: str) -> None:
    async def add() -> None:
        async with aclosing(open_journal(journal)) as opened:
            await opened.access.add_rule(pausing_rule(session, "", 1))

    asyncio.run(add())


def test_what_was_revoked_or_paused_since_the_backup_stays_so_after_a_restore(
    granting: Path, journal: Path, acphold: CommandLine
) -> None:
    listed = map(json.loads, acphold.run("access", "list", "--json").out.splitlines())
    [phone] = [it["id"] for it in listed if it["name"] == "phone"]
    assert acphold.run("access", "revoke", phone).code == 0
    assert acphold.run("access", "share", "aa-1", "--with", "bert", "--stop").code == 0
    assert acphold.run("access", "share", "bb-1", "--with", "bert").code == 0  # to read only
    assert acphold.run("rules", "rm", "1").code == 0
    pause(journal, "aa-1")
    done = acphold.run("journal", "restore", str(granting))
    assert (done.code, "open nothing" in done.out) == (0, False)
    assert tokens(acphold) == {"phone": "revoked", "tablet": "good"}
    assert shared(journal) == [("bb-1", False)]
    rules = acphold.run("rules").out
    assert "make check" not in rules
    assert "ask everything" in rules
    [waits] = [line for line in rules.splitlines() if "`pytest`" in line]
    assert "waits for `acphold rules on`" in waits
    assert acphold.run("rules", "on").code == 0
    assert "waits" not in acphold.run("rules").out


@pytest.mark.parametrize("former", ["gone", "damaged", "another"])
def test_where_nobody_can_tell_what_was_revoked_all_access_is_held_unless_it_is_kept(
    former: str, granting: Path, journal: Path, acphold: CommandLine
) -> None:
    journal.unlink()
    for log in journal.parent.glob(f"{journal.name}-*"):
        log.unlink()
    if former == "damaged":
        journal.write_bytes(b"x" * 8192)
    elif former == "another":
        remember(journal, "cc-1", *CONVERSATION)
    done = acphold.run("journal", "restore", str(granting))
    assert done.code == 0
    assert "2 tokens and 2 shares of this journal open nothing" in done.out
    assert tokens(acphold) == {"phone": "held", "tablet": "held"}
    assert shared(journal) == []
    assert acphold.run("rules").out.count("waits for `acphold rules on`") == 2
    again = acphold.run("journal", "restore", "--keep-access", str(granting))
    assert "open nothing" not in again.out
    assert tokens(acphold) == {"phone": "good", "tablet": "good"}
    assert shared(journal) == [("aa-1", True), ("bb-1", True)]


def test_where_access_is_held_a_restore_leaves_it_so(
    granting: Path, journal: Path, acphold: CommandLine
) -> None:
    copy = journal.with_name("copy.db")
    shutil.copyfile(journal, copy)
    done = acphold.run("journal", "restore", "--journal", str(copy), str(granting))
    assert "open nothing" in done.out
    assert acphold.run("access", "list", "--journal", str(copy)).out.count(" held ") == 2
