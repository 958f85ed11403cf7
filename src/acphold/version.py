"""Which release this is; apart from the package, so that any room may say it."""

__version__ = "0.1.0"
