"""The changes of a session to files: one patch per file, or the reason for having none."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import Segment, turn_spans
from acphold.conversation.reports.file_edits import ABSENT, Edit, FileText, around
from acphold.conversation.reports.session_diff import FileDiff, Gap, on_disk, session_diff

CWD = "/w"
PROMPT = ("prompt", {"prompt": "x"})
END = ("turn_end", {"stopReason": "end_turn"})


def call(
    name: str, *diffs: dict[str, Any], status: str = "completed", **fields: Any
) -> tuple[str, Any]:
    update = {"toolCallId": name, "status": status, "content": list(diffs), **fields}
    return "update", {"sessionUpdate": "tool_call", **update}


def edit(old: str | None, new: str, path: str = "/w/a.txt") -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


async def changed(
    *entries: tuple[str, Any],
    disk: FileText | None = None,
    turn: int | None = None,
) -> list[FileDiff]:
    """The files that a session with these entries changed, when all on disk are so."""

    async def segments() -> AsyncIterator[Segment]:
        for seq, (kind, value) in enumerate(entries, 1):
            raw = b"[]" if kind == "prompt" else json.dumps(value).encode()
            yield Segment(seq, seq, kind, 0, raw)

    spans = await turn_spans(segments())
    return await session_diff(segments(), CWD, spans, turn, lambda path: disk)


def body(diff: FileDiff) -> str:
    """A patch without its header."""
    return diff.patch.partition("\n@@")[2].partition("@@\n")[2]


async def test_the_edits_of_a_file_are_one_patch() -> None:
    [found] = await changed(
        PROMPT,
        call("1", edit(None, "one\ntwo\n")),
        call("2", edit("one\ntwo\n", "one\n2\n")),
        END,
        PROMPT,
        call("3", edit("2", "second"), rawInput={"old_string": "2", "new_string": "second"}),
        END,
    )
    assert found.gap is None
    assert "new file mode" in found.patch
    assert body(found) == "+one\n+second\n"


async def test_a_turn_has_what_it_changed_and_no_more() -> None:
    entries = (
        PROMPT,
        call("1", edit(None, "one\ntwo\n"), edit(None, "other\n", "/w/b.txt")),
        END,
        PROMPT,
        call("1", edit("two", "2"), rawInput={"old": "two"}),  # an id that begins anew
        END,
    )
    [found] = await changed(*entries, turn=2)
    assert body(found) == " one\n-two\n+2\n"
    assert found.path == "a.txt"


async def test_what_was_changed_and_changed_back_is_no_change() -> None:
    found = await changed(
        PROMPT,
        call("1", edit("a", "b"), rawInput={"o": "a"}),
        call("2", edit("b", "a"), rawInput={"o": "b"}),
        END,
        disk="x a y\n",
    )
    assert found == [FileDiff("a.txt", turns=(1,))]


async def test_a_write_of_what_is_there_is_no_change_wherever_it_stands() -> None:
    same, other = edit("one\n", "one\n"), edit("two\n", "two\n")
    piece = call("2", other, rawInput={"old_string": "two\n", "new_string": "two\n"})
    [found] = await changed(PROMPT, call("1", same), piece, END)
    assert (found.patch, found.gap) == ("", None)


@pytest.mark.parametrize("disk", ["1\nwas\n3\n", "1\nis now\n3\n"])
async def test_what_the_journal_lacks_of_a_file_is_taken_from_the_disk(disk: str) -> None:
    [found] = await changed(
        PROMPT, call("1", edit("was", "is now"), rawInput={"old_string": "was"}), disk=disk
    )
    assert found.gap is None
    assert body(found) == " 1\n-was\n+is now\n 3\n"


@pytest.mark.parametrize("disk", [None, ABSENT, "neither\n", "is now\nis now\n"])
async def test_a_piece_that_is_nowhere_or_in_two_places_has_no_patch(disk: FileText | None) -> None:
    [found] = await changed(
        PROMPT, call("1", edit("was", "is now"), rawInput={"old_string": "was"}), disk=disk
    )
    assert found == FileDiff("a.txt", gap=Gap.UNKNOWN, turns=(1,))
    assert found.is_missing


async def test_lines_that_are_shown_are_a_patch_by_themselves() -> None:
    [found] = await changed(
        PROMPT,
        call("1", edit("1\n2\n3\n", "1\ntwo\n3\n")),
        call("2", edit("two", "II"), rawInput={"old": "two"}),
    )
    assert (found.gap, found.is_missing) == (Gap.PLACE, False)
    assert body(found) == " 1\n-2\n+II\n 3\n"


async def test_lines_that_are_told_by_their_number_are_put_there() -> None:
    [found] = await changed(
        PROMPT,
        call("1", edit("1\n2\n3", "1\ntwo\n3"), locations=[{"path": "/w/a.txt", "line": 40}]),
    )
    assert found.gap is None
    assert "@@ -40,3 +40,3 @@" in found.patch


async def test_two_places_of_a_file_without_the_rest_of_it_are_no_patch() -> None:
    [found] = await changed(
        PROMPT, call("1", edit("1\n2\n3\n", "1\ntwo\n3\n"), edit("8\n9\n", "8\nnine\n"))
    )
    assert found.gap is Gap.UNKNOWN


async def test_a_file_that_was_deleted_is_deleted_in_the_patch() -> None:
    [found] = await changed(PROMPT, call("1", edit("gone\n", ""), kind="delete"), disk=ABSENT)
    assert "deleted file mode" in found.patch
    assert body(found) == "-gone\n"


async def test_edits_that_failed_are_left_out_and_those_that_never_ended_are_named() -> None:
    found = await changed(
        PROMPT,
        call("1", edit(None, "one\n"), status="failed"),
        call("2", edit(None, "two\n", "/w/b.txt"), status="in_progress"),
        call("3", edit(None, "three\n", "/w/c.txt")),
        call("4", edit("three\n", "four\n", "/w/c.txt"), status="pending"),
    )
    assert [(diff.path, diff.gap) for diff in found] == [
        ("b.txt", Gap.UNFINISHED),
        ("c.txt", Gap.UNFINISHED),
        ("c.txt", None),
    ]
    assert body(found[2]) == "+three\n"


@pytest.mark.parametrize(
    ("told", "shown", "gap"),
    [
        ("/etc/passwd", "/etc/passwd", Gap.OUTSIDE),
        ("../x", "../x", Gap.OUTSIDE),
        ("/w/../w/sub/./x", "sub/x", None),
        ("sub/x", "sub/x", None),
        ("/w/.git/hooks/post-commit", ".git/hooks/post-commit", Gap.GIT),
        ("/w", ".", Gap.OUTSIDE),
        ("/ww/x", "/ww/x", Gap.OUTSIDE),
    ],
)
async def test_a_patch_reaches_no_further_than_the_folder_of_the_session(
    told: str, shown: str, gap: Gap | None
) -> None:
    [found] = await changed(PROMPT, call("1", edit(None, "x\n", told)))
    assert (found.path, found.gap) == (shown, gap)


@pytest.mark.parametrize("inside", ["config", "CONFIG"])
def test_no_link_leads_into_the_folder_of_git(tmp_path: Path, inside: str) -> None:
    name = ".git" if inside == "config" else ".GIT"  # as a file system without case has it
    (tmp_path / name).mkdir()
    (tmp_path / name / inside).write_text("a secret\n")
    (tmp_path / "notes.txt").symlink_to(Path(name) / inside)
    (tmp_path / "kept.txt").write_text("shown\n")
    assert on_disk("notes.txt", str(tmp_path)) is None
    assert on_disk("kept.txt", str(tmp_path)) == "shown\n"


def question(name: str, *diffs: dict[str, Any]) -> tuple[str, Any]:
    asked = {"toolCallId": name, "status": "pending", "content": list(diffs)}
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ANSWERS]
    params = {"sessionId": "s1", "toolCall": asked, "options": options}
    return "question", {"id": "q", "method": "session/request_permission", "params": params}


ANSWERS = ("allow_once", "reject_once")


def answer(kind: str) -> tuple[str, Any]:
    result = {"outcome": {"outcome": "selected", "optionId": kind}}
    return "answer", {"question": "q", "outcome": "answered", "result": result}


@pytest.mark.parametrize(
    ("answered", "status", "is_made"),
    [
        ("allow_once", "completed", True),
        ("allow_once", "failed", False),
        ("reject_once", "completed", False),
    ],
)
async def test_an_edit_that_was_shown_with_its_question_alone_counts_if_it_was_made(
    answered: str, status: str, is_made: bool
) -> None:
    said = {"type": "content", "content": {"type": "text", "text": "Wrote file successfully."}}
    found = await changed(
        PROMPT,
        call("1", status="pending"),
        question("1", edit("", "new\n")),
        answer(answered),
        call("1", said, status=status),
        END,
        disk=ABSENT,
    )
    assert [body(it) for it in found] == (["+new\n"] if is_made else [])


async def test_updates_of_a_call_count_where_it_began() -> None:
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "1",
        "status": "completed",
        "content": [edit(None, "late\n")],
    }
    first = ("update", {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Write"})
    whole = ("params", {"sessionId": "x", "update": update, "_meta": {}})
    [found] = await changed(PROMPT, first, END, PROMPT, whole, END, turn=1)
    assert body(found) == "+late\n"


async def test_nonsense_changes_nothing() -> None:
    nonsense = call("1", {"type": "diff"}, {"type": "diff", "path": 1, "newText": "x"})
    assert await changed(PROMPT, nonsense, call("", edit(None, "x"))) == []


# -- a file before and behind its edits ------------------------------------------------------------


def steps(*texts: tuple[str | None, str], **how: Any) -> Sequence[Edit]:
    return [Edit(1, "a", old, new, **how) for old, new in texts]


@pytest.mark.parametrize(
    ("edits", "disk", "known"),
    [
        (steps((None, "a\n"), ("a\n", "b\n")), None, (ABSENT, "b\n")),
        (steps((None, "a\n"), ("x\n", "b\n")), "y\n", None),
        (steps(("x\n", "y\n"), (None, "a\n")), "a\n", None),
        (steps(("", "a\n")), ABSENT, (ABSENT, "a\n")),
        (steps(("b\n", "c\n")), "a\nc\n", ("a\nb\n", "a\nc\n")),
        (steps(("b", "c")), "a\nbc\n", None),  # whole lines, and these are none
        (steps(("b", "c"), is_piece=True), "a\ncd\n", ("a\nbd\n", "a\ncd\n")),
        (steps(("b", "c"), is_piece=True), "a\nbcd\n", ("a\nbcd\n", "a\nccd\n")),
        (steps(("a", "ab"), is_piece=True), "abc", ("ac", "abc")),
        (steps(("b", ""), is_piece=True), "a\n", None),
        (steps(("b", ""), is_piece=True), "ab\n", ("ab\n", "a\n")),
        (steps(("b", "c"), is_piece=True, is_everywhere=True), "bab", ("bab", "cac")),
        (steps(("b", "c"), is_piece=True, is_everywhere=True), "cac", None),
        (steps(("b\n", "c\n"), ("c\n", "d\n")), "a\nd\n", ("a\nb\n", "a\nd\n")),
        (steps(("b", "c"), ("d", "e"), is_piece=True), "c d", ("b d", "c e")),  # between the two
        (steps(("b\n", ""), deletes=True), ABSENT, ("b\n", ABSENT)),
        (steps(("", ""), deletes=True), ABSENT, None),
    ],
)
def test_a_file_is_known_as_far_as_its_edits_and_the_disk_tell(
    edits: Sequence[Edit], disk: FileText | None, known: tuple[FileText, FileText] | None
) -> None:
    assert around(edits, 0, len(edits) - 1, lambda: disk) == known


def test_of_a_history_of_long_texts_only_the_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acphold.conversation.reports.file_edits.KEPT_CHARACTERS", 10)
    edits = steps((None, "a" * 8), ("a" * 8, "b" * 8), ("b" * 8, "c" * 8), ("c" * 8, "d" * 8))
    assert around(edits, 0, 3, lambda: None) == (ABSENT, "d" * 8)
    assert around(edits, 2, 3, lambda: None) is None


def test_nothing_known_of_a_file_counts_behind_an_edit_that_does_not_fit() -> None:
    edits = steps((None, "a\n"), ("not there", "x"), ("b", "c"), is_piece=True)
    assert around(edits, 0, 0, lambda: "c\n") == (ABSENT, "a\n")
    assert around(edits, 2, 2, lambda: "c\n") == ("b\n", "c\n")
    assert around(edits, 1, 2, lambda: "c\n") is None


async def test_of_two_long_texts_with_a_small_change_little_more_is_in_memory() -> None:
    line = "twenty letters of it\n"
    before = line * 100_000
    after = before[: len(before) // 2] + "changed\n" + before[len(before) // 2 :]

    async def peak(old: str, new: str) -> int:
        entries = [PROMPT, call("1", edit(old, new)), END]
        segments = [
            Segment(seq, seq, kind, 0, b"[]" if kind == "prompt" else json.dumps(value).encode())
            for seq, (kind, value) in enumerate(entries, 1)
        ]

        async def history() -> AsyncIterator[Segment]:
            for segment in segments:
                yield segment

        spans = await turn_spans(history())
        tracemalloc.start()
        try:
            [found] = await session_diff(history(), CWD, spans, None, lambda path: None)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert body(found).splitlines() == [
                *[f" {line[:-1]}"] * 3,
                "+changed",
                *[f" {line[:-1]}"] * 3,
            ]

    few = await peak(line * 10, line * 5 + "changed\n" + line * 5)
    assert await peak(before, after) < few + 2 * len(before + after)
