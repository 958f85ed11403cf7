"""One connected client: protocol in, hub calls out."""

from acphold.server.connection import Connection

__all__ = ["Connection"]
