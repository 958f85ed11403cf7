"""The limits of a promise: how long it may take, and how much of it a message shows."""

from __future__ import annotations

from typing import Final

PROMISE_SECONDS: Final = 60.0
"""Longest time for any promise, in seconds; one that hangs is broken."""

VALUE_LETTERS: Final = 400
"""Characters of a value in the message of a broken promise, at most."""
