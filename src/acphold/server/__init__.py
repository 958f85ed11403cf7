"""Connected clients: requests of the protocol come in, calls of the hub go out."""

from acphold.server.connection import Connection

__all__ = ["Connection"]
