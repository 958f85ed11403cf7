"""What an agent remembers, as its load shows it, and what the next prompt brings it then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.clearings import command_in, is_plan_that_clears
from acphold.conversation.history.compared_turns import ComparedTurn, ComparedTurns
from acphold.conversation.history.entries import HANDED_OVER
from acphold.conversation.history.handovers import (
    BEGINNING,
    HEADING,
    WITH,
    WITHOUT,
    WORDS_NOW,
    HandOver,
    read_handed_over,
    text_digest,
    with_mark,
)
from acphold.errors import AgentExitedError, RemoteError
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds
from acphold.live.hub.agent_memory import KeptTurns, Owed, compare
from acphold.live.hub.restoration import IN_DOUBT
from tests.hub.shared import Onlooker, Shared, said, shared
from tests.talker import Refused

H, S, F, R, G = "has", "summary", "forgotten", "revived", "gone"
LONG_SUMMARY = (
    "This session is being continued from a previous conversation that ran out of context"
)


def user(text: str) -> bytes:
    return said(text, "user_message_chunk")


def replay(words: Sequence[str]) -> ComparedTurns:
    reading = ComparedTurns()
    for text in words:
        reading.add(user(text))
        reading.add(said(f"to {text}"))
    return reading


def kept(words: Sequence[str], **how: Any) -> KeptTurns:
    """Turns with prompts 10, 20, 30 …"""
    turns = [ComparedTurn(words=text, first=10 * n) for n, text in enumerate(words, 1)]
    return KeptTurns(turns, **how)


@pytest.mark.parametrize(
    ("ours", "how", "theirs", "states", "owed"),
    [
        ("abc", {}, "abc", [H, H, H], None),
        ("abc", {}, "", [F, F, F], Owed(0)),
        ("abc", {}, "ab", [H, H, F], Owed(29, is_part=True)),
        ("abc", {}, "c", [S, S, H], None),  # a load that tells the end
        ("abc", {}, [LONG_SUMMARY, "c"], [S, S, H], None),
        ("abc", {}, [LONG_SUMMARY], [S, S, S], None),
        ("abc", {}, "x", [F, F, F], Owed(0)),  # another conversation
        ("abc", {}, "abx", [H, H, H], None),  # both went on: in doubt
        (["a", "/compact"], {}, "a", [H, H], None),  # agents keep no commands
        ("abc", {"cleared": 15}, "a", [R, F, F], Owed(15)),
        ("abc", {"cleared": 15}, "bc", [G, H, H], None),
        ("abc", {"cleared": 15}, "abc", [R, H, H], None),
        (["a", "/clear", "c"], {"cleared": 25}, ["/clear", "c"], [G, G, H], None),  # goose
        ("abc", {"asked": 15}, "abc", [H, H, H], None),  # refused
        ("abc", {"asked": 15}, "bc", [G, H, H], None),  # it did
        ("abc", {"asked": 15}, "", [G, F, F], Owed(15)),
        ("abc", {"left": [(10, 10)]}, "bc", [G, H, H], None),
        ("abc", {"left": [(20, 20)]}, "abc", [H, R, H], None),
        (["a", "b", "/undo"], {}, "a", [H, G, H], None),
        (["a", "b", "c", "/undo", "d"], {}, "ab", [H, H, G, F, F], Owed(39, is_part=True)),
        ("abc", {"left": [(30, 30)]}, "a", [H, F, G], Owed(19, is_part=True)),
        ("abc", {"declined": 20}, "", [H, H, F], Owed(29, is_part=True)),
    ],
)
def test_what_is_owed_follows_from_what_the_agent_remembers(
    ours: Sequence[str],
    how: dict[str, Any],
    theirs: Sequence[str],
    states: list[str],
    owed: Owed | None,
) -> None:
    mine = kept(ours, **how)
    memory = compare(mine, replay(theirs))
    assert [*memory.states] == states
    assert memory.owed(mine) == owed
    assert memory.is_in_doubt == (theirs == "abx")


def test_a_text_that_was_handed_over_tells_what_it_says_if_the_journal_knows_it() -> None:
    told, forged = HandOver("s", 20, "a" * 16), HandOver("s", 20, "b" * 16)
    mine = kept("abc", told={told.digest: 20})
    for mark, states in ((told, [H, H, F]), (forged, [F, F, F])):
        text = with_mark(f"{HEADING}\n\n{BEGINNING}. User: a\n", mark)
        for prompt in (f"{text}\n{WORDS_NOW}\n\nx", f"{text} {WORDS_NOW} x"):
            for theirs in (replay([prompt]), replay([" ".join(prompt.split())])):
                assert [*compare(mine, theirs).states] == states
                assert theirs.turns()[0].words == "x"


@pytest.mark.parametrize(
    ("prompt", "command"),
    [
        ("/clear", "/clear"),
        (" /new \n", "/new"),
        ("/clear it", ""),
        ("/compact", ""),
        ("clear", ""),
    ],
)
def test_only_a_command_alone_is_a_clearing(prompt: str, command: str) -> None:
    assert command_in(json.dumps([{"type": "text", "text": prompt}]).encode()) == command


@pytest.mark.parametrize(
    ("name", "clears"),
    [("Yes, and clear context (12% used)", True), ("Yes, auto-accept edits", False)],
)
def test_a_plan_accepted_with_clear_context_is_a_clearing(name: str, clears: bool) -> None:
    params = json.dumps({"options": [{"optionId": "o", "name": name}]}).encode()
    answer = b'{"outcome":{"outcome":"selected","optionId":"o"}}'
    assert is_plan_that_clears(params, answer) is clears
    assert not is_plan_that_clears(params, b'{"outcome":{"outcome":"cancelled"}}')


# -- through a hub ---------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "QUIET_SECONDS", 0.05)


def prompted(house: Shared) -> list[list[str]]:
    """The texts of each prompt that the agent got."""
    return [
        [block["text"] for block in params["prompt"]]
        for method, params in house.agent.asked
        if method == "session/prompt"
    ]


async def begin(journal: Path, *turns: tuple[str, str], key: str = "puppet") -> None:
    async with shared(journal) as house:
        house.agent.key = key
        client = await house.client()
        assert await client.new() == "s0"
        for text, answer in turns:
            await house.turn(client, "s0", text, answer)


async def open_again(house: Shared, key: str = "puppet", *can: str) -> Onlooker:
    house.agent.key = key
    house.agent.can(*(can or ("load", "resume")))
    return await house.loaded("s0", session={"notices": {}})


def lines(client: Onlooker) -> list[str]:
    return [u["title"] for u in client.updates() if u["sessionUpdate"] == "notice"]


TWO = (("one", "ONE"), ("two", "TWO"))


async def test_what_a_load_shows_to_be_forgotten_comes_with_the_next_prompt_once(
    journal: Path,
) -> None:
    await begin(journal, *TWO)
    async with shared(journal) as house:
        house.agent.replays["session/load"] = [user("one"), said("ONE")]
        client = await open_again(house, "puppet", "load")
        assert lines(client) == ["The agent has lost the end of this conversation"]
        await house.turn(client, "s0", "three", "THREE")
        await house.turn(client, "s0", "four", "FOUR")
        [context, own], second = prompted(house)
        assert "User: two" in context
        assert "User: one" not in context
        assert (own, second) == ("three", ["four"])


async def test_what_a_text_told_is_known_at_the_next_opening(journal: Path) -> None:
    await begin(journal, *TWO)
    async with shared(journal) as house:
        client = await open_again(house, "puppet", "load")
        await house.turn(client, "s0", "three", "THREE")
        text = "".join(prompted(house)[0])
    async with shared(journal) as house:
        house.agent.replays["session/load"] = [user(text), said("THREE")]
        client = await open_again(house, "puppet", "load")
        assert lines(client) == []
        await house.turn(client, "s0", "more", "MORE")
        assert prompted(house) == [["more"]]


@pytest.mark.parametrize("choice", [WITH, WITHOUT, ""])
async def test_in_doubt_nothing_is_handed_over_unless_the_person_says_so(
    choice: str, journal: Path
) -> None:
    await begin(journal, *TWO)
    async with shared(journal) as house:
        house.agent.replays["session/load"] = [user("one"), said("ONE"), user("x"), said("X")]
        client = await open_again(house, "puppet", "load")
        assert lines(client) == [IN_DOUBT]
        await house.turn(client, "s0", f"{choice} three", "THREE")
        [sent] = prompted(house)
        assert sent[-1].strip() == "three"
        assert (len(sent) == 2) == (choice == WITH)


async def test_a_person_may_go_on_without_what_is_owed_for_good(journal: Path) -> None:
    await begin(journal, *TWO)
    async with shared(journal) as house:
        client = await open_again(house, "puppet", "load")
        await house.turn(client, "s0", f"{WITHOUT} three", "THREE")
        assert prompted(house) == [["three"]]
    async with shared(journal) as house:
        house.agent.replays["session/load"] = [user("three"), said("THREE")]
        client = await open_again(house, "puppet", "load")
        assert lines(client) == []


async def test_a_replay_behind_the_answer_is_waited_for(journal: Path) -> None:
    await begin(journal, ("one", "ONE"))
    async with shared(journal) as house:
        house.agent.replays_behind["session/load"] = [user("one"), said("ONE")]
        client = await open_again(house, "puppet", "load")
        assert lines(client) == []
        assert client.text() == "ONE"


@pytest.mark.parametrize(
    ("key", "command", "is_shown"),
    [("qwen-code", "/reset", True), ("goose", "/new", False), ("codex-acp", "/clear", False)],
)
async def test_a_clearing_stands_in_the_replay_once_the_agent_has_shown_it(
    key: str, command: str, is_shown: bool, journal: Path
) -> None:
    await begin(journal, ("one", "ONE"), (command, "done"), ("two", "TWO"), key=key)
    async with shared(journal) as house:
        house.agent.replays["session/load"] = [user("one"), said("ONE")]
        if not is_shown:
            house.agent.replays["session/load"] += [user("two"), said("TWO")]
        client = await open_again(house, key)
        assert client.text().count("has forgotten everything above") == is_shown
        asked = [method for method, _ in house.agent.asked]
        assert "session/resume" not in asked  # it shows nothing
        assert ("session/new" in asked) is is_shown
        await house.turn(client, "s0", "three", "THREE", own=house.agent.made or "s0")
        [sent] = prompted(house)
        if is_shown:
            assert "User: two" in sent[0]
            assert "User: one" not in sent[0]
        else:
            assert sent == ["three"]


async def test_an_agent_that_kept_what_is_alive_under_another_id_is_opened_there(
    journal: Path,
) -> None:
    await begin(journal, ("one", "ONE"), ("/clear", "done"), ("two", "TWO"), key="qwen-code")
    async with shared(journal) as house:
        info = {"sessionId": "kept", "cwd": "/", "updatedAt": "2100-01-01T00:00:00Z"}
        house.agent.lists = [info]
        house.agent.replays_of = {
            "s0": [user("one"), said("ONE")],
            "kept": [user("two"), said("TWO")],
        }
        client = await open_again(house, "qwen-code", "load", "resume", "list")
        await house.turn(client, "s0", "three", "THREE", own="kept")
        assert prompted(house) == [["three"]]
        assert lines(client) == []
        assert dict(await house.journal.links.of("s0"))  # both load it
        rows = await client.sessions()
        assert [row["sessionId"] for row in rows] == ["s0"]


async def test_a_context_that_is_nearly_empty_shows_a_clearing(journal: Path) -> None:
    def usage(used: int) -> bytes:
        return json.dumps({"sessionUpdate": "usage_update", "used": used, "size": 200}).encode()

    async with shared(journal) as house:
        client = await house.client()
        await client.new()
        turn = await house.begun(client, "s0", "one")
        await house.agent.listener.hear(Updates("s0", "update", [usage(100)]))
        await house.ended("s0", turn)
        turn = await house.begun(client, "s0", "/reset")
        await house.agent.listener.hear(Updates("s0", "update", [usage(2)]))
        await house.ended("s0", turn)
        assert "puppet has forgotten everything above" in client.text()


async def test_a_replay_that_lacks_what_was_to_be_forgotten_shows_a_clearing_once(
    journal: Path,
) -> None:
    await begin(journal, ("one", "ONE"), ("/new", "done"), ("two", "TWO"))
    replay = [user("two"), said("TWO")]
    for _ in range(2):
        async with shared(journal) as house:
            house.agent.replays["session/load"] = replay
            client = await open_again(house)
            assert client.text().count("puppet has forgotten everything above") == 1
            await house.turn(client, "s0", "three", "THREE")
            assert prompted(house) == [["three"]]
            replay += [user("three"), said("THREE")]


async def test_a_late_replay_shows_that_the_agent_refused_to_forget(journal: Path) -> None:
    await begin(journal, ("one", "ONE"), ("/new", "Unknown command"))
    async with shared(journal) as house:
        house.agent.replays_behind["session/load"] = [user("one"), said("ONE")]
        client = await open_again(house, "puppet", "load")
        await house.turn(client, "s0", "three", "THREE")
        assert "has forgotten" not in client.text()
        assert client.text().count("ONE") == 1


async def test_a_late_replay_of_what_was_cleared_is_not_gone_on_with(journal: Path) -> None:
    await begin(journal, ("one", "ONE"), ("/clear", "done"), key="qwen-code")
    async with shared(journal) as house:
        house.agent.replays_behind["session/load"] = [user("one"), said("ONE")]
        client = await open_again(house, "qwen-code", "load")
        await house.turn(client, "s0", "three", "THREE", own=house.agent.made or "s0")
        assert "session/new" in [method for method, _ in house.agent.asked]
        assert prompted(house) == [["three"]]


async def test_two_crashes_in_a_row_cost_an_agent_that_only_resumes_no_prompt(
    journal: Path,
) -> None:
    await begin(journal, ("one", "ONE"))
    for text in ("two", "three"):
        async with shared(journal) as house:
            client = await open_again(house, "puppet", "resume")
            turn = await house.begun(client, "s0", text)
            await house.agent.end("s0", AgentExitedError("it ended", "signal SIGKILL", ""))
            with pytest.raises(Refused):
                await turn
    async with shared(journal) as house:
        client = await open_again(house, "puppet", "resume")
        await house.turn(client, "s0", "four", "FOUR")
        [[told, *_]] = prompted(house)
        assert "User: two\n\nUser: three\n" in told
        assert "User: one" not in told


async def test_the_entry_of_a_hand_over_is_committed_before_the_agent_works(journal: Path) -> None:
    await begin(journal, *TWO)
    async with shared(journal) as house:
        client = await open_again(house, "puppet", "load")
        turn = await house.begun(client, "s0", "three")
        [entry] = (await house.journal.read_back("s0", None, 1, kinds=[HANDED_OVER])).entries
        mark, text, _ = read_handed_over(prompted(house)[0][0])
        assert mark is not None
        assert json.loads(entry.raw)["digest"] == mark.digest == text_digest(text)
        assert mark.session_id == "s0"
        await house.ended("s0", turn)


async def test_a_replay_that_does_not_end_in_time_leaves_doubt(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(journal, *TWO)
    monkeypatch.setattr(bounds, "REPLAY_SECONDS", 0.1)
    monkeypatch.setattr(bounds, "QUIET_SECONDS", 60.0)
    async with shared(journal) as house:
        client = await open_again(house, "puppet", "load")
        assert lines(client) == [IN_DOUBT]
        await house.turn(client, "s0", "three", "THREE")
        assert prompted(house) == [["three"]]


async def test_updates_between_turns_count_again_once_a_replay_is_over(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(journal, ("one", "ONE"))
    async with shared(journal) as house:
        house.agent.replays["session/load"] = [user("one"), said("ONE")]
        monkeypatch.setattr(bounds, "QUIET_SECONDS", 60.0)
        client = await open_again(house, "puppet", "load")
        await house.agent.say("s0", "of the replay")
        monkeypatch.setattr(bounds, "QUIET_SECONDS", 0.0)
        await house.agent.say("s0", "of its own")
        await client.until_text("of its own")
        assert "of the replay" not in client.text()


async def test_without_a_load_a_clearing_leaves_doubt(journal: Path) -> None:
    await begin(journal, ("one", "ONE"), ("/clear", "done"), ("two", "TWO"), key="qwen-code")
    async with shared(journal) as house:
        client = await open_again(house, "qwen-code", "resume")
        assert lines(client) == [IN_DOUBT]
        await house.turn(client, "s0", f"{WITH} three", "THREE")
        [[context, _]] = prompted(house)
        assert "User: two" in context
        assert "User: one" not in context


@pytest.mark.parametrize(("code", "words"), [(-32603, "thread not found: {}"), (-32603, "oops")])
async def test_an_agent_that_does_not_know_what_it_opened_gets_a_new_session_once(
    code: int, words: str, journal: Path
) -> None:
    await begin(journal, *TWO)
    async with shared(journal) as house:
        house.agent.first_id = 7
        client = await open_again(house, "puppet", "resume")
        turn = await house.begun(client, "s0", "three")

        def refusal(agents_id: str) -> RemoteError:
            raw = {"code": code, "message": "Internal", "data": words.format(agents_id)}
            return RemoteError(code, "Internal", json.dumps(raw).encode())

        await house.agent.end("s0", refusal("s0"))
        if "{}" in words:
            await house.agent.prompted("s7")
            await house.agent.end("s7", refusal("s7"))  # only once
        with pytest.raises(Refused):
            await turn
        first, *again = prompted(house)
        assert first == ["three"]
        assert len(again) == len(lines(client)) == ("{}" in words)
        if again:
            [[context, own]] = again
            assert "User: one" in context
            assert own == "three"
            await house.turn(client, "s0", "four", "FOUR", own="s7")
            assert len(prompted(house)[-1]) == 2  # still owed
