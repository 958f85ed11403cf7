"""One conversation of plain turns on disk, in the form of each program that we read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from acphold.imports import Home, Source, reader
from tests.imports import test_auggie, test_copilot, test_vscode, test_zed
from tests.imports.claude_home import CWD, SESSION
from tests.imports.test_aider import BEGUN, project
from tests.imports.test_cline import SESSION as TASK
from tests.imports.test_crush import Database
from tests.imports.test_goose import Store as Goose
from tests.imports.test_hermes import State
from tests.imports.test_opencode import Store as OpenCode
from tests.imports.told import write_lines

Json = Any


class Said(NamedTuple):
    """A turn: a number that no other one has, its time in ms, the prompt and the answer."""

    number: int
    at: int
    words: str
    answer: str

    @property
    def iso(self) -> str:
        when = datetime.fromtimestamp(self.at / 1000, UTC)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(turns: Sequence[Said], head: list[Json], tell: Callable[..., list[Json]]) -> list[Json]:
    """The records of turns, each told with the id of the record before it."""
    last: str | None = None
    for turn in turns:
        ids = f"{turn.number:07}a", f"{turn.number:07}b"
        head += tell(turn, last, *ids)
        last = ids[1]
    return head


def claude(home: Path, turns: Sequence[Said], folder: str = "-home-ada-project") -> None:
    def tell(turn: Said, last: str | None, asked: str, answered: str) -> list[Json]:
        about = {"timestamp": turn.iso, "cwd": CWD, "sessionId": SESSION, "version": "2.1.0"}
        said = [{"type": "text", "text": turn.answer}]
        reply = {"id": answered, "role": "assistant", "content": said, "stop_reason": "end_turn"}
        return [
            {"type": "user", "uuid": asked, "parentUuid": last, **about,
             "message": {"role": "user", "content": turn.words}},
            {"type": "assistant", "uuid": answered, "parentUuid": asked, **about,
             "message": reply},
        ]  # fmt: skip

    path = home / ".claude/projects" / folder / f"{SESSION}.jsonl"
    write_lines(path, *_lines(turns, [{"type": "mode", "mode": "normal"}], tell))


def pi(home: Path, turns: Sequence[Said]) -> None:
    def tell(turn: Said, last: str | None, asked: str, answered: str) -> list[Json]:
        def record(its: str, parent: str | None, role: str, words: str) -> Json:
            said = {"role": role, "content": [{"type": "text", "text": words}]}
            ids = {"id": its, "parentId": parent, "timestamp": turn.iso}
            return {"type": "message", **ids, "message": said | {"stopReason": "stop"}}

        prompt = record(asked, last, "user", turn.words)
        return [prompt, record(answered, asked, "assistant", turn.answer)]

    head = {"type": "session", "id": SESSION, "timestamp": turns[0].iso, "cwd": CWD, "version": 3}
    path = home / ".pi/agent/sessions/--home-ada--" / f"2026-01-02T03-04-05-678Z_{SESSION}.jsonl"
    write_lines(path, *_lines(turns, [head], tell))


def qwen(home: Path, turns: Sequence[Said]) -> None:
    def tell(turn: Said, last: str | None, asked: str, answered: str) -> list[Json]:
        about = {"timestamp": turn.iso, "cwd": CWD, "sessionId": SESSION}
        prompt = {"role": "user", "parts": [{"text": turn.words}]}
        reply = {"role": "model", "parts": [{"text": turn.answer}]}
        return [
            {"uuid": asked, "parentUuid": last, "type": "user", **about, "message": prompt},
            {"uuid": answered, "parentUuid": asked, "type": "assistant", **about,
             "message": reply, "model": "m"},
        ]  # fmt: skip

    write_lines(home / ".qwen/projects/p/chats" / f"{SESSION}.jsonl", *_lines(turns, [], tell))


def gemini(home: Path, turns: Sequence[Said]) -> None:
    def tell(turn: Said, _: str | None, asked: str, answered: str) -> list[Json]:
        return [
            {"id": asked, "timestamp": turn.iso, "type": "user", "content": [{"text": turn.words}]},
            {"id": answered, "timestamp": turn.iso, "type": "gemini", "content": turn.answer},
        ]

    folder = home / ".gemini/tmp/project"
    (folder / "chats").mkdir(parents=True, exist_ok=True)
    (folder / ".project_root").write_text(f"{CWD}\n")
    head = [{"sessionId": SESSION, "startTime": turns[0].iso, "kind": "main"}]
    path = folder / "chats" / f"session-2026-01-02T03-04-{SESSION[:8]}.jsonl"
    write_lines(path, *_lines(turns, head, tell))


def codex(home: Path, turns: Sequence[Said]) -> None:
    def tell(turn: Said, *_: object) -> list[Json]:
        def record(kind: str, **payload: Json) -> Json:
            return {"timestamp": turn.iso, "type": kind, "payload": payload}

        asked = [{"type": "input_text", "text": turn.words}]
        told = [{"type": "output_text", "text": turn.answer}]
        return [
            record("event_msg", type="task_started", turn_id=f"t{turn.number}"),
            record("turn_context", turn_id=f"t{turn.number}", cwd=CWD, model="m"),
            record("response_item", type="message", role="user", content=asked),
            record("event_msg", type="user_message", message=turn.words, images=[]),
            record("event_msg", type="agent_message", message=turn.answer),
            record("response_item", type="message", role="assistant", content=told),
            record("event_msg", type="task_complete", turn_id=f"t{turn.number}"),
        ]

    about = {"id": SESSION, "cwd": CWD, "cli_version": "0.137.0"}
    head = [{"timestamp": turns[0].iso, "type": "session_meta", "payload": about}]
    name = f"rollout-2026-01-02T03-00-00-{SESSION}.jsonl"
    write_lines(home / ".codex/sessions/2026/01/02" / name, *_lines(turns, head, tell))


def copilot(home: Path, turns: Sequence[Said]) -> None:
    events = test_copilot.Events()
    events.lines[0]["timestamp"] = turns[0].iso
    for turn in turns:
        events.user(turn.words)
        events.lines[-1] |= {"id": f"e{turn.number}", "timestamp": turn.iso}
        events.agent(turn.answer)
        events.lines[-1] |= {"id": f"f{turn.number}", "timestamp": turn.iso}
    events.write(home)


def auggie(home: Path, turns: Sequence[Said]) -> None:
    told = [
        test_auggie.exchange(turn.words, test_auggie.said(turn.answer), finishedAt=turn.iso)
        for turn in turns
    ]
    for turn, exchange in zip(turns, told, strict=True):
        exchange["exchange"]["request_id"] = f"r{turn.number}"
    test_auggie.session(home, *told)


def vscode(home: Path, turns: Sequence[Said]) -> None:
    test_vscode.document(
        home,
        *[
            test_vscode.request(turn.words, turn.answer)
            | {"requestId": f"r{turn.number}", "responseId": f"a{turn.number}"}
            | {"timestamp": turn.at}
            for turn in turns
        ],
    )


def _removed(path: Path) -> None:
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
    if path.parent.exists():
        path.parent.rmdir()


def zed(home: Path, turns: Sequence[Said]) -> None:
    _removed(home / ".local/share/zed/threads/threads.db")
    threads = test_zed.Threads(home)
    told: list[Json] = []
    for turn in turns:
        asked = test_zed.user(turn.words)
        asked["User"]["id"] = f"u{turn.number}"
        told += [asked, test_zed.agent(turn.answer)]
    threads.put(*told, updated_at=turns[-1].iso)
    threads.db.close()


def crush(home: Path, turns: Sequence[Said]) -> None:
    _removed(home / "code/project/.crush/crush.db")
    database = Database(home)
    database.session()
    for turn in turns:
        for role, words in (("user", turn.words), ("assistant", turn.answer)):
            database.message(role, words)
            now = (f"{role}{turn.number}", turn.at, f"m{database._at}")
            database.db.execute("UPDATE messages SET id = ?, created_at = ? WHERE id = ?", now)
    last = turns[-1].at + 2 * turns[-1].number + bool(turns[-1].answer)
    database.db.execute("UPDATE sessions SET updated_at = ?", (last,))
    database.db.close()


def goose(home: Path, turns: Sequence[Said]) -> None:
    _removed(home / ".local/share/goose/sessions/sessions.db")
    store = Goose(home)
    store.session("1")
    for turn in turns:
        for role, words in (("user", turn.words), ("assistant", turn.answer)):
            store.message(role, words)
            now = (f"{role}{turn.number}", turn.at // 1000, f"msg-{store._at}")
            store.db.execute(
                "UPDATE messages SET message_id = ?, created_timestamp = ? WHERE message_id = ?",
                now,
            )
    more = 2000 * turns[-1].number + 1000 * bool(turns[-1].answer)
    last = turns[-1]._replace(at=turns[-1].at + more).iso
    times = "2026-01-02 03:00:00", last[:19].replace("T", " ")
    store.db.execute("UPDATE sessions SET created_at = ?, updated_at = ?", times)
    store.db.close()


def hermes(home: Path, turns: Sequence[Said]) -> None:
    _removed(home / ".hermes/state.db")
    state = State(home)
    state.session()
    for turn in turns:
        state.message("user", turn.words, timestamp=turn.at / 1000)
        state.message("assistant", turn.answer, timestamp=turn.at / 1000)
    state.db.close()


def opencode(home: Path, turns: Sequence[Said]) -> None:
    _removed(home / ".local/share/opencode/opencode.db")
    store = OpenCode(home)
    store.session()
    for turn in turns:
        for role, words in (("user", turn.words), ("assistant", turn.answer)):
            store._count = 2 * turn.number + (role != "user")
            store.message(role, words, time={"created": turn.at}, finish="stop")
            store.db.execute("UPDATE part SET id = 'x' || rowid || message_id")
    store.db.close()


def cline(home: Path, turns: Sequence[Said]) -> None:
    folder = home / ".cline/data/sessions" / TASK
    folder.mkdir(parents=True, exist_ok=True)
    told: list[Json] = []
    for turn in turns:
        for role, words in (("user", turn.words), ("assistant", turn.answer)):
            if role == "user":
                words = f'<user_input mode="act">{words}</user_input>'
            content = [{"type": "text", "text": words}]
            its = f"{role}{turn.number}"
            told.append({"id": its, "role": role, "ts": turn.at, "content": content})
    (folder / f"{TASK}.json").write_text(json.dumps({"cwd": CWD, "metadata": {"title": "T"}}))
    (folder / f"{TASK}.messages.json").write_text(json.dumps({"messages": told}))


def aider(home: Path, turns: Sequence[Said]) -> None:
    said = "".join(f"#### {turn.words}  \n\n{turn.answer}\n\n" for turn in turns)
    project(home, BEGUN, said)


READERS = {
    made.__name__: made
    for made in (
        claude, pi, qwen, gemini, codex, copilot, auggie, vscode, zed, crush, goose, hermes,
        opencode, cline,
    )
}  # fmt: skip


def found(name: str, home: Path) -> Iterator[Source]:
    """The sources of a reader in a home folder."""
    return reader(name).find(Home(home))
