"""Bounds of the client: how long it waits, how much it keeps, and how often it checks."""

from __future__ import annotations

from typing import Final

# An agent that does not answer.

SILENCE_SECONDS: Final = 120.0
"""Seconds without any message from the agent after which a waiting request is given up.

A session with many MCP servers or a long replay may take long, but is not silent. A turn may be
silent while a model thinks or a command runs: that is limited only if a limit is given.
"""

SIGN_IN_SECONDS: Final = 1800.0
"""The same for a sign-in: a person may be in the browser, or looking for a second factor."""

CANCEL_GRACE_SECONDS: Final = 10.0
"""Seconds an agent has to end a cancelled turn; after that the turn ends without its answer."""

LIST_WALKS: Final = 8
"""Most times that a list is read for one answer, however many sessions move in it."""

# Updates in memory.

INBOX_BYTES: Final = 1024 * 1024
"""Bytes of updates that one reader may leave unread before the agent has to wait."""

UNCLAIMED_BYTES: Final = 256 * 1024
"""Most bytes kept for the first reader of a session's updates, from its opening on."""

EARLY_BYTES: Final = 1024 * 1024
"""Most bytes of updates kept for a session that is being made and has no known id yet."""

SUBAGENTS: Final = 4096
"""Most sub-agents known at once, of all sessions."""

# Files in a prompt.

EMBEDDED_BYTES: Final = 256 * 1024
"""Largest text file that is sent with its contents, in bytes, if the agent accepts that; a model's
context has room for about four of them."""

IMAGE_BYTES: Final = 5 * 1024 * 1024
"""Largest image file that is sent as an image, in bytes; most models refuse larger ones."""

# Sessions of this machine.

SERVING_END_SECONDS: Final = 10.0
"""Seconds our own server has to end its agent and the journal, which have limits of their own."""

OTHERS_LOOK_SECONDS: Final = 1.0
"""Seconds between checks whether another client still has the session open: it answers for its own
turn."""

# A server far away.

LAST_ANSWERS_SECONDS: Final = 5.0
"""Seconds that it has to answer the last requests of a client that has gone."""

SILENCE_CHECKS: Final = 8
"""Checks for a sign of life within the time that an agent may be silent in a turn."""
