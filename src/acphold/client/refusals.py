"""An agent's error as the exception for it: a sign-in that is wanted, an agent that has ended."""

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


class _End(msgspec.Struct):
    """What acphold in front of an agent says when that has ended."""

    status: str
    stderr: str


class _EndError(msgspec.Struct):
    data: _End


def meant(
    refusal: RemoteError, method: str, agent: str, sign_ins: Sequence[AuthMethod]
) -> AcpholdError:
    """The error to raise for one that `agent` answered `method` with; often itself.

    AuthRequiredError for its code (spec v1, authentication), unless that was about `authenticate`;
    AgentExitedError where acphold stands in front of an agent that has ended.
    """
    error: AcpholdError = refusal
    if refusal.code == AUTH_REQUIRED and method != AUTHENTICATE.name:  # that has just failed
        offered = ", ".join(repr(sign_in.id) for sign_in in sign_ins)
        how = f"; it offers: {offered}" if offered else ""
        error = AuthRequiredError(f"{agent} wants you to sign in: {refusal}{how}")
    elif (end := _end_told(refusal)) is not None:
        error = AgentExitedError(refusal.message, end.status, end.stderr)
    if error is not refusal:
        error.__cause__ = refusal
    return error


def _end_told(error: RemoteError) -> _End | None:
    try:
        return msgspec.json.decode(error.raw, type=_EndError).data
    except msgspec.MsgspecError:
        return None
