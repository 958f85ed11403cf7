"""Questions of an agent to the person: permission for a tool, forms to fill in, pages to open.

Sources: spec v1, tool calls, "Requesting Permission"; elicitation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from acp_wire.schema import (
    COMPLETE_ELICITATION,
    CREATE_ELICITATION,
    REQUEST_PERMISSION,
    CancelledPermissionOutcome,
    ElicitationContentValue,
    ElicitationSchema,
    PermissionOption,
    RequestPermissionRequest,
    ToolCallPatch,
    decode,
    encode,
)
from acp_wire.schema.shapes import UnknownVariant
from acphold import errors
from acphold.library.outbox import fresh_id

if TYPE_CHECKING:
    from acphold.library.store import Store
    from acphold.library.workspace import ClientSide


OPTIONS = (
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject", kind="reject_always"),
)
"""A person chooses from these, unless the author gives others."""

ALLOWED = "permission/"
"""Prefix of the store's keys for answers that hold for always."""

Outcome: TypeAlias = Literal["accepted", "declined", "dismissed"]
"""What the person did."""

OUTCOMES: dict[str, Outcome] = {"accept": "accepted", "decline": "declined"}


class Decision(Struct, frozen=True):
    """The person's decision: `if await turn.ask_permission(…):`.

    `option_id` is the option they chose, now or earlier for always; None if the turn was cancelled
    before, or if the client's answer names no offered option, and nothing is allowed.
    """

    allowed: bool
    option_id: str | None = None

    def __bool__(self) -> bool:
        return self.allowed


def recall_permission(store: Store, key: str) -> Decision | None:
    """Return the decision for always; None if there is none."""
    found = store.get(ALLOWED + key)
    return None if found is None else Decision(**found)


async def ask_permission(
    client: ClientSide,
    store: Store,
    call: ToolCallPatch,
    key: str,
    options: Sequence[PermissionOption] | None,
) -> Decision | None:
    """Ask about a tool call; returns the decision, kept under `key` if it is for always.

    Returns None when the client says that the turn was cancelled before a decision.
    """
    offered = OPTIONS if options is None else tuple(options)
    request = RequestPermissionRequest(
        session_id=client.session_id, tool_call=call, options=offered
    )
    outcome = (await client.ask(REQUEST_PERMISSION, request)).outcome
    if isinstance(outcome, CancelledPermissionOutcome):
        return None
    chosen = next((each for each in offered if each.option_id == outcome.option_id), None)
    if chosen is None:
        return Decision(False)
    decision = Decision(chosen.kind.startswith("allow"), chosen.option_id)
    if chosen.kind.endswith("always"):
        store[ALLOWED + key] = asdict(decision)
        await store.save()
    return decision


class FormAnswer(Mapping[str, "ElicitationContentValue"]):
    """The values that the person filled in, by field; true if they did, as in `if answer:`.

    `outcome` is "accepted", "declined" or "dismissed"; without "accepted" it is empty.
    """

    def __init__(self, outcome: Outcome, values: Mapping[str, ElicitationContentValue]) -> None:
        self.outcome: Outcome = outcome
        self._values = dict(values)

    def __repr__(self) -> str:
        return f"<FormAnswer {self.outcome}: {self._values!r}>"

    def __bool__(self) -> bool:
        return self.outcome == "accepted"

    def __getitem__(self, field: str) -> ElicitationContentValue:
        return self._values[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Visit:
    """A page that the person was asked to open.

    `outcome` is "accepted", "declined" or "dismissed", as for a form; `id` is the request's.
    """

    def __init__(self, id: str, outcome: Outcome, client: ClientSide) -> None:
        self.id = id
        self.outcome: Outcome = outcome
        self._client = client

    def __repr__(self) -> str:
        return f"<Visit {self.outcome}>"

    @property
    def agreed(self) -> bool:
        """True if the person opens it."""
        return self.outcome == "accepted"

    async def complete(self) -> None:
        """Tell the client that the purpose of the page has been fulfilled."""
        completed = encode(COMPLETE_ELICITATION.params(elicitation_id=self.id))
        await self._client.notify(COMPLETE_ELICITATION.name, completed)


async def ask_form(
    client: ClientSide, message: str, fields: Mapping[str, Any], tool_call_id: str | None
) -> FormAnswer:
    """See `Turn.ask_form`."""
    offered = client.capabilities.elicitation
    if offered is None or offered.form is None:
        raise errors.CapabilityError(
            "this client shows no forms (clientCapabilities.elicitation.form)"
        )
    schema: dict[str, Any] = dict(fields) if "properties" in fields else {"properties": fields}
    schema.setdefault("type", "object")
    try:
        form = decode(ElicitationSchema, encode(schema)).value
    except errors.InvalidParamsError as exc:
        raise errors.DeclarationError(f"this schema is not valid for a form: {exc}") from None
    for name, field in form.properties.items():
        if isinstance(field, UnknownVariant):
            raise errors.DeclarationError(
                f"the field {name!r} has the type {field.kind!r}, which forms do not support"
            )
    request = CREATE_ELICITATION.params(
        session_id=client.session_id,
        mode="form",
        message=message,
        requested_schema=form,
        tool_call_id=tool_call_id,
    )
    answer = await client.ask(CREATE_ELICITATION, request)
    outcome = OUTCOMES.get(answer.action, "dismissed")
    if outcome != "accepted":
        return FormAnswer(outcome, {})
    values = answer.content or {}  # checked again here, as the protocol asks
    if bad := form.misfits(values):
        which = ", ".join(sorted(bad))
        raise errors.RemoteError(
            errors.InvalidParamsError.code, f"the client's answer does not fit the form: {which}"
        )
    return FormAnswer(outcome, values)


async def ask_page(client: ClientSide, message: str, url: str) -> Visit:
    """See `Turn.ask_page`."""
    offered = client.capabilities.elicitation
    if offered is None or offered.url is None:
        raise errors.CapabilityError(
            "this client opens no pages (clientCapabilities.elicitation.url)"
        )
    if not url.startswith(("https://", "http://")):
        raise errors.DeclarationError(
            f"{url!r}: the address of a page begins with https:// or http://"
        )
    visit_id = fresh_id("visit")
    request = CREATE_ELICITATION.params(
        session_id=client.session_id, mode="url", message=message, elicitation_id=visit_id, url=url
    )
    answer = await client.ask(CREATE_ELICITATION, request)
    return Visit(visit_id, OUTCOMES.get(answer.action, "dismissed"), client)
