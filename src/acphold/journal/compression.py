"""Zstandard (RFC 8878), from the standard library on Python 3.14 and later, else from a backport.

Imported late: a plain `wrap` does not need it before its first old session.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["WINDOW", "zstd"]

WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
"""Limits the memory that a frame from a stranger can make us use: 128 MiB."""
