"""The tree of errors: its drawing is true."""

from __future__ import annotations

import re

import pytest

from acp_wire.errors import INTERNAL_ERROR
from acphold import errors
from acphold.errors import AcpError

LINE = re.compile(r"^    ((?:[│ ]   )*)(?:[├└]── )(\w+Error) +(.*?)(?: +(-\d+))?$", re.MULTILINE)


def drawn() -> dict[str, tuple[str, str]]:
    """Each error of the drawing: its parent and its code, "" for that of the root."""
    found: dict[str, tuple[str, str]] = {}
    above = ["AcpError"]
    for indent, name, _, code in LINE.findall(errors.__doc__ or ""):
        depth = len(indent) // 4 + 1
        above[depth:] = [name]
        found[name] = (above[depth - 1], code)
    return found


def defined() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, AcpError) and kind is not AcpError:
            (parent,) = kind.__bases__
            found[name] = (parent.__name__, "" if kind.code == INTERNAL_ERROR else str(kind.code))
    return found


def test_the_tree_is_drawn_as_it_is() -> None:
    assert drawn() == defined()
    lost, deleted = (errors.LeaseLostError("s", deleted=it) for it in (False, True))
    assert (lost.code, deleted.code) == (errors.HELD_ELSEWHERE, INTERNAL_ERROR)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "bad"),
        (b'{"code":1,"message":"bad"}', "bad"),
        (b'{"code":1,"message":"bad","data":{"field":"cwd"}}', 'bad ({"field": "cwd"})'),
        (b'{"code":1,"message":"bad","data":"it is \\n missing"}', "bad (it is missing)"),
        (b'{"code":1,"message":"bad","data":null}', "bad"),
        (b'{"code":1,"message":"bad","data":"bad"}', "bad"),
        (b'{"code":1,"message":"bad","data":"%b"}' % (b"x" * 900), f"bad ({'x' * 500}\u2026)"),
        (b'{"data":', "bad"),
    ],
)
def test_the_text_of_a_peers_error_has_its_data(raw: bytes, told: str) -> None:
    error = errors.RemoteError(1, "bad", raw)
    assert (str(error), error.message) == (told, "bad")
