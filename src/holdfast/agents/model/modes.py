"""The modes of a coding agent, and its config options."""

from __future__ import annotations

ASK = "ask"
CODE = "code"
PLAN = "plan"
"""Ask before each change, change freely, change nothing."""

MODEL = "model"
"""The option that says which model answers."""

THINKING = "thinking"
DEFAULT = "default"
OFF = "off"
LEVELS = (DEFAULT, OFF, "low", "medium", "high")
"""The option that says how much it thinks, as far as it lets that be chosen."""
