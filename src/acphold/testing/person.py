"""The person behind the client in memory: what they answer to what an agent asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from acphold.errors import DeclarationError, MethodNotFoundError, MissingFileError
from acphold.schema import (
    CREATE_ELICITATION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
    CancelledPermissionOutcome,
    CreateElicitationRequest,
    CreateElicitationResponse,
    ReadTextFileRequest,
    ReadTextFileResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
    WriteTextFileRequest,
    WriteTextFileResponse,
    decode,
    encode,
)

if TYPE_CHECKING:
    from acphold.schema import PermissionOption

Permission: TypeAlias = "Callable[[RequestPermissionRequest], str | None] | Sequence[str] | str"
"""The kind or id of the option to choose ("allow_once", …): always the same; one after the other;
or as a function says. A function that returns None leaves the question open."""

Answer: TypeAlias = "Callable[[dict[str, Any]], Awaitable[Any]]"
"""Answers one method of the client: JSON in, JSON out."""

Form: TypeAlias = (
    "Callable[[CreateElicitationRequest], Mapping[str, Any] | Literal['dismissed'] | None]"
)
"""Fills a form in. None is a person who declines, "dismissed" one who goes away."""


class Person:
    """Answers by what they were given; `permissions` has the permission requests so far."""

    def __init__(
        self,
        permission: Permission,
        form: Form | None,
        buffers: dict[str, str] | None,
        answers: Mapping[str, Answer],
    ) -> None:
        self.permissions: list[RequestPermissionRequest] = []
        self.buffers = buffers
        self._permission = permission
        self._script = (
            iter(()) if callable(permission) or isinstance(permission, str) else iter(permission)
        )
        self._form = form
        self._answers = answers

    def hear(self, method: str, params: bytes) -> None:
        """Something is asked; the answer may take a while."""
        if method == REQUEST_PERMISSION.name:
            self.permissions.append(decode(RequestPermissionRequest, params).value)

    async def answer(self, method: str, params: bytes) -> bytes:
        """The result; MethodNotFoundError for what this client does not serve."""
        if (answer := self._answers.get(method)) is not None:
            return encode(await answer(msgspec.json.decode(params or b"{}")))
        match method:
            case REQUEST_PERMISSION.name:
                return await self._decide(decode(RequestPermissionRequest, params).value)
            case CREATE_ELICITATION.name if self._form is not None:
                filled = self._form(decode(CreateElicitationRequest, params).value)
                if filled is None:
                    return encode(CreateElicitationResponse(action="decline"))
                if isinstance(filled, str):
                    return encode(CreateElicitationResponse(action="cancel"))
                return encode(CreateElicitationResponse(action="accept", content=dict(filled)))
            case READ_TEXT_FILE.name if self.buffers is not None:
                return encode(_read(decode(ReadTextFileRequest, params).value, self.buffers))
            case WRITE_TEXT_FILE.name if self.buffers is not None:
                write = decode(WriteTextFileRequest, params).value
                self.buffers[write.path] = write.content
                return encode(WriteTextFileResponse())
        raise MethodNotFoundError(method)

    async def _decide(self, asked: RequestPermissionRequest) -> bytes:
        wanted: str | None
        if isinstance(self._permission, str):
            wanted = self._permission
        elif callable(self._permission):
            wanted = self._permission(asked)
        else:
            wanted = next(self._script, None)
        if wanted is None:
            await asyncio.get_running_loop().create_future()  # a person who never answers
        if wanted == "cancelled":
            return encode(RequestPermissionResponse(outcome=CancelledPermissionOutcome()))
        chosen = SelectedPermissionOutcome(option_id=_option(asked.options, wanted or ""))
        return encode(RequestPermissionResponse(outcome=chosen))


def _option(options: Sequence[PermissionOption], wanted: str) -> str:
    for option in options:
        if wanted in (option.kind, option.option_id):
            return option.option_id
    offered = ", ".join(option.kind for option in options)
    raise DeclarationError(f"the agent offers no {wanted!r}, but {offered}")


def _read(request: ReadTextFileRequest, buffers: Mapping[str, str]) -> ReadTextFileResponse:
    text = buffers.get(request.path)
    if text is None:
        try:
            text = Path(request.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise MissingFileError(f"no file {request.path}") from None
    first = max(request.line or 1, 1) - 1
    lines = text.splitlines(keepends=True)[first:]
    return ReadTextFileResponse(content="".join(lines[: request.limit]))
