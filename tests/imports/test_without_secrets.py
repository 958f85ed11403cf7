"""Imports that leave out the secrets: none reaches the journal, and all goes on as without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acphold.conversation.history.timeline import Message
from acphold.errors import TranscriptError
from acphold.imports import Home, ImportSelection, Intake, Outcome, Source, TakenSource
from acphold.imports.acphold import READER as OWN
from acphold.imports.claude import READER as CLAUDE
from acphold.imports.codex import READER as CODEX
from acphold.imports.crew import each
from acphold.journal.journal import state_of
from acphold.journal.stores import open_journal
from acphold.safety.redaction import redactor
from acphold.safety.redaction.redactor import Redactor
from tests.imports.claude_home import SESSION, Transcript, use
from tests.imports.codex_home import Rollout
from tests.imports.told import write_lines

KEY = "sk-ant-api03-abCD12efGH34ijKL56mnOP78"
REDACT = ImportSelection(redact=True)


def transcript() -> Transcript:
    made = Transcript()
    made.user(f"My key is {KEY}, keep it.")
    made.assistant("Reading.", use("toolu_1", "Read", file_path="/home/ada/project/.env"))
    made.result("toolu_1", f"1\tAPI_KEY={KEY}\n2\tDB_PASSWORD=Tr0ub4dor&3")
    made.assistant("The password is Tr0ub4dor&3, at ada@example.org.")
    return made


async def take(path: Path, home: Path, selection: ImportSelection = REDACT) -> list[TakenSource]:
    journal = open_journal(path)
    intake = Intake(journal, selection)
    taken = [await intake.take(source, CLAUDE) for source in CLAUDE.find(Home(home))]
    await journal.aclose()
    return taken


async def outcomes(path: Path, home: Path, selection: ImportSelection = REDACT) -> list[Outcome]:
    return [taken.outcome for taken in await take(path, home, selection)]


async def said(path: Path, session_id: str = SESSION) -> list[str]:
    journal = open_journal(path)
    state = await state_of(journal, session_id)
    await journal.aclose()
    return [item.text for item in state.timeline if isinstance(item, Message)]


def contents(path: Path) -> bytes:
    log = path.with_name(f"{path.name}-wal")
    return path.read_bytes() + (log.read_bytes() if log.exists() else b"")


async def test_no_secret_reaches_the_journal(tmp_path: Path) -> None:
    transcript().write(tmp_path)
    (taken,) = await take(tmp_path / "j.db", tmp_path)
    assert taken.outcome == "new"
    assert set(taken.facts.removed) == {"API key", "password"}
    for hidden in (KEY.encode(), b"Tr0ub4dor"):
        assert hidden not in contents(tmp_path / "j.db")
    assert await said(tmp_path / "j.db") == [
        "My key is [removed: API key], keep it.",
        "Reading.",
        "The password is [removed: password], at ada@example.org.",
    ]


async def test_a_conversation_without_secrets_is_taken_in_as_without_redact(tmp_path: Path) -> None:
    made = Transcript("Hello in /home/ada.")
    made.assistant("Hello, ada@example.org.")
    made.write(tmp_path)
    for name, selection in (("plain.db", ImportSelection()), ("redacted.db", REDACT)):
        assert await outcomes(tmp_path / name, tmp_path, selection) == ["new"]
    assert await said(tmp_path / "plain.db") == await said(tmp_path / "redacted.db")


async def test_a_rollout_of_codex_without_turns_is_taken_in_with_its_compaction(
    tmp_path: Path,
) -> None:
    old = Rollout()
    old.event("user_message", message=f"My key is {KEY}.", images=[])
    old.add("compacted", message="The sum of it.")
    old.agent("Hello.")
    old.write(tmp_path)
    journal = open_journal(tmp_path / "j.db")
    (source,) = CODEX.find(Home(tmp_path))
    taken = await Intake(journal, REDACT).take(source, CODEX)
    await journal.aclose()
    assert (taken.outcome, taken.facts.removed) == ("new", {"API key": 1})


async def test_a_second_import_finds_nothing_new_and_a_third_what_came_to_it(
    tmp_path: Path,
) -> None:
    made = transcript()
    made.write(tmp_path)
    journal = tmp_path / "j.db"
    assert await outcomes(journal, tmp_path) == ["new"]
    assert await outcomes(journal, tmp_path) == ["same"]
    made.user(f"And again: {KEY}")
    made.assistant("Yes.")
    made.write(tmp_path)
    assert await outcomes(journal, tmp_path) == ["grown"]
    assert (await said(journal))[-2:] == ["And again: [removed: API key]", "Yes."]
    assert KEY.encode() not in contents(journal)


async def test_a_conversation_that_was_held_here_is_known_by_its_redacted_prompts(
    tmp_path: Path,
) -> None:
    made = transcript()
    made.write(tmp_path)
    journal = tmp_path / "j.db"
    await outcomes(journal, tmp_path)
    opened = open_journal(journal)
    lease = await opened.acquire(SESSION)
    await opened.append(
        lease, [("prompt", [b'[{"type":"text","text":"My key is [removed: API key]"}]'])]
    )
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.release(lease)
    await opened.aclose()
    made.user(f"My key is {KEY}")
    made.user("More?")
    made.assistant("No.")
    made.write(tmp_path)
    assert await outcomes(journal, tmp_path) == ["grown"]
    assert (await said(journal))[-2:] == ["More?", "No."]


@pytest.mark.parametrize("beside", [False, True])
async def test_a_key_that_is_cut_into_pieces_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    monkeypatch.setattr("acphold.imports.pieces.PIECE_BYTES", 100)

    def line(seq: int, update: object) -> object:
        return {"seq": seq, "kind": "update", "at": "", "update": update}

    updates: list[object] = []
    for letter in f"It is {KEY}, I think.":
        content = {"type": "text", "text": letter}
        updates.append({"sessionUpdate": "agent_message_chunk", "content": content})
        if beside:
            updates.append({"sessionUpdate": "usage_update", "used": 1, "size": 2})
    prompt = {"prompt": [{"type": "text", "text": "Which key?"}]}
    write_lines(
        tmp_path / "x.jsonl",
        {"session": {"sessionId": "s1", "agent": "a", "cwd": "/"}},
        {"seq": 1, "kind": "prompt", "at": "", "update": prompt},
        *[line(seq, update) for seq, update in enumerate(updates, 2)],
    )
    journal = open_journal(tmp_path / "j.db")
    for source in OWN.find(Home(tmp_path)):
        await Intake(journal, REDACT).take(source, OWN)
    await journal.aclose()
    assert await said(tmp_path / "j.db", "s1") == [
        "Which key?",
        "It is [removed: API key], I think.",
    ]


async def test_what_comes_to_a_conversation_while_it_is_read_is_left_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = transcript()
    made.write(tmp_path)
    is_done = Redactor.is_done

    def goes_on(redactor: Redactor) -> bool:
        monkeypatch.setattr(Redactor, "is_done", is_done)
        made.user(f"Now with {KEY}.")
        made.assistant("All right.")
        made.write(tmp_path)
        return is_done(redactor)

    monkeypatch.setattr(Redactor, "is_done", goes_on)
    journal = tmp_path / "j.db"
    assert await outcomes(journal, tmp_path) == ["new"]
    assert (await said(journal))[-1].startswith("The password is")
    assert await outcomes(journal, tmp_path) == ["grown"]
    assert (await said(journal))[-2:] == ["Now with [removed: API key].", "All right."]
    assert await outcomes(journal, tmp_path) == ["same"]
    assert KEY.encode() not in contents(journal)


async def test_what_is_written_anew_while_it_is_read_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript().write(tmp_path)
    is_done = Redactor.is_done

    def goes_on(redactor: Redactor) -> bool:
        monkeypatch.setattr(Redactor, "is_done", is_done)
        other = Transcript(f"Another one, with {KEY}x.")
        other.assistant("Yes.")
        other.write(tmp_path)
        return is_done(redactor)

    monkeypatch.setattr(Redactor, "is_done", goes_on)
    with pytest.raises(TranscriptError, match="it changed while it was being searched"):
        await take(tmp_path / "j.db", tmp_path)
    assert KEY.encode() not in contents(tmp_path / "j.db")


async def test_what_cannot_be_looked_through_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("acphold.safety.redaction.redactor.secrets", fail)
    transcript().write(tmp_path)
    with pytest.raises(TranscriptError, match="cannot be searched for secrets"):
        await take(tmp_path / "j.db", tmp_path)
    assert KEY.encode() not in contents(tmp_path / "j.db")


async def test_an_entry_that_cannot_be_read_has_no_turn_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Transcript("one")
    for n in range(9):
        made.assistant(use(f"t{n}", "Bash", command="ls"))
        made.result(f"t{n}", "ok")
    decode = redactor._decode
    monkeypatch.setattr(
        redactor, "_decode", lambda raw: None if b"t8" in raw and b"ok" in raw else decode(raw)
    )
    journal, ends = open_journal(tmp_path / "j.db"), list[int]()
    for words in ("two", "three", "four"):
        made.user(words)
        made.assistant("Yes.")
        made.write(tmp_path)
        assert await outcomes(tmp_path / "j.db", tmp_path)
        ends.append((await journal.session(SESSION)).last_seq)
    await journal.aclose()
    assert ends[2] - ends[1] == ends[1] - ends[0] < 8


async def test_processes_that_read_leave_secrets_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.imports.crew.WORTH_A_WORKER", 1)
    transcript().write(tmp_path)
    journal = open_journal(tmp_path / "j.db")
    intake = Intake(journal, REDACT)
    taken: list[TakenSource] = []

    async def work(source: Source, telling: object) -> None:
        taken.append(await intake.take(source, CLAUDE, telling))  # type: ignore[arg-type]

    await each(list(CLAUDE.find(Home(tmp_path))), work)
    await journal.aclose()
    assert taken[0].facts.removed["API key"] > 0
    assert KEY.encode() not in await asyncio.to_thread(contents, tmp_path / "j.db")
