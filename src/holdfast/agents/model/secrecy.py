"""Keys that must not be shown, taken out of text that will be."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

SHORTEST = 8
"""A value with fewer characters is no key, and too likely to be a word."""

_NAMES = re.compile(r"(?<![A-Z])KEY(?![A-Z])|TOKEN|SECRET|PASSW", re.IGNORECASE)
_LOOKS = re.compile(r"\b(sk|pk|rk|xai|gsk|AIza)[-_][\w*.-]{6,}|(?<=://)[^/@\s]+(?=@)")
"""Keys as services spell them, half masked ones too, and user and password in a URL."""


def without_keys(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` with `[NAME]` instead of the value of each variable that is named like a key's."""
    environment = os.environ if environment is None else environment
    for name, value in environment.items():
        if len(value) >= SHORTEST and _NAMES.search(name) and value in text:
            text = text.replace(value, f"[{name}]")
    return text


def without_lookalikes(text: str) -> str:
    """`text` also without what only looks like a key: for what a service says, not for files."""
    return _LOOKS.sub("[…]", without_keys(text))
