"""The same sessions from another machine: an ASGI application, and what serves it."""

from __future__ import annotations

from acphold.web.application import Application, application

__all__ = ["Application", "application"]
