"""docs/api.md: made from the docstrings, complete and current."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import acphold
import acphold.schema
import acphold.testing
from docs.api_reference import ALIASES, PAGE, names, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_everything_that_can_be_imported_is_on_the_page() -> None:
    offered = {*acphold.__all__, *(f"testing.{name}" for name in acphold.testing.__all__)}
    assert offered - {"__version__"} <= set(names())


def test_every_type_in_a_signature_is_on_the_page_or_the_protocols() -> None:
    """A word that begins with a capital in a signature is a type somebody may want to look up."""
    blocks = re.findall(r"^```python\n((?:async def|def|class) .*?)^```$", page(), re.M | re.S)
    mentioned = {word for block in blocks for word in re.findall(r"\b[A-Z]\w*[a-z]\w*\b", block)}
    known = {name.rpartition(".")[2] for name in names()} | ALIASES.keys()
    python = {"Any", "AsyncIterator", "Awaitable", "Callable", "Iterator", "Literal", "Mapping"}
    python |= {
        "Path",
        "Sequence",
        "Event",
        "Task",
        "PathLike",
        "StreamReader",
        "StreamWriter",
        "True",
        "False",
        "None",
    }
    schema = Path(acphold.schema.__file__).parent
    protocol = "".join(path.read_text(encoding="utf-8") for path in schema.glob("*.py"))
    elsewhere = {word for word in mentioned - known - python if word not in protocol}
    assert elsewhere == set()


@pytest.mark.parametrize("name", sorted(acphold.__all__))
def test_every_attribute_of_a_class_is_in_its_docstring(name: str) -> None:
    found = getattr(acphold, name)
    if not isinstance(found, type) or "__init__" not in vars(found):
        return
    init = ast.parse(textwrap.dedent(inspect.getsource(found.__init__)))  # type: ignore[misc]
    for node in ast.walk(init):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assert node.attr.startswith("_") or f"`{node.attr}`" in (found.__doc__ or "")
