"""What a server gets to see of us, and may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

Answerer: TypeAlias = Callable[[str, dict[str, object]], Awaitable[dict[str, object]]]
"""Answers a request of a server: gets the server's name and the params, returns the result, both as
MCP has them. What it raises becomes an error that the server gets."""


class Facing(Struct, frozen=True):
    """The roots are absolute paths. What has no answerer is not offered, and refused when asked;
    so are roots when there are none.

    `name` and `version` say who we are.
    """

    roots: tuple[str, ...]
    name: str = "acphold"
    version: str = ""
    sampling: Answerer | None = None
    elicitation: Answerer | None = None
