"""The inbox as `serve` answers it: waiting questions, decisions, and access to them."""

from __future__ import annotations

import asyncio
import json
from threading import Event

import pytest

from acphold.conversation.history.decisions import AskedQuestion, answer_entry, question_entry
from acphold.conversation.presentation import permissions
from acphold.conversation.presentation.permissions import Permission
from acphold.journal.access import Share
from acphold.live.reading import json_facts
from acphold.live.reading.processes import LiveSession, Process
from tests.editor import DEADLINE
from tests.journal.conversations import Pieces, turn
from tests.watched_processes import until
from tests.web.conftest import Live
from tests.web.in_process import Site

PARAMS = b'{"sessionId":"x","toolCall":{"toolCallId":"t1","title":"Run \\u202e it"},"options":[]}'


def asked(id_: str, *, is_answered: bool = False, params: bytes = PARAMS) -> Pieces:
    """A turn in which something was asked."""
    question = question_entry(AskedQuestion(id_, "session/request_permission", params))
    answer = answer_entry(id_, "answered", result=b'{"outcome":{"outcome":"cancelled"}}')
    pieces = [*turn("Go")]
    pieces[1:1] = [("question", [question]), *([("answer", [answer])] if is_answered else [])]
    return pieces


def waits(session_id: str, *ids: str) -> tuple[LiveSession, Process]:
    session = LiveSession(session_id, 1, running=True, waiting=True, questions=ids)
    return session, Process(1, "scripted", [session])


async def test_the_inbox_has_what_waits_and_its_history_what_was_decided(
    live: Live, web: Site
) -> None:
    await web.remember("s1", asked("q1"), settled=False, title="One")
    await web.remember("s2", asked("q2", is_answered=True))
    await web.remember("s3", asked("q3"), settled=False)
    live |= {"s1": waits("s1", "q1"), "s3": waits("s3")}  # one of an earlier release
    answer = await web.get("/inbox")
    assert answer.status == 200
    first, second = answer.json["questions"]
    assert (first["id"], first["sessionId"], second["id"]) == ("q1", "s1", "q3")
    assert first["asks"] == "Run \u202e it"
    assert first["shows"] == {
        "wants": "asks",
        "blocks": [{"kind": "text", "text": "Run \\u202e it"}],
        "options": [],
    }
    assert b"\xe2\x80\xae" not in answer.body, "nothing is in it that nobody sees"
    assert first["params"] == json.loads(PARAMS)
    assert (await web.get("/inbox", if_none_match=answer.headers["etag"])).status == 304
    (decided,) = (await web.get("/inbox/history")).json["decisions"]
    assert (decided["id"], decided["how"]) == ("q2", "cancelled")
    assert (await web.get("/inbox/history?session=s1")).json == {"decisions": []}


async def test_others_are_answered_while_a_question_is_made_ready_to_be_shown(
    live: Live, web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, made = Event(), Event()

    def wait(*_: object) -> Permission:
        begun.set()
        assert made.wait(DEADLINE)
        return Permission("asks", (), ())

    monkeypatch.setattr(permissions, "permission", wait)
    await web.remember("s1", asked("q1"), settled=False)
    live["s1"] = waits("s1", "q1")
    json_facts._scene.cache_clear()
    asking = asyncio.create_task(web.get("/inbox"))
    try:
        await until(begun.is_set)
        assert (await web.get("/search?q=a")).status == 200
        assert (await web.get("/inbox/history")).status == 200
    finally:
        made.set()
        json_facts._scene.cache_clear()
    assert (await asking).status == 200


async def test_what_cannot_be_asked_of_the_inbox_is_refused(web: Site) -> None:
    for url in ("/inbox?unknown=1", "/inbox/history?unknown=1", "/inbox/history?cursor=x"):
        assert (await web.get(url)).status == 400
    assert (await web.get("/inbox/else")).status == 404


async def test_each_user_sees_what_waits_in_the_sessions_that_are_there_for_them(
    live: Live, web: Site
) -> None:
    for number, (session_id, tenant) in enumerate((("hers", "alice"), ("his", "bob"))):
        pieces = [*asked(f"q{number}"), *asked(f"d{number}", is_answered=True)]
        await web.remember(session_id, pieces, settled=False, tenant=tenant)
        live[session_id] = waits(session_id, f"q{number}")
    await web.journal.access.keep_share(Share("his", "rita"))
    for user, only, theirs in (
        ("alice", None, ["q0"]),
        ("rita", None, ["q1"]),
        ("eve", None, []),
        (None, None, ["q0", "q1"]),
        (None, "his", ["q1"]),
    ):
        text = await web.new_token(session_id=only, tenant=user)
        found = (await web.get("/inbox", text)).json["questions"]
        assert [each["id"] for each in found] == theirs
        found = (await web.get("/inbox/history", text)).json["decisions"]
        assert {each["id"] for each in found} == {f"d{id_[1]}" for id_ in theirs}
        is_hers = "q0" in theirs
        answer = await web.get("/inbox/history?session=hers", text)
        assert answer.status == (200 if is_hers else 404)
