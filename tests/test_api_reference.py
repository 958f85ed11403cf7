"""The pages of the API: made from the docstrings, complete, current, and right."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, is_typeddict

from msgspec import Struct

import acp_wire.schema
import acphold
import acphold.types
from acphold.serve_options import AgentOptions
from docs.api_reference import found_by, names, pages
from tests.test_public_names import MODULES


def test_the_pages_are_current() -> None:
    for file, text in pages().items():
        assert file.read_text(encoding="utf-8") == text, "run `make docs`"


def test_everything_that_can_be_imported_is_on_a_page() -> None:
    offered = {
        f"{module}.{name}".removeprefix("acphold.").removeprefix("types.")
        for module in MODULES
        for name in import_module(module).__all__
    }
    assert offered - {"__version__"} <= set(names())


def test_everything_on_a_page_can_be_imported_from_a_public_module() -> None:
    homes = [name.rpartition(".")[0] for name in names()]
    in_types = {name for name, home in zip(names(), homes, strict=True) if not home}
    offered = {*dir(acphold), *dir(acphold.types)}
    assert in_types <= offered
    assert {f"acphold.{home}" for home in homes if home} <= {*MODULES, "acp_wire.schema"}


def test_every_type_in_a_signature_is_on_a_page_or_the_protocols() -> None:
    """A word that begins with a capital in a signature is a type somebody may want to look up."""
    shapes = [shape for _, shape in shown()]
    mentioned = {word for shape in shapes for word in re.findall(r"\b[A-Z]\w*[a-z]\w*\b", shape)}
    known = {name.rpartition(".")[2] for name in names()}
    python = {
        "Any",
        "AsyncGenerator",
        "AsyncIterator",
        "Awaitable",
        "Callable",
        "Iterator",
        "Literal",
    }
    python |= {
        "Mapping",
        "Path",
        "Sequence",
        "Collection",
        "Event",
        "Task",
        "PathLike",
        "True",
        "False",
        "None",
        "Raw",
    }
    python |= {
        "AbstractAsyncContextManager",
        "StreamReader",
        "StreamWriter",
        "Final",
        "Unpack",
        "Iterable",
        "Protocol",
        "TypedDict",
        "NotRequired",
        "Annotated",
        "Meta",
    }
    schema = Path(acp_wire.schema.__file__).parent
    protocol = "".join(path.read_text(encoding="utf-8") for path in schema.glob("*.py"))
    assert {word for word in mentioned - known - python if word not in protocol} == {
        "TracerProvider",
        "Transport",
    }, "OpenTelemetry's, and that of acp_wire"


def shown() -> Iterator[tuple[str, str]]:
    """Each signature on the pages, behind the name of what it belongs to."""
    for file, text in pages().items():
        if file.name == "api-schema.md":
            continue
        heading = ""
        for above, own, member in re.findall(
            r"^### (.*)$|^`([^`]*)`$|^- `([^`(]*\([^`]*)`: ", text, re.M
        ):
            own, member = (
                it.replace("?", " | None = None").replace("StrPath", "str | os.PathLike[str]")
                for it in (own, member)
            )
            heading = above.removeprefix("acphold.") or heading
            if own:
                yield heading, own
            elif member and " = " not in member.partition("(")[0]:
                name = member.partition("(")[0].rpartition(" ")[2]
                yield f"{heading}.{name}", member


def test_each_signature_on_a_page_is_that_of_the_code() -> None:
    signatures = [*shown()]
    assert len(signatures) > 150
    for name, shape in signatures:
        assert_is_of_the_code(name, shape)


def assert_is_of_the_code(name: str, shape: str) -> None:
    shape = shape.removeprefix("@asynccontextmanager ")
    is_async = shape.startswith("async ")
    [told] = ast.parse(f"def {shape.removeprefix('async ')}: ...").body
    assert isinstance(told, ast.FunctionDef), name
    code = of(name)
    if isinstance(code, type) and is_typeddict(code):
        return  # which has no signature
    parameters = [it for it in inspect.signature(code).parameters.values() if it.name != "self"]
    if told.args.kwarg and told.args.kwarg.arg == "options" and name.startswith("Agent."):
        parameters = [it for it in parameters if it.name not in AgentOptions.__struct_fields__]
        told.args.kwarg = None
    if isinstance(code, type) and issubclass(code, Struct):  # of which not all is shown
        fields = {it.arg for it in [*told.args.args, *told.args.kwonlyargs]}
        parameters = [it for it in parameters if it.name in fields]
    spelled = told.args
    assert [it.name for it in parameters] == [
        *(it.arg for it in [*spelled.posonlyargs, *spelled.args]),
        *([spelled.vararg.arg] if spelled.vararg else []),
        *(it.arg for it in spelled.kwonlyargs),
        *([spelled.kwarg.arg] if spelled.kwarg else []),
    ], name
    positional = [*spelled.posonlyargs, *spelled.args]
    lacking: list[None] = [None] * (len(positional) - len(spelled.defaults))
    defaults = {
        **{
            it.arg: value
            for it, value in zip(positional, [*lacking, *spelled.defaults], strict=True)
        },
        **{
            it.arg: value for it, value in zip(spelled.kwonlyargs, spelled.kw_defaults, strict=True)
        },
    }
    for parameter in parameters:
        default = defaults.get(parameter.name)
        assert (default is not None) == (parameter.default is not parameter.empty), (
            name,
            parameter,
        )
        if isinstance(default, ast.Constant):
            assert default.value == parameter.default, (name, parameter)
    assert is_async == is_awaited(code), name


def of(name: str) -> Any:
    """The object that a heading names: a public name, or a member of a class by its short name."""
    bare = name.removeprefix("types.")
    if bare in names():
        return found_by(bare)
    kind, _, member = bare.rpartition(".")
    return inspect.getattr_static(found_by(kind), member)


def is_awaited(code: Any) -> bool:
    """True if it is written with `async`."""
    code = inspect.unwrap(code)
    return inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)


def test_every_attribute_of_a_class_is_in_its_docstring() -> None:
    for name in sorted(dir(acphold)):
        found = getattr(acphold, name)
        if not isinstance(found, type) or "__init__" not in vars(found):
            continue
        init = ast.parse(textwrap.dedent(inspect.getsource(found.__init__)))  # type: ignore[misc]
        for node in ast.walk(init):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                is_told = node.attr.startswith("_") or f"`{node.attr}`" in (found.__doc__ or "")
                assert is_told, name
