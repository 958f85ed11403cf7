"""One conversation of plain turns on disk, in the form of each program that we read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from acphold.imports import Home, Source, reader
from acphold.imports.aider import TYPED
from tests.imports import test_acpx, test_auggie, test_copilot, test_vscode, test_zed
from tests.imports.claude_home import CWD, SESSION
from tests.imports.test_aider import project
from tests.imports.test_cline import SESSION as TASK
from tests.imports.test_copilot import SESSION as COPILOT
from tests.imports.test_crush import Database
from tests.imports.test_cursor import Editor
from tests.imports.test_goose import Store as Goose
from tests.imports.test_hermes import State
from tests.imports.test_opencode import Store as OpenCode
from tests.imports.test_roo import EDITOR, TASK as ROO_TASK
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


def claude(home: Path, turns: Sequence[Said]) -> None:
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

    path = home / ".claude/projects/-home-ada-project" / f"{SESSION}.jsonl"
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
        events.lines[-1]["data"]["messageId"] = f"m{turn.number}"
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


def zed(home: Path, turns: Sequence[Said]) -> None:
    threads = test_zed.Threads(home)
    told: list[Json] = []
    for turn in turns:
        asked = test_zed.user(turn.words)
        asked["User"]["id"] = f"u{turn.number}"
        told += [asked, test_zed.agent(turn.answer)]
    threads.put(*told, updated_at=turns[-1].iso)
    threads.db.close()


def crush(home: Path, turns: Sequence[Said]) -> None:
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
    state = State(home)
    state.session()
    for turn in turns:
        for its, role, words in ((1, "user", turn.words), (2, "assistant", turn.answer)):
            its_id = 2 * turn.number + its
            state.message(role, words, id=its_id, timestamp=turn.at / 1000)
    state.db.close()


def opencode(home: Path, turns: Sequence[Said], program: str = "opencode") -> None:
    store = OpenCode(home, program)
    store.session()
    for turn in turns:
        for role, words in (("user", turn.words), ("assistant", turn.answer)):
            store._count = 2 * turn.number + (role != "user")
            store.message(role, words, time={"created": turn.at}, finish="stop")
            store.db.execute("UPDATE part SET id = 'x' || rowid || message_id")
    store.db.close()


def kilo(home: Path, turns: Sequence[Said]) -> None:
    opencode(home, turns, "kilo")


def cline(home: Path, turns: Sequence[Said]) -> None:
    (folder := home / ".cline/data/sessions" / TASK).mkdir(parents=True, exist_ok=True)
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


def roo(home: Path, turns: Sequence[Said]) -> None:
    screen: list[Json] = []
    for turn in turns:
        kind = "user_feedback" if screen else "text"
        screen.append({"ts": turn.at, "type": "say", "say": kind, "text": turn.words})
        screen.append({"ts": turn.at, "type": "say", "say": "api_req_started", "text": "{}"})
        screen.append({"ts": turn.at + 1, "type": "say", "say": "text", "text": turn.answer})
        screen.append({"ts": turn.at + 2, "type": "ask", "ask": "completion_result", "text": ""})
    (folder := home / EDITOR / "tasks" / ROO_TASK).mkdir(parents=True, exist_ok=True)
    (folder / "ui_messages.json").write_text(json.dumps(screen))


def cursor(home: Path, turns: Sequence[Said]) -> None:
    editor = Editor(home)
    headers: list[Json] = []
    for turn in turns:
        for kind, words in ((1, turn.words), (2, turn.answer)):
            headers.append({"bubbleId": f"b{turn.number}-{kind}", "type": kind})
            bubble = {"_v": 3, "type": kind, "text": words, "createdAt": turn.iso}
            editor.put(f"bubbleId:c1:{headers[-1]['bubbleId']}", bubble | headers[-1])
    composer = {"_v": 16, "composerId": "c1", "createdAt": turns[0].at}
    editor.put("composerData:c1", composer | {"fullConversationHeadersOnly": headers})
    editor.db.close()


def aider(home: Path, turns: Sequence[Said]) -> None:
    said = "".join(f"#### {turn.words}  \n\n{turn.answer}\n\n" for turn in turns)
    times = [datetime.fromtimestamp(turn.at / 1000) for turn in turns]
    path = project(home, f"\n# aider chat started at {times[0]:%Y-%m-%d %H:%M:%S}\n\n", said)
    typed = "".join(f"\n# {at}\n+{turn.words}\n" for at, turn in zip(times, turns, strict=True))
    path.with_name(TYPED).write_text(typed)


def acpx(home: Path, turns: Sequence[Said]) -> None:
    last = {"last_request_id": f"r{turns[-1].number}", "last_prompt_at": turns[-1].iso}
    path = test_acpx.record(home, **last, created_at=turns[0].iso)
    told: list[Json] = []
    for turn in turns:
        told.append({"type": "turn_started", "request_id": f"r{turn.number}"})
        told.append(test_acpx.prompt(turn.number, turn.words))
        if turn.answer:
            told += [test_acpx.update(turn.answer), test_acpx.end(turn.number)]
    name = f"{test_acpx.RECORD}.stream.ndjson"
    write_lines(path.with_name(name), *test_acpx.segment(0, *told))


def acphold(home: Path, turns: Sequence[Said]) -> None:
    told: list[Json] = [{"session": {"sessionId": "s1", "agent": "a", "cwd": CWD}}]

    def tell(turn: Said, kind: str, update: Json) -> None:
        told.append({"seq": len(told), "kind": kind, "at": turn.iso, "update": update})

    for turn in (turn for turn in turns if turn.words):
        tell(turn, "prompt", {"prompt": [{"type": "text", "text": turn.words}]})
        if turn.answer:
            said = {"type": "text", "text": turn.answer}
            tell(turn, "update", {"sessionUpdate": "agent_message_chunk", "content": said})
            tell(turn, "turn_end", {"stopReason": "end_turn"})
    write_lines(home / "kept.jsonl", *told)


READERS = {
    made.__name__: made
    for made in (
        acpx, claude, codex, gemini, qwen, opencode, kilo, cline, roo, copilot, goose, pi, cursor,
        vscode, zed, aider, crush, hermes, auggie, acphold,
    )
}  # fmt: skip


def goose_lines(home: Path, turns: Sequence[Said]) -> None:
    told: list[Json] = [{"working_dir": CWD, "description": "T"}]
    for turn in turns:
        for role, words in (("user", turn.words), ("assistant", turn.answer)):
            part = {"type": "text", "text": words}
            message = {"id": f"{role}{turn.number}", "role": role, "created": turn.at // 1000}
            told += [message | {"content": [part]}] if words else []
    write_lines(home / ".local/share/goose/sessions/20260102_1.jsonl", *told)


OLDER_FORMS = {"goose before 1.10": goose_lines}


COPIED = {
    "cline": (f"sessions/{TASK}/", f"sessions/{TASK} (copy)/"),
    "acpx": (test_acpx.RECORD, "of-another-record"),
    "claude": ("-home-ada-project", "-home-ada-copy"),
    "codex": ("sessions/2026/01/02", "archived_sessions"),
    "cursor": (".config/Cursor/", ".config/Cursor Nightly/"),
    "copilot": (f"session-state/{COPILOT}/events", f"history-session-state/{COPILOT}"),
    "gemini": ("tmp/project", "tmp/copy"),
    "qwen": ("chats/", "chats/archive/"),
    "opencode": ("opencode.db", "opencode-dev.db"),
    "kilo": ("kilo.db", "kilo-dev.db"),
    "roo": ("Code", "VSCodium"),
    "pi": ("--home-ada--", "--home-copy--"),
    "vscode": ("workspaceStorage/", "workspaceStorage/copy-"),
    "zed": (".local/share/zed", ".var/app/dev.zed.Zed/data/zed"),
    "aider": ("code/project", "moved/renamed"),
    "crush": ("code/project", "code/copy"),
    "hermes": (".hermes", ".hermes/profiles/copy"),
    "acphold": ("kept", "copy"),
}
"""Where a copy of a conversation may lie: the part of its path that differs."""


def write(name: str, home: Path, turns: Sequence[Said], *, copied: bool = False) -> None:
    """Put a conversation in the place of what is there, or a copy of it."""
    home.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=home) as made:
        (READERS | OLDER_FORMS)[name](Path(made), turns)
        paths = {path: str(path.relative_to(made)) for path in Path(made).rglob("*")}
        if copied and name in COPIED:
            moved = {path: below.replace(*COPIED[name]) for path, below in paths.items()}
            assert moved != paths
            paths = moved
        for path, below in paths.items():
            if path.is_dir():
                continue
            (home / below).parent.mkdir(parents=True, exist_ok=True)
            path.replace(home / below)


def found(name: str, home: Path) -> Iterator[Source]:
    """The sources of a reader in a home folder."""
    return reader(name.partition(" ")[0]).find(Home(home))
