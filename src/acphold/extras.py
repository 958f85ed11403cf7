"""The optional packages: the extra of acphold that installs each, and the error without it.

The base is for agents and sessions on this machine. Optional packages are imported late.
"""

from __future__ import annotations

from typing import Final

from acp_wire.extras import has_packages
from acphold.errors import MissingExtraError

EXTRAS: Final = {
    "serve": (
        "cryptography",
        "http_ece",
        "httptools",
        "httpx2",
        "jwt",
        "segno",
        "uvicorn",
        "websockets",
    ),
    "mcp": ("anyio", "httpx2", "mcp", "mcp_types", "pydantic"),
    "postgres": ("psycopg",),
    "otel": ("opentelemetry",),
}
"""The packages of each extra, as they are imported."""


def is_installed(extra: str) -> bool:
    """Return True if all packages of an extra were installed when this was first asked."""
    return has_packages(*EXTRAS[extra])


def require(extra: str, needy: str) -> None:
    """Raise MissingExtraError unless all packages of an extra are installed.

    `needy` begins the message: the command, option or feature that needs them.
    """
    if not is_installed(extra):
        raise MissingExtraError(needy, extra, "acphold")


def require_loop() -> None:
    """Raise RuntimeError where no event loop of asyncio runs, as under trio."""
    import asyncio  # late: most starts know already

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "acphold needs the event loop of asyncio; under trio, use `acphold.sync` in a thread, "
            "as by trio.to_thread.run_sync"
        ) from None
