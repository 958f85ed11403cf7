"""Capabilities in `initialize`: what each side declares, and what the other side is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_wire.schema import InitializeRequest, decode
from acphold.journal.access import SCOPES
from acphold.live.agents.capabilities import (
    ClientOffer,
    answer_for_client,
    forks,
    in_version_1,
    introduction_for_agent,
    introduction_for_owner,
    offer_of,
)

OURS = {
    "acphold/begun": True,
    "acphold/watches": True,
    "acphold/line": True,
    "acphold/positions": True,
}


def introduction(can: Any) -> bytes:
    return json.dumps({"protocolVersion": 1, "clientCapabilities": can}).encode()


def offered(can: Any) -> ClientOffer:
    params = introduction(can)
    return offer_of(decode(InitializeRequest, params).value, params)


def asked(offer: ClientOffer) -> set[str]:
    said = {
        "acphold/begun": offer.begun,
        "acphold/watches": offer.watches,
        "acphold/line": offer.is_line,
        "acphold/positions": offer.positions,
    }
    return {key for key, is_said in said.items() if is_said}


def shown(can: Any, *, unstable: bool = False, **wanted: Any) -> Any:
    answer = json.dumps({"protocolVersion": 1, "agentCapabilities": can}).encode()
    told = answer_for_client(answer, ClientOffer(**wanted), unstable=unstable)
    return json.loads(told)["agentCapabilities"]


# -- from a client -----------------------------------------------------------------------------


def test_a_client_that_says_nothing_offers_nothing() -> None:
    offer = offered({})
    assert not offer.booleans
    assert asked(offer) == set()
    assert {"notice", "plan_update", "compaction_update", "subagent_update"} <= offer.withheld


def test_what_a_client_asks_of_acphold_stands_in_its_meta() -> None:
    offer = offered({"_meta": OURS})
    assert asked(offer) == set(OURS)


@pytest.mark.parametrize("word", ["yes", 1, None, {}, False])
def test_only_true_asks_for_something(word: Any) -> None:
    offer = offered({"_meta": dict.fromkeys(OURS, word)})
    assert asked(offer) == set()


def test_a_client_is_sent_what_it_offers_to_show() -> None:
    offer = offered({"session": {"notices": {}, "configOptions": {"boolean": {}}}, "plan": {}})
    assert offer.booleans
    assert not {"notice", "plan_update", "plan_removed"} & offer.withheld


def test_the_agent_is_not_asked_what_the_client_asks_of_acphold() -> None:
    can = {"terminal": True, "_meta": {"vendor": [1], **OURS}}
    told = json.loads(introduction_for_agent(introduction(can)))
    assert told["clientCapabilities"] == {"terminal": True, "_meta": {"vendor": [1]}}


def test_a_meta_with_nothing_else_does_not_reach_the_agent() -> None:
    told = json.loads(introduction_for_agent(introduction({"terminal": True, "_meta": OURS})))
    assert told["clientCapabilities"] == {"terminal": True}


def test_the_agent_is_told_the_rest_byte_for_byte() -> None:
    can = b'{"fs":{"readTextFile":true},"_meta":{"a" : 1.50}}'
    params = b'{"protocolVersion":1,"clientCapabilities":%b,"_meta":{"t":"\\u00e9"}}' % can
    assert introduction_for_agent(params) == params


@pytest.mark.parametrize("can", [None, [], "all", 1])
def test_capabilities_that_are_no_object_are_the_agents_to_judge(can: Any) -> None:
    assert json.loads(introduction_for_agent(introduction(can)))["clientCapabilities"] == can


@pytest.mark.parametrize("can", [None, [], "all", {}, {"_meta": None}, {"_meta": []}])
def test_the_owner_of_a_session_is_asked_for_positions_whatever_the_client_says(can: Any) -> None:
    told = json.loads(introduction_for_owner(introduction(can), "acme", SCOPES))[
        "clientCapabilities"
    ]["_meta"]
    assert told == {
        "acphold/positions": True,
        "acphold/line": True,
        "acphold/tenant": "acme",
        "acphold/scopes": sorted(SCOPES),
    }


def test_the_owner_of_a_session_is_told_what_the_client_asks_of_acphold() -> None:
    said = introduction({"_meta": {"acphold/watches": True, "v": 1}})
    told = json.loads(introduction_for_owner(said, None, ["watch"]))
    assert told["clientCapabilities"]["_meta"] == {
        "acphold/watches": True,
        "v": 1,
        "acphold/positions": True,
        "acphold/line": True,
        "acphold/tenant": None,
        "acphold/scopes": ["watch"],
    }


def test_the_owner_of_a_session_is_told_of_a_guest_and_nobody_makes_one_out_of_a_guest() -> None:
    for guest in (True, False):
        said = introduction({"_meta": {"acphold/guest": not guest}})
        told = json.loads(introduction_for_owner(said, None, SCOPES, guest=guest))[
            "clientCapabilities"
        ]["_meta"]
        assert told.get("acphold/guest", False) is guest


def test_names_of_version_two_are_those_of_version_one_for_the_agent() -> None:
    can: dict[str, Any] = {"elicitation": {"form": {}}, "auth": {"terminal": {}}, "gizmo": {}}
    params = {"protocolVersion": 2, "info": {"name": "Two"}, "capabilities": can}
    assert json.loads(introduction_for_agent(in_version_1(json.dumps(params).encode()))) == {
        "protocolVersion": 1,
        "clientInfo": {"name": "Two"},
        "clientCapabilities": {"elicitation": {"form": {}}, "auth": {"terminal": True}},
    }


# -- from an agent -----------------------------------------------------------------------------


@pytest.mark.parametrize("can", [None, [], {}, {"sessionCapabilities": None}])
def test_every_agent_keeps_sessions_and_reaches_every_mcp_server(can: Any) -> None:
    assert shown(can) == {
        "loadSession": True,
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
        "mcpCapabilities": {"http": True, "sse": True},
    }


def test_an_agent_does_not_speak_for_acphold() -> None:
    can = shown({"_meta": {"acphold/begun": True, "vendor": 1}})
    assert can["_meta"] == {"vendor": 1}


def test_who_asked_to_be_told_when_its_turns_begin_is_told_that_it_will_be() -> None:
    assert shown({"_meta": {"vendor": 1}}, begun=True)["_meta"] == {
        "vendor": 1,
        "acphold/begun": True,
    }


def test_what_is_unstable_is_offered_as_the_agent_does_or_by_acphold() -> None:
    theirs = {"title": {}, "archive": {"x": 1}, "status": {}, "fork": None, "_vendor": 1}
    names = {"list", "resume", "close", "delete", "_vendor", "title", "archive", "status"}
    assert set(shown({"sessionCapabilities": theirs})["sessionCapabilities"]) == names
    unstable = shown({"sessionCapabilities": theirs}, unstable=True)["sessionCapabilities"]
    assert set(unstable) == names | {"fork"}
    assert unstable["archive"] == {"x": 1}


@pytest.mark.parametrize(("fork", "has_it"), [({}, True), (None, False), (True, False)])
def test_an_agent_forks_if_it_says_so_with_an_object(fork: Any, *, has_it: bool) -> None:
    can = {"sessionCapabilities": {"fork": fork}}
    assert forks(json.dumps({"agentCapabilities": can}).encode()) is has_it
    assert ("fork" in shown(can)["sessionCapabilities"]) is has_it
