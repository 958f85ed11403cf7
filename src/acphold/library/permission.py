"""Asks the person if a tool may run, and remembers answers that hold for always.

Source: spec v1, tool calls, "Requesting Permission".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from acphold.errors import DeclarationError
from acphold.schema import (
    REQUEST_PERMISSION,
    CancelledPermissionOutcome,
    PermissionOption,
    RequestPermissionRequest,
)

if TYPE_CHECKING:
    from acphold.library.client_side import ClientSide
    from acphold.library.store import Store
    from acphold.schema import ToolCallPatch

OPTIONS = (
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject", kind="reject_always"),
)
"""A person chooses from these, unless the author gives others."""

ALLOWED = "permission/"
"""Prefix of the store's keys for answers that hold for always."""


class Decision(Struct, frozen=True):
    """The person's decision; true if they allow it, as in `if await turn.ask_permission(…):`.

    `option_id` is the option they chose, now or earlier for always. It is None if the turn was
    cancelled before they chose. It is also None if the client's answer names no offered option;
    then nothing is allowed.
    """

    allowed: bool
    option_id: str | None = None

    def __bool__(self) -> bool:
        return self.allowed


class Permissions:
    """The permission requests of one session, and the answers it remembers."""

    def __init__(self, client: ClientSide, store: Store) -> None:
        self._client = client
        self._store = store

    def remembered(self, key: str) -> Decision | None:
        """Return the decision for always; None if there is none."""
        found = self._store.get(ALLOWED + key)
        return None if found is None else Decision(**found)

    async def ask(
        self, call: ToolCallPatch, key: str, options: Sequence[PermissionOption] | None
    ) -> Decision | None:
        """Ask about a tool call; returns the decision, kept under `key` if it is for always.

        Returns None when the client says that the turn was cancelled before a decision.
        """
        offered = OPTIONS if options is None else tuple(options)
        request = RequestPermissionRequest(
            session_id=self._client.session_id, tool_call=call, options=offered
        )
        outcome = (await self._client.ask(REQUEST_PERMISSION, request)).outcome
        if isinstance(outcome, CancelledPermissionOutcome):
            return None
        chosen = next((each for each in offered if each.option_id == outcome.option_id), None)
        if chosen is None:
            return Decision(False)
        decision = Decision(chosen.kind.startswith("allow"), chosen.option_id)
        if chosen.kind.endswith("always"):
            self._store[ALLOWED + key] = {
                "allowed": decision.allowed,
                "option_id": decision.option_id,
            }
            await self._store.save()
        return decision


def check_options(options: Sequence[PermissionOption] | None) -> None:
    """Raise DeclarationError unless a person can choose from the options."""
    if options is not None:
        ids = {option.option_id for option in options}
        if not ids or len(ids) < len(options):
            raise DeclarationError(
                "a permission request offers options, each with an id of its own"
            )


def forget_permissions(store: Store) -> None:
    """Forget the decisions for always, so that the person is asked again."""
    for key in store:
        if key.startswith(ALLOWED):
            del store[key]
