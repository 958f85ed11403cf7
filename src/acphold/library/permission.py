"""Asking the person whether a tool may run, and remembering what is to hold for always.

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
"""What a person can choose, unless the author says otherwise."""

ALLOWED = "permission/"
"""What the keys in the store begin with of answers that are to hold for always."""


class Decision(Struct, frozen=True):
    """What the person decided; true if they allow it, as in `if await turn.ask_permission(…):`.

    `option_id` is the option they chose, now or earlier for always. It is None when the turn was
    cancelled before they chose, or when they chose what was not offered, which allows nothing.
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
        """What the person decided for always; None if nothing."""
        found = self._store.get(ALLOWED + key)
        return None if found is None else Decision(**found)

    async def ask(
        self, call: ToolCallPatch, key: str, options: Sequence[PermissionOption] | None
    ) -> Decision | None:
        """The decision about a tool call, kept under `key` if it is for always.

        None when the client says that the turn was cancelled before there was one.
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
    """Raise DeclarationError for options that no person can choose from."""
    if options is not None:
        ids = {option.option_id for option in options}
        if not ids or len(ids) < len(options):
            raise DeclarationError(
                "a permission request offers options, each with an id of its own"
            )


def forget_permissions(store: Store) -> None:
    """Ask again what was decided for always."""
    for key in store:
        if key.startswith(ALLOWED):
            del store[key]
