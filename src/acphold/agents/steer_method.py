"""A person's words into a running turn: an extension that agents share.

An agent that has it says so in the `_meta` of its answer to `initialize`, as `{"steering":
{"supported": true}}`. The request `_session/steering` takes a session and a prompt. It is
answered with an `outcome`: `injected`; `promptRequired` if no turn runs, to a client that asks
for that with `idleBehavior`; or `failed`. docs/protocol.md has the agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

STEERING: Final = "_session/steering"


class _Steering(Struct, frozen=True):
    supported: bool = False


class _SteeringMeta(Struct, frozen=True):
    steering: _Steering = _Steering()


class _Outcome(Struct, frozen=True):
    outcome: str = ""


def has_steering(meta: Mapping[str, object] | None) -> bool:
    """Return True if an agent with this `_meta` in its answer to `initialize` has it."""
    try:
        return msgspec.convert(meta or {}, _SteeringMeta).steering.supported
    except msgspec.ValidationError:
        return False


def steering_params(session_id: str, prompt: bytes) -> bytes:
    """Return the params for content blocks; without a running turn the agent leaves them to us."""
    return msgspec.json.encode(
        {
            "sessionId": session_id,
            "prompt": msgspec.Raw(prompt),
            "_meta": {"steering": {"idleBehavior": "promptRequired"}},
        }
    )


def is_injected(answer: bytes) -> bool:
    """Return True if the agent has taken the words into its turn."""
    try:
        return msgspec.json.decode(answer, type=_Outcome).outcome == "injected"
    except msgspec.MsgspecError:
        return False
