"""Standing answers over HTTP: their owners, and the permissions of each scope."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.conversation.history.decisions import AskedQuestion, answer_entry, question_entry
from acphold.journal.access import Scope, Share
from acphold.safety.standing.decision import pausing_rule, read_rule
from tests.journal.conversations import Pieces, turn
from tests.web.in_process import Site

CLAUDE = "@agentclientprotocol/claude-agent-acp"
ALL: tuple[Scope, ...] = ("watch", "prompt", "answer", "manage", "rules")
YES = b'{"outcome":{"outcome":"selected","optionId":"yes"}}'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def asked(command: str) -> Pieces:
    """A turn in which a person has allowed this command."""
    call = {"toolCallId": "t", "title": command, "name": "Bash", "rawInput": {"command": command}}
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    params = json.dumps({"sessionId": "x", "toolCall": call, "options": options}).encode()
    question = question_entry(AskedQuestion("q1", "session/request_permission", params))
    answer = answer_entry("q1", "answered", result=YES, client=b'{"name":"zed"}')
    pieces = [*turn("Go")]
    pieces[1:1] = [("question", [question]), ("answer", [answer])]
    return pieces


async def test_a_rule_is_made_of_an_offer_and_of_nothing_else(tmp_path: Path, web: Site) -> None:
    (folder := tmp_path / "project").mkdir()
    await web.remember("s1", asked("pytest -q"), agent=CLAUDE, cwd=str(folder))
    token = await web.new_token(*ALL)
    offers = (await web.get("/rules/offers?session=s1&question=q1", token)).json["offers"]
    assert [it["text"] for it in offers] == ["run pytest -q", "run pytest …"]
    assert offers[0]["meaning"] == "exactly this command"
    assert (offers[0]["agent"], offers[0]["folder"]) == ("claude", str(folder))
    said = {"sessionId": "s1", "questionId": "q1"}
    made = await web.post("/rules", token, **said, text="run pytest -q", allAgents=True)
    [rule] = made.json["rules"]
    assert (rule["number"], rule["text"], rule["agent"]) == (1, "run pytest -q", "")
    assert rule["madeWith"].startswith("test (")
    for text in ("run pytest -q", "run rm -rf /", "run make …"):
        refused = await web.post("/rules", token, **said, text=text)
        assert (refused.status, len(await web.journal.access.rules(""))) == (409, 1)
    unknown = await web.get("/rules/offers?session=s2&question=q1", token)
    assert unknown.status == 404
    deeds = [it["number"] for it in (await web.get("/rules", token)).json["rules"]]
    assert deeds == [1]


async def test_without_the_scope_rules_one_can_revoke_and_switch_off_but_not_on(web: Site) -> None:
    for text in ("run make check", "run pytest …"):
        await web.journal.access.add_rule(replace(read_rule(text), folder="/w"))
    older = await web.new_token("watch", "prompt", "answer", "manage")
    said = {"sessionId": "s1", "questionId": "q1", "text": "run ls"}
    assert (await web.post("/rules", older, **said)).status == 403
    assert (await web.get("/rules/offers?session=s1&question=q1", older)).status == 403
    for _ in range(2):
        [revoked] = (await web.get("/rules/1", older, method="DELETE")).json["rules"]
        assert (revoked["number"], revoked["text"]) == (1, "run make check")
    assert (await web.get("/rules/7", older, method="DELETE")).status == 404
    [left] = (await web.get("/rules", older)).json["rules"]
    assert left["number"] == 2
    assert (await web.post("/rules/off", older)).json["rules"][0]["isOff"]
    assert (await web.post("/rules/on", older)).status == 403
    [listed] = (await web.get("/rules", older)).json["rules"]
    assert listed["waits"]  # it was made nowhere that is known
    [on] = (await web.post("/rules/on", await web.new_token(*ALL))).json["rules"]
    assert not on["isOff"]
    assert not on["waits"]
    watcher = await web.new_token("watch")
    assert (await web.get("/rules", watcher)).status == 200
    assert (await web.get("/rules/2", watcher, method="DELETE")).status == 403


async def test_what_asks_is_only_revoked_with_the_scope_rules(web: Site) -> None:
    for rule in (
        replace(read_rule("ask run git push …"), folder="/w"),
        pausing_rule("s1", "", 1),
    ):
        await web.journal.access.add_rule(rule)
    older = await web.new_token("watch", "prompt", "answer", "manage")
    for path in ("/rules/1", "/rules/2"):
        refused = await web.get(path, older, method="DELETE")
        assert (refused.status, b"scope rules" in refused.body) == (403, True)
    assert [it["asks"] for it in (await web.get("/rules", older)).json["rules"]] == [True] * 2
    token = await web.new_token(*ALL)
    for path in ("/rules/1", "/rules/2"):
        assert (await web.get(path, token, method="DELETE")).status == 200


async def test_everybody_has_their_own_rules_and_guests_have_none_of_them(
    tmp_path: Path, web: Site
) -> None:
    (folder := tmp_path / "project").mkdir()
    await web.remember("s1", asked("pytest -q"), agent=CLAUDE, cwd=str(folder))
    await web.journal.access.add_rule(replace(read_rule("run make"), folder=str(folder)))
    await web.journal.access.keep_share(Share("s1", "bob"))
    bob = await web.new_token(*ALL, tenant="bob")
    assert (await web.get("/rules", bob)).json == {"rules": []}
    assert (await web.get("/rules/1", bob, method="DELETE")).status == 404
    offers = await web.get("/rules/offers?session=s1&question=q1", bob)
    assert offers.json == {"offers": []}
    said = {"sessionId": "s1", "questionId": "q1", "text": "run pytest -q"}
    assert (await web.post("/rules", bob, **said)).status == 409
    eve = await web.new_token(*ALL, tenant="eve")
    for session in ("s1", "nobody-has-this"):
        path = f"/rules/offers?session={session}&question=q1"
        assert (await web.get(path, eve)).status == 404
        assert (await web.post("/rules", eve, **said | {"sessionId": session})).status == 404
    one = await web.new_token("watch", "answer", "rules", session_id="s1")
    assert (await web.get("/rules", one)).status == 403
    assert (await web.post("/rules", one, **said)).status == 403
    assert [it.ended_at for it in await web.journal.access.rules("")] == [0]


async def test_a_rule_is_new_until_another_device_than_that_which_made_it_has_shown_it(
    tmp_path: Path, web: Site
) -> None:
    (folder := tmp_path / "project").mkdir()
    await web.remember("s1", asked("pytest -q"), agent=CLAUDE, cwd=str(folder))
    maker, other = await web.new_token(*ALL), await web.new_token(*ALL)
    said = {"sessionId": "s1", "questionId": "q1", "text": "run pytest -q"}
    await web.post("/rules", maker, **said)

    async def is_new() -> bool:
        [rule] = (await web.get("/rules", other)).json["rules"]
        return bool(rule["isNew"])

    await web.post("/rules/seen", maker, numbers=[1])
    assert await is_new()
    await web.post("/rules/seen", other, numbers=[2])
    assert await is_new()
    await web.post("/rules/seen", other, numbers=[1])
    assert not await is_new()


async def test_a_wrong_request_says_what_is_wrong_and_changes_nothing(web: Site) -> None:
    token = await web.new_token(*ALL)
    assert (await web.get("/rules", "")).status == 401
    assert (await web.get("/rules", token, method="POST", body=b"{}")).status == 415
    assert (await web.post("/rules", token, sessionId=1)).status == 400
    assert (await web.post("/rules/seen", token, numbers=["x"])).status == 400
    assert (await web.get("/rules/offers?what=1", token)).status == 400
    for path in ("/rules/", "/rules/x", "/rules/-1", "/rules/off"):
        assert (await web.get(path, token, method="DELETE")).status == 404
    assert (await web.get("/rules/x", token)).status == 404
    assert await web.journal.access.rules(None) == []
