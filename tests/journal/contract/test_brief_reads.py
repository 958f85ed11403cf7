"""A brief reader gets the beginning of a long output, and no more of it is read."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from acphold.conversation.history.beginnings import whole_bytes
from acphold.conversation.history.entries import HEAD_BYTES, UPDATE, Entry
from acphold.conversation.history.fold import fold
from acphold.conversation.history.raw_update import members
from acphold.conversation.history.timeline import ToolCall
from acphold.journal.journal import Journal, Lease, history
from acphold.journal.rows import NewSession

NAMED = {"title": "make", "kind": "execute", "status": "completed"}
MB = 1_000_000


def update(call: str, text: str, of: str = "tool_call_update", **more: object) -> bytes:
    output = {"type": "content", "content": {"type": "text", "text": text}}
    fields = {"toolCallId": call, **more, "content": [output]}
    return json.dumps({"sessionUpdate": of, **fields}).encode()


async def in_turn(journal: Journal, session_id: str, *runs: list[bytes]) -> Lease:
    lease = await journal.create(NewSession(session_id, "a", "/w"))
    await journal.append(lease, [("prompt", [b'[{"type":"text","text":"x"}]'])])
    for run in runs:
        await journal.append(lease, [(UPDATE, run)])
    await journal.append(lease, [("turn_end", [b"{}"])])
    return lease


async def entries(journal: Journal, session_id: str, *, brief: bool) -> list[Entry]:
    return [
        entry
        async for segment in history(journal, session_id, brief=brief)
        for entry in segment.entries()
    ]


def is_begun(entry: Entry) -> bool:
    return entry.kind == UPDATE and whole_bytes(members(entry.raw)) > 0


@pytest.mark.parametrize("letter", ["y", "\n"])
async def test_long_output_is_cut_and_everything_else_comes_as_it_is(
    journal: Journal, letter: str
) -> None:
    long, short = letter * MB, "short\n"
    lease = await in_turn(
        journal,
        "s",
        [update("1", long, "tool_call", **NAMED)],
        [update("2", short, "tool_call", **NAMED)],
        [update("3", long, "tool_call", **NAMED), update("4", short, "tool_call", **NAMED)],
        [update("5", long, "tool_call")],  # its title may follow
        [json.dumps({"sessionUpdate": "tool_call", "toolCallId": "6", **NAMED}).encode()],
        [update("6", long, rawOutput=long, status="failed")],
    )
    before = await entries(journal, "s", brief=False)
    for settled, begun in ((False, [2]), (True, [2, 4, 8])):
        if settled:
            await journal.settle(lease, lease.next_seq - 1)
        whole = await entries(journal, "s", brief=False)
        assert fold(whole) == fold(before)
        found = await entries(journal, "s", brief=True)
        page = await journal.read_back("s", None, 100, 100 * MB, brief=True)
        assert [*page.entries][::-1] == [entry for entry in found if entry.raw]
        assert [entry.seq for entry in found] == [entry.seq for entry in whole]
        assert [entry.seq for entry in found if is_begun(entry)] == begun
        for one, its in zip(found, whole, strict=True):
            if not is_begun(one):
                assert one == its
                continue
            assert whole_bytes(members(one.raw)) == len(its.raw)
            (call,), (same,) = fold([one]).timeline, fold([its]).timeline
            assert isinstance(call, ToolCall)
            assert isinstance(same, ToolCall)
            assert (call.title, call.kind, call.status) == (same.title, same.kind, same.status)
            assert "rawOutput" not in call.fields
            assert len(one.raw) <= HEAD_BYTES + 100


@pytest.mark.parametrize("is_settled", [False, True])
async def test_much_longer_output_takes_no_more_memory(journal: Journal, is_settled: bool) -> None:
    async def peak(session_id: str, megabytes: int) -> int:
        text = "a line of output\n" * (megabytes * MB // 17)
        lease = await in_turn(journal, session_id, [update("t", text, "tool_call", **NAMED)])
        if is_settled:
            await journal.settle(lease, lease.next_seq - 1)
        tracemalloc.start()
        try:
            await entries(journal, session_id, brief=True)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    await peak("first", 1)  # what is imported and opened late is there
    assert await peak("much", 6) < 1.2 * await peak("little", 1)
