"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP)."""

__version__ = "0.1.0"

__all__ = ["__version__"]
