"""How a turn ends: the stop reasons an author gives, and what an exception means.

Source: spec v1, prompt turn, "Stop Reasons" and "Cancellation".
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, Literal, TypeAlias

from acphold.errors import AcpholdError, DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator

Ending: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal"]
"""What a prompt coroutine may return; None is `end_turn`. `cancelled` is the client's to cause."""

ENDINGS: tuple[Ending, ...] = ("end_turn", "max_tokens", "max_turn_requests", "refusal")


class StopTurn(Exception):
    """Raised by an author to end the turn; `reason` is what the client is answered."""

    reason: Ending = "end_turn"


class Refusal(StopTurn):
    """The agent refuses to go on; the client may take the prompt out of the conversation."""

    reason = "refusal"


class MaxTokens(StopTurn):
    """The model's limit of tokens is reached."""

    reason = "max_tokens"


class MaxTurnRequests(StopTurn):
    """The limit of model requests in one turn is reached."""

    reason = "max_turn_requests"


def ending(returned: object) -> Ending:
    """The stop reason that a coroutine returned; raises DeclarationError."""
    if returned is None:
        return "end_turn"
    for known in ENDINGS:
        if returned == known:
            return known
    raise DeclarationError(f"a turn ends with one of {', '.join(ENDINGS)}, not with {returned!r}")


def told_by(error: BaseException) -> StopTurn | AcpholdError | None:
    """What an exception says on purpose; None for one that only went wrong.

    A group, as a TaskGroup raises it, says what the first of its members says, if all speak.
    """
    leaves = [leaf for leaf in _leaves(error) if not isinstance(leaf, CancelledError)]
    told = [leaf for leaf in leaves if isinstance(leaf, StopTurn | AcpholdError)]
    return told[0] if told and len(told) == len(leaves) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
