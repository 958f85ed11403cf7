"""Bounds for MCP servers: how long they may take, and how much of their messages is read and
kept."""

from __future__ import annotations

from typing import Final

# Connections to a server.

CONNECT_SECONDS: Final = 10.0
"""Longest time to reach the server, in seconds."""

RETRY_SECONDS: Final = 30.0
"""Seconds after a failure until `tools` and `prompts` retry a server, without waiting for it."""

REDIRECTS: Final = 5
"""Most redirects that one request follows."""

SESSION_CLOSE_SECONDS: Final = 3.0
"""Longest time for closing the session; a program is ended after that."""

SERVER_CLOSE_SECONDS: Final = 10.0
"""Longest time that closing waits for a server, in seconds."""

EXIT_SECONDS: Final = 0.5
"""Seconds for a program to exit after the end of its stdout."""

# Messages that cannot be read.

HEAD_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 4 * 1024
"""Bytes at the beginning and the end of one in which its id is looked for."""

# Messages to a server.

WRITE_SECONDS: Final = 30.0
"""Seconds for the network to take another byte of a message."""

TAKE_SECONDS: Final = 30.0
"""Seconds for a server to accept one message.

This is enough for a slow server and a long message. A server that never reads is given up before
unsent messages fill the memory.
"""

NOTICE_SECONDS: Final = 10.0
"""Seconds for a server to accept a message that it does not answer.

The SDK sends nothing else meanwhile, so a server that keeps one open would block every call for
ever.
"""

UNSENT_MESSAGES: Final = 1000
"""Most messages waiting to be sent to one server."""

# A server's answers, questions and reports.

CALL_SECONDS: Final = 600.0
"""Seconds of silence after which a call is given up.

A tool may work for long, and a good one reports progress. A person watching the turn would
sooner cancel a call that never answers.
"""

PENDING_QUESTIONS: Final = 20
"""Pending questions of one server to a person; more are refused."""

PENDING_REPORTS: Final = 100
"""Pending progress reports of a call; of more, only the newest are kept."""

CHANGES_SECONDS: Final = 0.1
"""Seconds within which changes are reported once: some servers send five at a time."""

LIST_PAGES: Final = 200
"""Most pages of a list that are read from a server."""

EVENT_BYTES: Final = 8 * 1024 * 1024
"""Largest event that the SDK reads, in bytes; its reader takes a second for each MB of brackets."""

ERROR_BODY_BYTES: Final = 64 * 1024
"""Bytes read of an error's body."""

# Messages that the bridge and our own server read.

MESSAGE_PARTS: Final = 500_000
"""Objects, arrays and items of a message: a small machine reads them in a tenth of a second."""

REQUEST_BYTES: Final = 1 << 20
"""Most bytes of a message to a server of ours: its tools take short arguments."""

PENDING_REQUESTS: Final = 1000
"""Most pending requests."""

FINISH_SECONDS: Final = 1.0
"""Seconds to answer the pending requests of a client that has ended."""
