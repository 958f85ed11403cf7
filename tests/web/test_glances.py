"""Glances: the ends of sessions, and the messages around a hit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from acphold.web import bounds, reports
from tests.conversations import chunk
from tests.journal.conversations import Pieces, turn
from tests.web.in_process import Site, site


def edit(name: str, path: str) -> dict[str, Any]:
    diff = {"type": "diff", "path": path, "oldText": None, "newText": "x\n"}
    return {"sessionUpdate": "tool_call", "toolCallId": name, "title": name, "content": [diff]}


async def asked(served: Site, address: str, **query: Any) -> Any:
    words = "&".join(
        f"{name}={quote(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in query.items()
    )
    return (await served.get(f"{address}?{words}")).json


TALK: Pieces = [
    *turn("Begin", edit("0", "/w/old.py"), chunk("agent_message", "Begun.")),
    *turn(
        "Go on",
        chunk("agent_message", "I will look."),
        edit("1", "/w/a.py"),
        edit("2", "/w/b.py"),
        edit("3", "/w/a.py"),
        chunk("agent_message", "All is\n"),
        chunk("agent_message", "done."),
    ),
]


async def test_a_glance_has_the_last_words_and_the_files_of_the_last_turn(web: Site) -> None:
    for session_id, settled in (("one", True), ("two", False)):
        await web.remember(session_id, TALK, settled=settled)
    found = await asked(web, "/glances", sessions=["two", "one", "none"])
    facts = {"words": "All is done.", "problem": None, "files": 2, "isAll": True}
    assert found["glances"] == [{"sessionId": "two", **facts}, {"sessionId": "one", **facts}]


async def test_a_glance_at_a_failed_turn_says_why(tmp_path: Path) -> None:
    failed = [*turn("Go", chunk("agent_message", "Hm."))[:-1]]
    failed.append(("turn_end", [b'{"error":{"code":-32000,"message":"no credit left"}}']))
    async with site(tmp_path) as served:
        await served.remember("one", failed)
        (found,) = (await asked(served, "/glances", sessions=["one"]))["glances"]
        assert (found["problem"], found["words"]) == ("no credit left", "Hm.")


async def test_of_a_long_turn_only_the_end_is_read_and_the_glance_says_so(tmp_path: Path) -> None:
    long = turn(
        "Go",
        edit("0", "/w/first.py"),
        *(chunk("agent_thought", f"{n}", messageId=f"t{n}") for n in range(bounds.GLANCE_ENTRIES)),
        edit("1", "/w/last.py"),
        chunk("agent_message", "word " * 200),
    )
    async with site(tmp_path) as served:
        await served.remember("one", long)
        (found,) = (await asked(served, "/glances", sessions=["one"]))["glances"]
        assert (found["files"], found["isAll"]) == (1, False)
        assert found["words"].startswith("…word word")
        assert len(found["words"]) <= bounds.GLANCE_CHARACTERS


async def test_a_hit_has_the_messages_before_and_after_it(tmp_path: Path) -> None:
    talk: Pieces = [
        ("author", [b'{"name":"zed","version":"1","user":"bert"}']),
        *turn("Where is the needle?", chunk("agent_message", "In the " + "hay " * 100 + "needle.")),
        *turn("Thank you", chunk("agent_message", "Always.")),
    ]
    async with site(tmp_path) as served:
        await served.remember("one", talk)
        hits = (await asked(served, "/search", q="needle"))["hits"]
        places = [hit["place"] for hit in hits]
        found = (await asked(served, "/contexts", q="needle", places=places))["contexts"]
        answer, question = sorted(found, key=lambda it: len(it["excerpt"]), reverse=True)
        assert question["before"] is None
        assert question["after"]["speaker"] == "agent"
        assert answer["before"] == {
            "speaker": "user",
            "user": "bert",
            "text": "Where is the needle?",
        }
        assert answer["after"] == {"speaker": "user", "user": None, "text": "Thank you"}
        assert len(answer["excerpt"]) > len(hits[0]["excerpt"])
        ((begin, end),) = answer["marks"]
        assert answer["excerpt"][begin:end] == "needle"


async def test_a_place_without_words_is_left_out(tmp_path: Path) -> None:
    status = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "failed"}
    talk = turn(
        "Go",
        edit("1", "/w/a.py"),
        chunk("agent_message", "It "),
        chunk("agent_message", "ends."),
        status,
    )
    async with site(tmp_path) as served:
        await served.remember("one", talk, settled=False)
        (place,) = [it["place"] for it in (await asked(served, "/search", q="ends"))["hits"]]
        told = await asked(served, "/contexts", q="ends", places=[place, "one@1"])
        assert [it["place"] for it in told["contexts"]] == ["one@1"]


async def test_a_session_that_is_deleted_meanwhile_is_left_out(
    monkeypatch: pytest.MonkeyPatch, web: Site
) -> None:
    for session_id in ("one", "two", "three"):
        await web.remember(session_id, TALK)
    look = reports._readable_row

    async def seen(reader: Any, principal: Any, session_id: str) -> Any:
        row = await look(reader, principal, session_id)
        if session_id != "three":
            await web.journal.delete(session_id)
        return row

    monkeypatch.setattr(reports, "_readable_row", seen)
    told = await asked(web, "/glances", sessions=["one", "three"])
    assert [it["sessionId"] for it in told["glances"]] == ["three"]
    told = await asked(web, "/contexts", q="begin", places=["two@1", "three@1"])
    assert [it["place"] for it in told["contexts"]] == ["three@1"]


async def test_what_cannot_be_looked_at_is_refused(web: Site) -> None:
    for wrong in ("sessions=x", "sessions=[1]", "sessions=" + quote(json.dumps(["x"] * 21))):
        assert (await web.get(f"/glances?{wrong}")).status == 400
    for wrong in (
        "places=[]",
        "q=a&places=" + quote('["one"]'),
        "q=a&places=" + quote('["@"]'),
    ):
        assert (await web.get(f"/contexts?{wrong}")).status == 400
