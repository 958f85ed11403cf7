"""Zstandard (RFC 8878): the standard library has it from Python 3.14 on, a backport before.

Imported late: what a plain `wrap` does before its first old session needs none of it.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["WINDOW", "zstd"]

WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
"""Bounds what a frame of a stranger may have us keep in memory: 128 MiB."""
