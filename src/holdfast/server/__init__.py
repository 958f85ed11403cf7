"""One connected client: protocol in, hub calls out."""

from holdfast.server.connection import Connection

__all__ = ["Connection"]
