"""The person behind the client in memory: what they answer to what an agent asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from acphold.client.duties import Answers
from acphold.errors import DeclarationError, MissingFileError
from acphold.schema import (
    CREATE_ELICITATION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
    CreateElicitationRequest,
    RequestPermissionRequest,
    decode,
)

if TYPE_CHECKING:
    from acphold.client import PermissionQuestion
    from acphold.client.duties import Handler
    from acphold.client.policy import PermissionAnswer

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

    def answers(self) -> Answers:
        """What a client has to know of them."""
        # Not by `on_form` and `files`, which would not let a test answer what no form takes, and
        # would look at the disk alone.
        handlers: dict[str, Handler] = {}
        if self._form is not None:
            handlers[CREATE_ELICITATION.name] = self._fill_in
        if self.buffers is not None:
            handlers[READ_TEXT_FILE.name] = self._read
            handlers[WRITE_TEXT_FILE.name] = self._write
        return Answers(on_permission=self._decide, handlers={**handlers, **self._answers})

    def hear(self, method: str, params: Any) -> None:
        """Something is asked; the answer may take a while."""
        if method == REQUEST_PERMISSION.name:
            asked = decode(RequestPermissionRequest, msgspec.json.encode(params)).value
            self.permissions.append(asked)

    async def _decide(self, question: PermissionQuestion) -> PermissionAnswer:
        asked = question.request
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
            return None
        for option in asked.options:
            if wanted in (option.kind, option.option_id):
                return option
        offered = ", ".join(option.kind for option in asked.options)
        raise DeclarationError(f"the agent offers no {wanted!r}, but {offered}")

    def _fill_in(self, params: dict[str, Any]) -> object:
        assert self._form is not None
        filled = self._form(decode(CreateElicitationRequest, msgspec.json.encode(params)).value)
        if filled is None:
            return {"action": "decline"}
        if isinstance(filled, str):
            return {"action": "cancel"}
        return {"action": "accept", "content": dict(filled)}

    def _read(self, params: dict[str, Any]) -> object:
        path = params["path"]
        text = (self.buffers or {}).get(path)
        if text is None:
            try:
                text = Path(path).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise MissingFileError(f"no file {path}") from None
        first = max(params.get("line") or 1, 1) - 1
        lines = text.splitlines(keepends=True)[first:]
        return {"content": "".join(lines[: params.get("limit")])}

    def _write(self, params: dict[str, Any]) -> object:
        assert self.buffers is not None
        self.buffers[params["path"]] = params["content"]
        return {}
