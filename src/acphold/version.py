"""This release's number, in a module of its own so that any room may import it."""

__version__ = "0.1.0"
