"""An agent's error as the right exception: a sign-in is needed, or the agent has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from acphold.errors import (
    AUTH_REQUIRED,
    AcpholdError,
    AgentExitedError,
    AuthRequiredError,
    RemoteError,
)
from acphold.schema import AUTHENTICATE

if TYPE_CHECKING:
    from acphold.schema.initialize import AuthMethod


class _AgentEnd(msgspec.Struct):
    """The data of acphold's error for an agent that has ended."""

    status: str
    stderr: str


class _EndError(msgspec.Struct):
    data: _AgentEnd


def meant(
    refusal: RemoteError, method: str, agent: str, sign_ins: Sequence[AuthMethod]
) -> AcpholdError:
    """Return the error to raise for `agent`'s error to `method`; often itself.

    AuthRequiredError for its code (spec v1, authentication), unless the method was `authenticate`;
    AgentExitedError if acphold stands in front of an agent that has ended.
    """
    error: AcpholdError = refusal
    if refusal.code == AUTH_REQUIRED and method != AUTHENTICATE.name:  # which has just failed
        offered = ", ".join(repr(sign_in.id) for sign_in in sign_ins)
        how = f"; it offers: {offered}" if offered else ""
        error = AuthRequiredError(f"{agent} wants you to sign in: {refusal}{how}")
    elif (end := _end_told(refusal)) is not None:
        error = AgentExitedError(refusal.message, end.status, end.stderr)
    if error is not refusal:
        error.__cause__ = refusal
    return error


def _end_told(error: RemoteError) -> _AgentEnd | None:
    try:
        return msgspec.json.decode(error.raw, type=_EndError).data
    except msgspec.MsgspecError:
        return None
