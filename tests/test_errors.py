"""The tree of errors: its drawing is true."""

from __future__ import annotations

import re

from acphold import errors
from acphold.errors import INTERNAL_ERROR, AcpholdError

LINE = re.compile(r"^    ((?:[│ ]   )*)(?:[├└]── )(\w+Error) +(.*?)(?: +(-\d+))?$", re.MULTILINE)


def drawn() -> dict[str, tuple[str, str]]:
    """Each error of the drawing: its parent and its code, "" for that of the root."""
    found: dict[str, tuple[str, str]] = {}
    above = ["AcpholdError"]
    for indent, name, _, code in LINE.findall(errors.__doc__ or ""):
        depth = len(indent) // 4 + 1
        above[depth:] = [name]
        found[name] = (above[depth - 1], code)
    return found


def defined() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, AcpholdError) and kind is not AcpholdError:
            (parent,) = kind.__bases__
            found[name] = (parent.__name__, "" if kind.code == INTERNAL_ERROR else str(kind.code))
    return found


def test_the_tree_is_drawn_as_it_is() -> None:
    assert drawn() == defined()
