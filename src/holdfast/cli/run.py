"""`holdfast run module:agent`: serve an agent written in Python on stdio.

Like `wrap` it reads its options by hand: an editor waits for it.
"""

from __future__ import annotations

import logging
import sys
from getopt import GetoptError, gnu_getopt
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from holdfast.cli.exits import Exit
from holdfast.cli.options import Option, UsageError, read_level, read_seconds, read_size
from holdfast.errors import DeclarationError

if TYPE_CHECKING:
    from types import ModuleType

    from holdfast.agent import Agent
