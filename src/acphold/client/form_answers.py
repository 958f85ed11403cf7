"""Questions of an agent to a person beside permission: forms to fill in, pages to open.

Source: spec v1, elicitation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, Struct

from acphold.errors import DeclarationError
from acphold.schema import (
    CreateElicitationRequest,
    CreateElicitationResponse,
    ElicitationSchema,
)
from acphold.schema.elicitation import fits

if TYPE_CHECKING:
    from acphold.schema import ElicitationContentValue


class FormQuestion(Struct, frozen=True):
    """An agent asks for values; `session_id` is None while there is no session yet.

    Show which agent asks, and let the person change what they entered.
    """

    message: str
    form: ElicitationSchema
    session_id: str | None = None
    tool_call_id: str | None = None


class PageQuestion(Struct, frozen=True):
    """An agent asks a person to open `url`, for a sign-in or a payment, say.

    Show all of the URL and its host, and open it only if the person agrees.
    """

    message: str
    url: str
    id: str
    session_id: str | None = None


Filled: TypeAlias = "Mapping[str, ElicitationContentValue] | Literal['dismissed'] | None"
"""The values by field; None if the person declines, "dismissed" if they go away."""

AskForm: TypeAlias = Callable[[FormQuestion], "Filled | Awaitable[Filled]"]
"""Fills in a form."""

AskPage: TypeAlias = Callable[[PageQuestion], "bool | Awaitable[bool | None] | None"]
"""True if the person agrees to open it, False if they decline, None if they go away."""

DISMISSED = CreateElicitationResponse(action="cancel")
DECLINED = CreateElicitationResponse(action="decline")


def form_question(asked: CreateElicitationRequest) -> FormQuestion:
    """Return a request of mode `form` as a question for a program."""
    assert isinstance(asked.requested_schema, ElicitationSchema)  # the type has checked it
    return FormQuestion(
        asked.message,
        asked.requested_schema,
        None if asked.session_id is UNSET else asked.session_id,
        asked.tool_call_id,
    )


def page_question(asked: CreateElicitationRequest) -> PageQuestion:
    """Return a request of mode `url` as a question for a program."""
    assert isinstance(asked.url, str)
    assert isinstance(asked.elicitation_id, str)
    session_id = None if asked.session_id is UNSET else asked.session_id
    return PageQuestion(asked.message, asked.url, asked.elicitation_id, session_id)


def form_answer(filled: Filled, form: ElicitationSchema) -> CreateElicitationResponse:
    """Return the answer to the agent; DeclarationError if the values do not fit the form.

    Fields that were left out get the form's defaults.
    """
    if filled is None:
        return DECLINED
    if isinstance(filled, str):
        return DISMISSED
    defaults = {name: getattr(field, "default", None) for name, field in form.properties.items()}
    values = {name: value for name, value in defaults.items() if value is not None} | {**filled}
    missing = [name for name in form.required or () if name not in values]
    wrong = [
        name
        for name, value in values.items()
        if name not in form.properties or not fits(value, form.properties[name])
    ]
    if missing or wrong:
        which = ", ".join(sorted({*missing, *wrong}))
        raise DeclarationError(f"the form was filled in badly: {which}")
    return CreateElicitationResponse(action="accept", content=values)


def page_answer(agrees: bool | None) -> CreateElicitationResponse:
    """Return the answer to the agent about a page."""
    if agrees is None:
        return DISMISSED
    return CreateElicitationResponse(action="accept") if agrees else DECLINED
