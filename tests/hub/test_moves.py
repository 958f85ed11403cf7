"""A session goes to another machine: whole, once, and however often the connection breaks."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acp_wire.transports.streams import memory_pair
from acphold.conversation.history.entries import Entry, Origin
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.errors import (
    ConnectionLostError,
    HeldElsewhereError,
    MoveRefusedError,
    SessionMovedError,
)
from acphold.journal.intentions import change_queue
from acphold.journal.journal import Journal, is_live
from acphold.journal.moves import row_here
from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal
from acphold.live.hub import move_taker
from acphold.live.hub.move_giver import give
from acphold.live.hub.move_taker import WantedPlace, take
from acphold.live.hub.moves import (
    VERSION,
    Again,
    Ask,
    EndOfEntries,
    EntryPiece,
    Have,
    Marked,
    MovedSession,
    MoveLine,
    PackPiece,
    SessionOffer,
    TakerReady,
    past_entry,
)
from tests.editor import Refused
from tests.hub.moving import (
    ROUNDS,
    SOAKED,
    Machine,
    broken_moves,
    machines,
    move,
    origin,
)
from tests.hub.shared import shared
from tests.raw_entries import CONVERSATION, ended, prompt, said
from tests.snapshots.conftest import Project, files


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return origin(tmp_path)


@contextmanager
def sending(change: Callable[[object], object]) -> Iterator[None]:
    """For the block, the ends of moves send what `change` makes of each frame."""
    send = MoveLine.send

    async def changed(self: MoveLine, frame: object) -> None:
        await send(self, change(frame))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MoveLine, "send", changed)
        yield


def cut_before(kind: type) -> AbstractContextManager[None]:
    """For the block, connections break before a frame of this kind."""

    def breaks(frame: object) -> object:
        if isinstance(frame, kind):
            raise ConnectionLostError("cut")
        return frame

    return sending(breaks)


async def test_a_conversation_goes_and_continues_there_alone(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        modes = b'{"modes":{"availableModes":[],"currentModeId":"allows-all"}}'
        await here.remember("s-1", ("settings", modes), *CONVERSATION)
        given, taken, _ = await move(here, there)
        assert isinstance(given, MovedSession), given
        assert isinstance(taken, MovedSession), taken
        assert await here.told("s-1") == await there.told("s-1")
        assert (await here.journal.summary("s-1")).attributes.current_mode_id == "allows-all"
        row = await there.journal.session("s-1")
        assert (await here.journal.session("s-1")).home != row.home == ""
        assert (row.title, row.agent, row.cwd) == ("T", "scripted", str(there.folder))
        assert (row.prompted, row.moved, row.start) == (True, "", None)
        assert not await here.owns("s-1")
        for machine in (here, there):  # nobody waits for a lease to run out
            assert not await is_live(machine.journal, "s-1")
        lease = await here.journal.acquire("s-1")
        with pytest.raises(SessionMovedError, match="continues on there; `acphold continue"):
            await row_here(here.journal, lease)
        with pytest.raises(SessionMovedError):
            await change_queue(here.journal, "s-1", QueueChange("hold"))
        *_, (_, kind, _, raw) = await here.told("s-1")
        assert kind == "moved"
        assert b'"from":"here","to":"there"' in raw


@pytest.mark.parametrize("lie", ["title", "giver", "origin"])
async def test_a_title_from_there_is_cut_and_other_names_of_any_length_are_refused(
    tmp_path: Path, lie: str
) -> None:
    long = "x" * 100_000

    def lies(frame: object) -> object:
        if isinstance(frame, SessionOffer):
            if lie == "title":
                frame = replace(frame, session=replace(frame.session, title=long))
            elif lie == "giver":
                frame = replace(frame, giver=long)
            else:
                origins = (Origin("s-0", long, 1),)
                frame = replace(frame, session=replace(frame.session, origins=origins))
        return frame

    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        with sending(lies):
            _, taken, _ = await move(here, there)
        if lie == "title":
            assert (await there.journal.session("s-1")).title == "x" * 200
        else:
            assert "offers an invalid session" in str(taken)
            assert await here.owns("s-1")


async def test_it_comes_back_with_what_was_said_there(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        lease = await here.journal.acquire("s-1")
        await here.journal.links.link(lease, "scripted", "its-own")
        await here.journal.release(lease)
        await move(here, there)
        await there.remember("s-1", prompt("There"), said("Yes."), ended())
        given, taken, _ = await move(there, here)
        assert isinstance(given, MovedSession), given
        assert isinstance(taken, MovedSession), taken
        assert await here.told("s-1") == await there.told("s-1")
        assert (await here.owns("s-1"), await there.owns("s-1")) == (True, False)
        # Its agent here has not heard that: it is not asked to go on from its own memory.
        assert (await here.journal.session("s-1")).downstream_id != "its-own"
        await here.remember("s-1", prompt("Here again"), ended())
        await move(here, there)
        assert await here.told("s-1") == await there.told("s-1")
        assert (await here.owns("s-1"), await there.owns("s-1")) == (False, True)


async def test_a_copy_that_both_have_goes_nowhere(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        for machine in (here, there):
            await machine.remember("s-1", *CONVERSATION)
        given, taken, _ = await move(here, there)
        assert isinstance(taken, MoveRefusedError)
        assert str(given) == str(taken)
        assert "both machines can continue this session" in str(taken)
        assert await here.owns("s-1")
        assert await there.owns("s-1")


async def test_what_was_handed_over_in_one_move_goes_nowhere_in_another(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await move(here, there)
        third = Machine(tmp_path / "third", "third")
        given, taken, _ = await move(here, third)
        assert "another move took it to there" in str(given)
        assert isinstance(taken, MoveRefusedError)
        assert not await third.owns("s-1")
        await third.journal.aclose()


async def test_a_refused_move_leaves_a_session_free_to_go_on_to_where_it_went(
    tmp_path: Path,
) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        with cut_before(Marked):
            await move(here, there)
        third = Machine(tmp_path / "third", "third")
        await third.remember("s-1", prompt("Something else"), ended(), *CONVERSATION)
        given, _, _ = await move(third, here)
        assert "a different conversation; acphold merges none" in str(given)
        await third.journal.aclose()
        given, _, _ = await move(here, there)
        assert isinstance(given, MovedSession), given
        assert await there.owns("s-1")


async def test_two_takes_at_once_leave_the_session_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await move(here, there)
        await there.remember("s-1", prompt("There"), ended())
        known = move_taker.recent_folders

        async def slow(journal: Journal) -> list[str]:
            monkeypatch.setattr(move_taker, "recent_folders", known)
            given, _, _ = await move(there, here)
            assert isinstance(given, MovedSession), given
            return await known(journal)

        monkeypatch.setattr(move_taker, "recent_folders", slow)
        _, taken, _ = await move(there, here)
        assert "another move of this session was in progress" in str(taken)
        assert await here.owns("s-1")


async def test_of_two_machines_that_take_a_session_the_loser_learns_where_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machines(tmp_path) as (here, there):
        third = Machine(tmp_path / "third", "third")
        await here.remember("s-1", *CONVERSATION)
        known = move_taker.recent_folders

        async def slow(journal: Journal) -> list[str]:
            monkeypatch.setattr(move_taker, "recent_folders", known)
            given, _, _ = await move(here, third)
            assert isinstance(given, MovedSession), given
            return await known(journal)

        monkeypatch.setattr(move_taker, "recent_folders", slow)
        _, taken, _ = await move(here, there)
        assert isinstance(taken, MoveRefusedError)
        assert "another move took it to third" in str(taken)
        assert [await one.owns("s-1") for one in (here, there, third)] == [False, False, True]
        await third.journal.aclose()


async def test_a_session_that_is_open_or_in_which_prompts_wait_stays(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        other = open_journal(here.folder / "journal.db")
        lease = await other.acquire("s-1")
        given, _, _ = await move(here, there)
        assert isinstance(given, HeldElsewhereError), given
        await other.change(lease, RowChange(queued=2))
        await other.release(lease)
        await other.aclose()
        given, taken, _ = await move(here, there)
        assert "this session has queued prompts" in str(given)
        assert str(given) == str(taken)
        assert await here.owns("s-1")


async def test_a_session_without_a_folder_there_stays(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION, cwd="/far/away/src")
        given, _, _ = await move(here, there, place=WantedPlace())
        assert "knows neither the folder '/far/away/src' nor a clone" in str(given)
        assert await here.owns("s-1")
        (there.folder / "src").mkdir()
        mapped = WantedPlace(folders={"/far": "/nowhere", "/far/away": str(there.folder)})
        given, _taken, _ = await move(here, there, place=mapped)
        assert isinstance(given, MovedSession), given
        assert given.done.cwd == str(there.folder / "src")


# -- files -----------------------------------------------------------------------------------


async def test_the_files_go_into_a_new_work_tree_of_the_clone_there(
    tmp_path: Path, project: Project
) -> None:
    for number in range(200):
        project.write(f"many/{number}.txt", f"{number}\n" * 50)
    project.commit()
    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION, cwd=str(here.clone / "folder"))
        await there.remember("known", *CONVERSATION)  # by which the clone is known
        here.project.write("a.txt", "changed\n")
        here.project.write("new.txt", "new\n")
        here.project.write(".env", "TOKEN=x")
        await here.keep("s-1")
        given, taken, size = await move(here, there, place=WantedPlace())
        assert isinstance(given, MovedSession), given
        assert isinstance(taken, MovedSession), taken
        laid = there.folder / "clone-s1"
        assert given.done.files == str(laid)
        assert (given.done.why_plain, given.left_out_names) == ("", (".env",))
        assert (await there.journal.session("s-1")).cwd == str(laid / "folder")
        assert there.project.status(laid) == " M a.txt\0?? new.txt\0"
        assert {**files(here.clone), b".env": None} == {**files(laid), b".env": None}
        assert size < 20_000
        [row] = await there.journal.snapshots.of("s-1")
        assert row.root == str(laid)
        assert there.project.status(there.clone) == ""
        # And back: again into a new one.
        await there.remember("s-1", prompt("x"), ended())
        (laid / "a.txt").write_text("there\n")
        await there.keep("s-1", cwd=laid)
        given, _, _ = await move(there, here, place=WantedPlace())
        assert isinstance(given, MovedSession), given
        assert (here.folder / "clone-s1" / "a.txt").read_text() == "there\n"
        assert (here.clone / "a.txt").read_text() == "changed\n"


async def test_a_session_comes_back_to_its_folder_if_that_has_its_files_still(
    tmp_path: Path, project: Project
) -> None:
    async with machines(tmp_path, project) as (here, there):
        for machine in (here, there):
            await machine.remember("known", *CONVERSATION)
        await here.remember("s-1", *CONVERSATION, cwd=str(here.clone / "folder"))
        here.project.write("a.txt", "changed\n")
        await here.keep("s-1")
        await move(here, there, place=WantedPlace())
        laid = there.folder / "clone-s1"
        await there.remember("s-1", prompt("Only talk"), ended())
        await there.keep("s-1", cwd=laid)
        given, _, _ = await move(there, here, place=WantedPlace())
        assert isinstance(given, MovedSession), given
        assert (given.done.cwd, given.done.is_same) == (str(here.clone / "folder"), True)
        assert not (here.folder / "clone-s1").exists()
        # The move next time includes the new snapshots.
        await here.keep("s-1", cwd=here.clone)
        assert len(await here.journal.snapshots.of("s-1")) == 2
        given, _, _ = await move(here, there, place=WantedPlace())
        assert isinstance(given, MovedSession), given
        assert given.done.is_same
        assert given.done.cwd == str(laid / "folder")


async def test_folders_are_named_after_the_project_however_often_a_session_moves(
    tmp_path: Path, project: Project
) -> None:
    async with machines(tmp_path, project) as (here, there):
        for machine in (here, there):
            await machine.remember("known", *CONVERSATION)
        await here.remember("s-1", *CONVERSATION)
        giver, taker, folder = here, there, here.clone
        names = []
        for number in range(4):
            (folder / "a.txt").write_text(f"{number}\n")
            await giver.remember("s-1", prompt("x"), ended())
            await giver.keep("s-1", cwd=folder)
            await move(giver, taker, place=WantedPlace())
            folder = Path((await taker.journal.session("s-1")).cwd)
            names.append(folder.name)
            giver, taker = taker, giver
        assert names == ["clone-s1", "clone-s1", "clone-s1-2", "clone-s1-2"]


async def test_files_that_were_laid_out_when_a_move_was_cut_off_are_used_by_the_next_try(
    tmp_path: Path, project: Project
) -> None:
    async with machines(tmp_path, project) as (here, there):
        await there.remember("known", *CONVERSATION)
        await here.remember("s-1", *CONVERSATION)
        here.project.write("a.txt", "changed\n")
        await here.keep("s-1")
        with cut_before(TakerReady):
            await move(here, there, place=WantedPlace())
        laid = there.folder / "clone-s1"
        assert files(laid) == files(here.clone)
        given, _, _ = await move(here, there, place=WantedPlace())
        assert isinstance(given, MovedSession), given
        assert given.done.files == str(laid)
        assert (await there.journal.session("s-1")).cwd == str(laid)
        assert not (there.folder / "clone-s1-2").exists()


async def test_on_its_way_back_the_files_of_today_are_not_taken_for_those_of_the_session(
    tmp_path: Path, project: Project
) -> None:
    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await here.keep("s-1")
        given, _, _ = await move(here, there)
        assert isinstance(given, MovedSession), given
        (here.clone / "a.txt").write_text("mine\n")
        with cut_before(EndOfEntries):
            await move(there, here)
        given, _, _ = await move(there, here)
        assert isinstance(given, MovedSession), given
        assert given.done.files == str(here.folder / "clone-s1")
        assert (here.folder / "clone-s1" / "a.txt").read_text() == "first\n"


async def test_without_the_commit_or_the_project_it_is_a_plain_folder(
    tmp_path: Path, project: Project
) -> None:
    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        here.project.write("a.txt", "changed\n")
        here.project.commit()
        await here.keep("s-1")
        given, _, _ = await move(here, there, place=WantedPlace())
        assert "knows no clone of clone: name its folder there with --cwd" in str(given)
        to = there.folder / "put"
        given, _, _ = await move(here, there, place=WantedPlace(files=str(to)))
        assert isinstance(given, MovedSession), given
        assert "not a git repository" in given.done.why_plain
        assert files(to) == files(here.clone)


async def test_files_that_are_not_wanted_stay(tmp_path: Path, project: Project) -> None:
    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await here.keep("s-1")
        wanted = WantedPlace(cwd=str(there.clone), with_files=False)
        given, _, _ = await move(here, there, place=wanted)
        assert isinstance(given, MovedSession), given
        assert given.done.cwd == str(there.clone)
        assert await there.journal.snapshots.of("s-1") == []


# -- strangers -------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b'{"type":"refused","why":"\xff"}', b"[" * 100_000, b"{}"])
async def test_what_is_no_frame_is_refused_on_either_end(tmp_path: Path, line: bytes) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        strangers, ours = zip(*(memory_pair(1 << 20) for _ in range(2)), strict=True)
        for stranger in strangers:
            stranger.send(line + b"\n")
        place = WantedPlace(cwd=str(there.folder))
        for end in (
            give(here.journal, ours[0], "s-1", "there"),
            take(there.journal, ours[1], place, Surroundings.here(), "s-1"),
        ):
            with pytest.raises(MoveRefusedError, match="something unexpected"):
                await end
        assert await here.owns("s-1")


@pytest.mark.parametrize("begins_again", [False, True])
async def test_a_taker_gets_no_entries_of_other_sessions_whatever_it_says_it_has(
    tmp_path: Path, *, begins_again: bool
) -> None:
    async with machines(tmp_path) as (here, _):
        await here.remember("s-1", prompt("a secret"))
        await here.remember("s-2", *CONVERSATION)
        near, far = memory_pair(1 << 20)
        line = MoveLine(far)
        giving = asyncio.ensure_future(give(here.journal, near, "s-2", "there"))
        await line.send(Ask(VERSION, "another", "there"))
        await line.receive(SessionOffer)
        if begins_again:
            await line.send(Have(1, "unknown", "move", is_new=True))
            await line.receive(Again)
        await line.send(Have(-5, sha256().hexdigest(), "move", is_new=False))
        with pytest.raises(MoveRefusedError, match="something unexpected"):
            await line.receive(EntryPiece)
        with pytest.raises(MoveRefusedError):
            await giving
        assert await here.owns("s-2")


@pytest.mark.parametrize(
    "entry",
    [
        Entry(1, "update", 1, b"no JSON"),
        Entry(1, "update", 1, b'{"a":1}\n{"b":2}'),
        Entry(1, "update", 1, b'{"a":[\r{"b":2}\r]}'),
        Entry(1, "update", 1, b'"\xff"'),
        Entry(1, "up\ndate", 1, b"{}"),
        Entry(1, "", 1, b"{}"),
        Entry(1, "update", -1, b"{}"),
        Entry(1, "update", 1 << 53, b"{}"),
    ],
)
def test_what_is_no_entry_is_refused(entry: Entry) -> None:
    with pytest.raises(MoveRefusedError, match="an invalid entry"):
        past_entry(entry)


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "git~1", ".g\u200cit"])
async def test_a_tree_with_a_name_that_leads_out_is_refused(
    tmp_path: Path, project: Project, name: str
) -> None:
    git = ["git", "-C", str(project.top)]

    def run(*words: str, stdin: bytes = b"") -> bytes:
        return subprocess.run([*git, *words], input=stdin, capture_output=True, check=True).stdout

    blob = run("hash-object", "-w", "--stdin", stdin=b"x")
    inner = b"100644 config\0" + bytes.fromhex(blob.decode().strip())
    tree = run("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=inner)
    outer = b"40000 " + name.encode() + b"\0" + bytes.fromhex(tree.decode().strip())
    bad = run("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=outer).decode()
    pack = run("pack-objects", "--revs", "--stdout", stdin=bad.encode())

    def offers(frame: object) -> object:
        if isinstance(frame, SessionOffer):
            assert frame.files is not None
            frame = replace(frame, files=replace(frame.files, tree=bad.strip()))
        if isinstance(frame, PackPiece) and frame.data:
            frame = PackPiece(pack)
        return frame

    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await here.keep("s-1")
        before = files(there.clone)
        with sending(offers):
            _given, taken, _ = await move(here, there)
        assert isinstance(taken, MoveRefusedError), taken
        assert "the files were refused" in str(taken)
        assert files(there.clone) == before
        assert not (there.folder / "clone-s1").exists()
        assert await here.owns("s-1")
        assert not await there.owns("s-1")


# -- connections that break ------------------------------------------------------------------


async def test_a_connection_that_breaks_anywhere_leaves_one_owner_in_the_end(
    tmp_path: Path, project: Project
) -> None:
    await broken_moves(tmp_path, project, ROUNDS, 30)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_so_do_many_moves_with_connections_that_break(
    tmp_path: Path, project: Project
) -> None:
    await broken_moves(tmp_path, project, SOAKED, 200)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("in another order", "out of order"),
        ("without the last", "arrived damaged"),
        ("with other words", "arrived damaged"),
        ("not at all", "something unexpected"),
        ("with the mark of another move", ""),
    ],
)
async def test_entries_that_do_not_arrive_as_they_were_announced_are_refused(
    how: str, why: str, tmp_path: Path
) -> None:
    def lies(frame: object) -> object:
        if how == "with the mark of another move":
            if isinstance(frame, Marked):
                return Marked(replace(frame.entry, raw=b'{"id":"another"}'))
        elif isinstance(frame, EntryPiece | EndOfEntries) and how == "not at all":
            return Again()
        elif isinstance(frame, EntryPiece):
            *first, last = frame.entries
            changed = {
                "in another order": [last, *first],
                "without the last": first,
                "with other words": [*first, replace(last, raw=b'{"stopReason":"refusal"}')],
            }
            return EntryPiece(changed[how])
        return frame

    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        with sending(lies):
            given, taken, _ = await move(here, there)
        assert isinstance(taken, MoveRefusedError)
        assert why in str(taken)
        has_gone = "the session has already left this machine" in str(given)
        assert has_gone == (how == "with the mark of another move")
        assert not await there.owns("s-1")
        assert isinstance((await move(here, there))[0], MovedSession)
        assert await there.owns("s-1")


async def test_no_client_opens_a_session_that_went_and_no_import_adds_to_it(
    journal: Path, tmp_path: Path
) -> None:
    async with shared(journal) as house, machines(tmp_path / "other") as (_, there):
        client, session = await house.opened(tmp_path)
        await house.turn(client, session, "go")
        await client.call("session/close", {"sessionId": session})
        near, far = memory_pair(1 << 20)
        await asyncio.gather(
            give(house.journal, near, session, "there"),
            take(there.journal, far, WantedPlace(cwd=str(tmp_path)), Surroundings.here()),
        )
        with pytest.raises(
            Refused,
            match=r"continues on there; `acphold continue \S+ --from last`",
        ):
            await client.load(session, tmp_path)
