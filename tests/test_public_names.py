"""What each package offers by name: widening it is a visible choice."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
