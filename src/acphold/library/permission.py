"""Asking the person whether a tool may run, and remembering what is to hold for always.

Source: spec v1, tool calls, "Requesting Permission".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acphold.errors import DeclarationError
from acphold.library.store import ALLOWED
from acphold.schema import (
    REQUEST_PERMISSION,
    CancelledPermissionOutcome,
    PermissionOption,
    RequestPermissionRequest,
)

if TYPE_CHECKING:
    from acphold.library.client_side import ClientSide
    from acphold.library.outbox import Outbox
    from acphold.library.store import Store
    from acphold.library.toolcall import RunningTool

OPTIONS = (
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject", kind="reject_always"),
)
"""What a person can choose, unless the author says otherwise."""


class Permissions:
    """The permission requests of one session."""

    def __init__(self, client: ClientSide, outbox: Outbox, store: Store) -> None:
        self._client = client
        self._outbox = outbox
        self._store = store

    def remembered(self, key: str) -> bool | None:
        """What the person said for always; None if nothing."""
        found = self._store.get(ALLOWED + key)
        return None if found is None else bool(found)

    async def ask(
        self, tool: RunningTool, key: str, options: Sequence[PermissionOption] | None
    ) -> bool | None:
        """The person's answer about `tool`, kept under `key` if it is for always.

        None when the turn was cancelled before there was one.
        """
        offered = _checked(OPTIONS if options is None else tuple(options))
        await tool.announce()  # a person is asked about something that can be seen
        await self._outbox.flush()
        request = RequestPermissionRequest(
            session_id=self._client.session_id, tool_call=tool.patch(), options=offered
        )
        outcome = (await self._client.ask(REQUEST_PERMISSION, request)).outcome
        if isinstance(outcome, CancelledPermissionOutcome):
            return None
        kinds = {option.option_id: option.kind for option in offered}
        kind = kinds.get(outcome.option_id, "reject_once")  # what was not offered permits nothing
        allowed = kind.startswith("allow")
        if kind.endswith("always"):
            self._store[ALLOWED + key] = allowed
            await self._store.save()
        return allowed


def _checked(options: tuple[PermissionOption, ...]) -> tuple[PermissionOption, ...]:
    if not options or len({option.option_id for option in options}) < len(options):
        raise DeclarationError("a permission request offers options, each with an id of its own")
    return options
