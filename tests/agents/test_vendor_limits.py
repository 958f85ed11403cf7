"""The limit is recognised in what agents send, and in nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from acphold.errors import AgentExitedError, RemoteError
from acphold.known_agents import KNOWN_AGENTS
from acphold.live.agents.vendor_limits import MOST_WORDS, VENDOR_LIMITS, Limit, limit_of

NOW = datetime(2026, 7, 30, 13, 30, 20, tzinfo=UTC).timestamp()
BERLIN = ZoneInfo("Europe/Berlin")
HIT = "You've hit your session limit · resets 4pm (Europe/Berlin)"
AT_FOUR = datetime(2026, 7, 30, 16, 0, tzinfo=BERLIN).timestamp()

OF_ZED = "usage_limit_exceeded"
GEMINI = "You have exhausted your capacity on this model. Your quota will reset"


def error(code: int, message: str, data: object = None) -> RemoteError:
    raw = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return RemoteError(code, message, json.dumps(raw).encode())


def claude(words: str) -> RemoteError:
    return error(-32603, f"Internal error: {words}", {"errorKind": "rate_limit"})


def codex(words: str, info: object = "usageLimitExceeded") -> RemoteError:
    return error(-32603, "Internal error", {"message": words, "codexErrorInfo": info})


WINDOW = "You have exceeded the 5-hour usage quota. It will reset at 2026-07-30 22:01:00 +0800 CST."


def opencode(words: str, name: str = "APIError") -> RemoteError:
    return error(-32603, f"Internal error: {words}", {"service": "session", "errorName": name})


def to_jetbrains(category: str, words: str, *actions: str) -> bytes:
    failure = {
        "id": "1",
        "revision": 1,
        "category": category,
        "severity": "error",
        "title": words,
        "actions": actions,
    }
    meta = {"jetbrains": {"air": {"version": 1, "sessionFailure": failure}}}
    return json.dumps({"stopReason": "end_turn", "_meta": meta}).encode()


@pytest.mark.parametrize(
    ("agent", "answer", "words", "moment"),
    [
        ("claude", claude(HIT), HIT, AT_FOUR),
        ("claude", to_jetbrains("limit", HIT), HIT, AT_FOUR),
        ("codex", codex("Try again at 4:00 PM."), "Try again at 4:00 PM.", AT_FOUR),
        ("codex", to_jetbrains("limit", "Usage limit."), "Usage limit.", None),
        (
            "codex",
            error(
                -32603,
                "Internal error",
                {"message": "Usage limit. Try again at 4:00 PM.", "codex_error_info": OF_ZED},
            ),
            "Usage limit. Try again at 4:00 PM.",
            AT_FOUR,
        ),
        ("opencode", opencode(WINDOW), WINDOW, AT_FOUR + 60),
        (
            "gemini",
            error(429, "You exceeded your quota.\nSuggested retry after 9000s."),
            "You exceeded your quota. Suggested retry after 9000s.",
            NOW + 9000,
        ),
        ("gemini", error(429, f"{GEMINI} after 2h30m0s."), f"{GEMINI} after 2h30m0s.", NOW + 9000),
        (
            "gemini",
            error(429, "You have exhausted your daily quota on this model."),
            "You have exhausted your daily quota on this model.",
            None,
        ),
    ],
)
def test_a_limit_is_recognised_with_its_words_and_its_moment(
    agent: str, answer: RemoteError | bytes, words: str, moment: float | None
) -> None:
    assert limit_of([agent], answer, now=NOW, zone=BERLIN) == Limit(agent, moment, words)


def test_an_agent_is_known_by_each_key_of_its_sessions() -> None:
    for agent in VENDOR_LIMITS:
        for key in KNOWN_AGENTS[agent].keys:
            limit = limit_of([key], to_jetbrains("limit", HIT), now=NOW)
            assert limit == Limit(agent, AT_FOUR, HIT)


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        ("claude", claude("API Error: Request rejected (429) · resets 3pm")),
        ("claude", error(-32603, "Internal error")),
        ("claude", to_jetbrains("limit", "Claude is temporarily rate limited.", "retry")),
        ("claude", to_jetbrains("limit", "This session reached its budget.", "new_session")),
        ("claude", to_jetbrains("service", HIT)),
        ("codex", codex(HIT, "serverOverloaded")),
        ("codex", codex(HIT, {"responseTooManyFailedAttempts": {"httpStatusCode": 429}})),
        ("codex", error(-32603, "usageLimitExceeded", "usageLimitExceeded")),
        ("gemini", error(429, "Rate limit exceeded. Try again later.")),
        ("gemini", error(500, f"{GEMINI} after 2h30m0s.")),
        ("gemini", error(429, f"{GEMINI} after 12s.")),
        ("gemini", error(429, "You have exhausted your capacity on this model.")),
        ("gemini", error(429, "Too many requests.\nSuggested retry after 60s.")),
        ("gemini", error(429, "It said: suggested retry after 9000s.")),
        ("opencode", error(-32603, f"Internal error: {WINDOW}")),
        ("opencode", opencode("You exceeded your current quota, please check your plan.")),
        ("opencode", opencode("Rate limit reached. Please try again in 6.034s.")),
        ("opencode", opencode(WINDOW, "MessageAbortedError")),
        ("an-agent-of-nobody", claude(HIT)),
        ("claude", AgentExitedError(HIT, "exit status 1", HIT)),
    ],
)
def test_other_ends_of_a_turn_are_no_limit(
    agent: str, answer: RemoteError | AgentExitedError | bytes
) -> None:
    assert limit_of([agent], answer, now=NOW) is None


def test_an_answer_that_quotes_a_limit_is_none() -> None:
    said = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": f'Internal error: {HIT} "sessionFailure"'},
    }
    for agent in VENDOR_LIMITS:
        for answer in (b'{"stopReason":"end_turn"}', b'{"stopReason":"refusal"}'):
            assert limit_of([agent], answer, [json.dumps(said).encode()], now=NOW) is None
        quoted = error(-32603, f"Internal error: the model said: {HIT}", {"message": HIT})
        assert limit_of([agent], quoted, now=NOW) is None


def window(status: str, resets_at: object) -> bytes:
    told = {"status": status, "resetsAt": resets_at, "rateLimitType": "five_hour"}
    return json.dumps(
        {
            "sessionUpdate": "usage_update",
            "used": 1,
            "size": 2,
            "_meta": {"_claude/rateLimit": told},
        }
    ).encode()


def test_the_second_that_claude_tells_beside_its_usage_comes_before_the_hour_in_its_words() -> None:
    updates = [
        window("rejected", NOW + 60),
        window("rejected", AT_FOUR + 7),
        window("allowed_warning", NOW + 99),
        window("rejected", "soon"),
        b'{"_claude/rateLimit": ',
    ]
    limit = limit_of(["claude"], claude(HIT), updates, now=NOW)
    assert limit == Limit("claude", AT_FOUR + 7, HIT)


@pytest.mark.parametrize("resets_at", [NOW - 1, NOW + 40 * 86400, -1, 1e300])
def test_an_absurd_second_makes_the_hour_in_the_words_doubtful_too(resets_at: float) -> None:
    limit = limit_of(["claude"], claude(HIT), [window("rejected", resets_at)], now=NOW)
    assert limit == Limit("claude", None, HIT)


def test_without_a_second_the_hour_counts() -> None:
    limit = limit_of(["claude"], claude(HIT), [window("rejected", None)], now=NOW)
    assert limit == Limit("claude", AT_FOUR, HIT)


def test_updates_are_not_read_for_a_turn_that_ended_well() -> None:
    def unread() -> object:
        raise AssertionError("read")
        yield b""

    assert limit_of(["claude"], b'{"stopReason":"end_turn"}', unread(), now=NOW) is None  # type: ignore[arg-type]


def test_the_words_are_one_line_of_a_bounded_length() -> None:
    limit = limit_of(["claude"], claude("You've hit your\n limit " + "x" * 9000), now=NOW)
    assert limit is not None
    assert limit.words.startswith("You've hit your limit xxx")
    assert len(limit.words) == MOST_WORDS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["_meta", "jetbrains", "air", "sessionFailure", "message", "x"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(sorted(VENDOR_LIMITS)), JSON, st.binary(max_size=20))
def test_an_answer_of_any_shape_never_raises(agent: str, value: object, junk: bytes) -> None:
    raw = json.dumps(value).encode()
    for answer in (raw, junk, RemoteError(-32603, "x", raw), error(429, HIT, value)):
        limit_of([agent], answer, [raw, junk, b"_claude/rateLimit" + raw], now=NOW)
