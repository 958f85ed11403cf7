"""Makes the pages of the API from the docstrings: `make docs`. A test fails if they are old."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import Parameter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, is_typeddict

from msgspec import Struct
from msgspec.structs import fields

import acphold
import acphold.types
from acp_wire import schema
from acphold.errors import AcpError
from acphold.library import agent
from acphold.serve_options import AgentOptions, ServeOptions

HERE = Path(__file__).parent
PAGE = HERE / "api.md"

SETTINGS = "use.md#the-settings-file"
"""The place that says what the options of serving mean."""

HEAD = """\
# API

Everything that authors of agents and of clients can call, from the docstrings. Of methods it has
the first sentence and the errors; `help(acphold.Turn.tool)` or your editor shows the details, with
the pages of the protocol. A heading says where a name is imported from; `T?` is `T | None = None`,
`StrPath` is `str | os.PathLike[str]`, and a decorator returns what it decorates.
[Versions](versions.md) says what may change, and when.
"""


SCHEMA_HEAD = """\
# The schema

The types and methods of the protocol, version 1, in `acp_wire.schema`. Types have the names of the
[protocol's page](https://agentclientprotocol.com/protocol/v1/schema), their fields those names in
Python's spelling (`session_id`; `_meta` is kept and not shown), and arrays are tuples. What may be
left out is None then, or its default; where null says something else, it is `UNSET`. Additions of
later releases are kept, and sent on as they came: an unknown variant is an `Unknown…`.

`acphold` exports these as well: {here}.

## Methods

For `RemoteAgent.ask`: `PROMPT` takes a `PromptRequest` and gives a `PromptResponse`, and so on.
Notifications take a `SessionNotification` (`UPDATE`), `CancelNotification` or
`CompleteElicitationNotification`.
"""


class Role(NamedTuple):
    """A page: what it is called and begins with, and the names in its sections."""

    title: str
    head: str
    sections: dict[str, str]


ROLES = {
    "api-agent": Role(
        "An agent",
        "What an author of an agent works with; the tour is [Write an agent](library.md).",
        {
            "The agent": "Agent Value OptionCategory CustomCategory"
            " SessionHook AuthHandler LogoutHandler SignedIn MethodHandler"
            " StopReason Refusal MaxTokens MaxTurnRequests",
            "Many clients": "Server Admit Mounted Visitor Principal Scope",
            "A turn": "Turn",
            "Tool calls, permissions, forms": "RunningTool Location Decision FormAnswer Visit"
            " Outcome",
            "Files and commands": "SessionFiles PendingCommand RunningCommand CommandOutput"
            " CommandExit",
            "A session and its past": "Session Severity Store SessionState TurnStatus Item Message"
            " MessageRole ToolCall DisplayTerminal ContextCompaction SubAgent TurnEnd TurnOutcome",
            "MCP servers": "McpServers TurnServer McpTool McpCallResult McpProgress McpResource"
            " McpPrompt McpPromptArgument McpMadePrompt McpPromptMessage",
            "What one sees of it": "Step StepKind Middleware otel.spans LogContext",
        },
    ),
    "api-client": Role(
        "A client",
        "What a program works with that talks to agents; the tour is"
        " [Talk to an agent](library.md#talk-to-an-agent).",
        {
            "Connecting": "connect Options Folder Token Handler",
            "The agent": "RemoteAgent OpenOptions",
            "A session": "RemoteSession Content ConfigOption Replay UpdateStream",
            "What waits in it": "RemoteQueue PromptQueue WaitingPrompt EndedPrompt",
            "A copy of it": "SessionCopy CopiedFiles",
            "A turn": "RemoteTurn",
            "What an agent asks": "PermissionQuestion Policy Rule Kind PermissionAnswer"
            " AskPermission FormQuestion AskForm Filled PageQuestion AskPage",
            "All sessions": "open KeptSessions KeptSession KeptQuestion SearchResult Usage",
            "Without asyncio": "sync.connect sync.SyncAgent sync.SyncSession"
            " sync.SyncQueue sync.SyncTurn",
        },
    ),
    "api-testing": Role(
        "Tests of an agent",
        "A client in memory: [that of `connect`](api-client.md), and what it recorded besides.",
        {
            "Connecting": "testing.connect",
            "What it gives": "testing.WatchedAgent testing.WatchedSession testing.WatchedTurn"
            " testing.Received",
        },
    ),
}
"""The pages but for that of the schema, which is made of it."""

TYPES = acphold.types._HOMES
"""What `acphold.types` offers, and where it is defined."""

OF_THE_PROTOCOL = sorted(
    name for name in dir(acphold) if getattr(acphold, name) is getattr(schema, name, None)
)
"""What the package exports of the protocol's types: the page of the schema has them."""

TWINS = {
    "sync.SyncAgent": "RemoteAgent",
    "sync.SyncQueue": "RemoteQueue",
    "sync.SyncSession": "RemoteSession",
    "sync.SyncTurn": "RemoteTurn",
    "testing.WatchedAgent": "RemoteAgent",
    "testing.WatchedSession": "RemoteSession",
}
"""Classes with members of another class; those that take and give the same stand there."""

ALIASES = {
    **TYPES,
    "StopReason": ("acphold.library.definition", "StopReason"),
}
"""Names that may be no classes."""

SHOWN = {
    "Mounted": "",
    "Principal": "name scopes tenant session_id sees_all expires_at is_here note refused",
    "EndedPrompt": "id words status at",
    "PromptQueue": "waiting begun held until ended goes_on restarts edited",
    "SessionState": "timeline turns turn plan",
    "Store": "append save",
    "ToolCall": "tool_call_id fields terminals name title kind status input output locations"
    " produced blocks diffs",
    "TurnEnd": "outcome stop_reason message at resets_at",
    "UpdateStream": "",
    "Visitor": "principal client headers meta",
    "WaitingPrompt": "id seq words at client guest",
}
"""What is shown of classes that also serve acphold itself."""

IN_WORDS = {
    "A": "AuthHandler",
    "CallResult": "McpCallResult",
    "I": "SignedIn",
    "Int64": "int",
    "L": "LogoutHandler",
    "M": "MethodHandler",
    "MadePrompt": "McpMadePrompt",
    "Progress": "McpProgress",
    "Prompt": "McpPrompt",
    "PromptArgument": "McpPromptArgument",
    "PromptMessage": "McpPromptMessage",
    "Resource": "McpResource",
    "S": "SessionHook",
    "Tool": "McpTool",
    "W": "Middleware",
    "StopReasonOrNone": "StopReason | None",
    "Role": "MessageRole",
}
"""Names in signatures that a reader cannot look up, and what they stand for."""

LENIENCE = {"OrDefault", "NullIsDefault", "GoodItems"}
"""Marks on the types of the protocol that say how they are read; for a reader they are noise."""

MODULES = {"bounds", "errors", "schema"}
"""Modules that the code writes in front of their names."""

MADE_BY_AUTHORS = {"Agent"}
"""Classes whose constructor is for authors; the others are handed to them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def names() -> list[str]:
    """What is documented, in order."""
    sections = [names for role in ROLES.values() for names in role.sections.values()]
    listed = [name for names in sections for name in names.split()]
    return [*listed, *OF_THE_PROTOCOL, *(error.__name__ for error in errors())]


@cache
def pages() -> dict[Path, str]:
    """All pages, by their files."""
    made = {PAGE: _index()}
    for name, role in ROLES.items():
        parts = [f"# {role.title}\n", f"{role.head}\n"]
        for title, listed in role.sections.items():
            parts.append(f"## {title}\n")
            parts += [f"{entry(one)}\n" for one in listed.split()]
        made[HERE / f"{name}.md"] = "\n".join(parts).rstrip() + "\n"
    made[HERE / "api-schema.md"] = _schema()
    return made


def _index() -> str:
    parts = [HEAD, "## By role\n"]
    for name, role in ROLES.items():
        parts.append(f"- [{role.title}]({name}.md)")
    parts.append("- [The schema](api-schema.md): the types and methods of the protocol\n")
    parts.append("## Errors one may catch\n")
    parts.append("\n".join(error_tree(AcpError, 0)) + "\n")
    return "\n".join(parts)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _heading(name: str) -> str:
    """Where a name is imported from."""
    if name.startswith("schema."):
        return f"acp_wire.{name}"
    return f"acphold.types.{name}" if name in TYPES else f"acphold.{name}"


def _place(name: str) -> str:
    """The address of a name on these pages."""
    [page] = [
        page for page, role in ROLES.items() if name in " ".join(role.sections.values()).split()
    ]
    return f"{page}.md#{_anchor(_heading(name))}"


def _schema() -> str:
    """The page of the protocol: its methods, and how its types are read and written."""
    offered = {name: found for name, found in sorted(vars(schema).items()) if name[0] != "_"}
    here = ", ".join(f"`{name}`" for name in OF_THE_PROTOCOL)
    parts = [SCHEMA_HEAD.format(here=here)]
    methods = {
        name: it
        for name, it in offered.items()
        if isinstance(it, schema.Method | schema.Notification)
    }
    parts.append(", ".join(f"`{it}`" for it in methods) + ".")
    parts.append("\n## Reading and writing\n")
    parts += [f"{entry(f'schema.{name}')}\n" for name in ("decode", "decode_update", "encode")]
    return "\n".join(parts) + "\n"


def errors() -> list[type[AcpError]]:
    """The errors that the package exports."""
    found = (getattr(acphold, name) for name in dir(acphold))
    return [error for error in found if isinstance(error, type) and issubclass(error, AcpError)]


def error_tree(error: type[AcpError], depth: int) -> Iterator[str]:
    """One line for the error, and for those that are a kind of it."""
    text = " ".join((inspect.getdoc(error) or "").split())
    yield f"{'  ' * depth}- `{error.__name__}`: {text}"
    for kind in sorted(errors(), key=lambda other: other.__name__):
        if error in kind.__bases__ or (depth == 0 and _hangs_below_what_is_unnamed(kind)):
            yield from error_tree(kind, depth + 1)


def _hangs_below_what_is_unnamed(error: type[AcpError]) -> bool:
    return error is not AcpError and not set(error.__bases__) & set(errors())


def entry(name: str) -> str:
    """A name with its docstring, then what it offers."""
    found = found_by(name)
    if not (isinstance(found, type) or inspect.isfunction(found)):
        return _alias(name)
    short = name.rpartition(".")[2]
    node = _node(found)
    shape = _class(short, found) if isinstance(found, type) else _function(node)
    if name == "sync.connect":  # as `connect`
        shape = short
    parts = [f"### {_heading(name)}"]
    if shape != short:  # the heading has it already
        parts.append(f"`{_briefly(shape)}`")
    if name == "sync.SyncTurn" or not name.startswith("sync.Sync"):  # the twin says the rest
        parts.append(_docstring(node))
    if isinstance(found, type):
        members = [*_members(found)]
        if twin := TWINS.get(name):
            theirs = {it.name: _as_twin(it) for it in _members(found_by(twin))}  # type: ignore[arg-type]
            shared = {it.name for it in members if theirs.get(it.name) == _as_twin(it)}
            members = [it for it in members if it.name not in shared]
            parts.append(_as_there(twin, [*shared], [it for it in theirs if it not in shared]))
        parts.append("\n".join(_member(member) for member in members))
    return "\n\n".join(part for part in parts if part)


def _as_there(twin: str, shared: list[str], others: list[str]) -> str:
    """Say which members are those of the twin, in the shorter of two ways."""
    place = f"[{twin}]({_place(twin)})"
    if len(shared) < len(others):
        return f"As in {place}: {_listed(sorted(shared))}."
    return f"All of {place}{f' except {_listed(others)}' if others else ''}."


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{it}`" for it in names)


def _docstring(node: ast.ClassDef | Function) -> str:
    """What a docstring says, without the pages of the protocol that it names as its source."""
    text = ast.get_docstring(node) or ""
    text = re.sub(r"\s*\(spec\s+v1,[^)]*\)", "", text)
    return re.sub(
        r"(?:^|(?<=[.:)])\s+)Source:\s+(?:spec\s+v1|RFD)[^.]*\.(?=\s|$)", "", text
    ).strip()


def _briefly(shape: str) -> str:
    return re.sub(r" \| None ?= ?None", "?", shape).replace("str | os.PathLike[str]", "StrPath")


def _as_twin(node: Function) -> str:
    """What a member takes and gives, in the words of the class that awaits."""
    shape = _shape(node).removeprefix("async ").replace("AsyncIterator", "Iterator")
    return re.sub(r"\b(Sync|Watched)(?=[A-Z])", "Remote", shape)


def _shape(node: Function) -> str:
    return f"{node.name}: {_text(node.returns)}" if _is_property(node) else _function(node)


def _member(node: Function) -> str:
    """A member of a class, as a point of a list."""
    first, *more = _docstring(node).split("\n\n")
    said = [" ".join(first.split()), *filter(None, map(_about_errors, more))]
    more = ["\n".join(_meanings(node))]
    points = [
        f"- `{_briefly(_shape(node))}`: {' '.join(said)}",
        *(it for it in more if it),
    ]
    return textwrap.indent("\n\n".join(points), "  ").lstrip()


def _about_errors(details: str) -> str:
    """The sentences that name errors: of the details of a member, the page has no others."""
    sentences = re.split(r"(?<=[.:]) ", " ".join(details.split()))
    return " ".join(it for it in sentences if re.search(r"[A-Z]\w*Error\b", it))


def found_by(name: str) -> object:
    """What a name on a page stands for; a function without what is wrapped around it."""
    path = f"types.{name}" if name in TYPES else name
    package = "acp_wire" if name.startswith("schema.") else "acphold"
    module, _, short = f"{package}.{path}".rpartition(".")
    return inspect.unwrap(getattr(import_module(module), short))


def _alias(name: str) -> str:
    """The name of a type, what it stands for, and the docstring that follows it."""
    module, original = ALIASES[name]
    source = Path(str(import_module(module).__file__))
    body = ast.parse(source.read_text(encoding="utf-8")).body
    for node, behind in pairwise(body):
        match node:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=found)], value=value):
                pass
            case _:
                continue
        if found != original:
            continue
        if isinstance(value, ast.Constant):  # as a string, for types that are not imported
            value = ast.parse(str(value.value), mode="eval").body
        match behind:
            case ast.Expr(value=ast.Constant(value=str(doc))):
                shape = f"{_heading(name)} = {_text(value)}"
                return f"- `{shape}`: {' '.join(doc.split())}"
    raise LookupError(f"{name} has no docstring in {module}")


@cache
def _node(found: object) -> ast.ClassDef | Function:
    """The source of a class or function."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(found))).body  # type: ignore[arg-type]
    assert isinstance(node, ast.ClassDef | Function)
    return node


def _kinds(found: type) -> Iterator[ast.ClassDef]:
    """The source of a class, then of those it is made from."""
    for kind in found.__mro__:
        if kind.__module__.startswith(("acphold.", "acp_")):
            node = _node(kind)
            assert isinstance(node, ast.ClassDef)
            yield node


def _members(found: type) -> Iterator[Function]:
    """The public methods and properties that say what they are for, inherited ones too."""
    seen: set[str] = set()
    for kind in _kinds(found):
        if kind.name != found.__name__ and kind.name in (*dir(acphold), "Journal"):
            return  # what it inherits from there stands there
        for node in kind.body:
            if isinstance(node, Function) and node.name not in seen and _is_public(node):
                seen.add(node.name)
                if _is_shown(found.__name__, node.name):
                    yield node


def _is_public(node: Function) -> bool:
    named = not node.name.startswith("_") or node.name == "__getitem__"
    return named and ast.get_docstring(node) is not None


def _is_shown(name: str, member: str) -> bool:
    return member in SHOWN[name].split() if name in SHOWN else member != "meta"


def _is_property(node: Function) -> bool:
    return any(_text(decorator) == "property" for decorator in node.decorator_list)


def _class(name: str, found: type) -> str:
    """Its constructor if that is for authors, and its fields if it is a record."""
    kinds = list(_kinds(found))
    if name in MADE_BY_AUTHORS:
        [init] = [node for node in kinds[0].body if getattr(node, "name", "") == "__init__"]
        assert isinstance(init, ast.FunctionDef)
        return _call(name, init.args, None)
    fields = {
        _text(node.target): _text(node).replace(" = ", "=", 1)
        for kind in reversed(kinds)
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and _is_shown(name, _text(node.target))
        if issubclass(found, Struct) or is_typeddict(found)  # else they are no fields
    }
    shown = [*fields.values()]
    if fields and issubclass(found, Struct):
        taken = inspect.signature(found).parameters
        ordered = [fields[it] for it in taken if it in fields]
        by_position = [it for it in taken if taken[it].kind is not Parameter.KEYWORD_ONLY]
        at = sum(it in fields for it in by_position)
        shown = [*ordered[:at], *(["*"] if at < len(ordered) else []), *ordered[at:]]
    return f"{name}({', '.join(shown)})" if shown else name


def is_protocol(found: type) -> bool:
    """Whether it is there to be fulfilled."""
    return bool(getattr(found, "_is_protocol", False))


def _function(node: ast.ClassDef | Function) -> str:
    assert isinstance(node, Function)
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    if any(_text(decorator) == "asynccontextmanager" for decorator in node.decorator_list):
        start = "@asynccontextmanager async "
    arguments = node.args
    if options := _options(node):  # of which those of `run` stand in a list there
        arguments = ast.arguments([], [], None, [], [], ast.arg("options"), [])
        for name, kind, default in _given(options):
            if name in AgentOptions.__struct_fields__:
                continue
            if inspect.signature(options).parameters[name].kind is Parameter.KEYWORD_ONLY:
                arguments.kwonlyargs.append(ast.arg(name, kind))
                arguments.kw_defaults.append(default)
            else:
                arguments.args.append(ast.arg(name, kind))
                arguments.defaults += [default] if default else []
    return _call(f"{start}{node.name}", arguments, node.returns)


def _options(node: Function) -> type[ServeOptions] | None:
    """The Struct whose fields a method takes as its arguments."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="_taking"), args=[ast.Name(id=name)]):
                found: type[ServeOptions] = getattr(agent, name)
                return found
    return None


def _given(options: type[ServeOptions]) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """The name, type and default of each field; a subclass may have changed a default."""
    found = {
        field.target.id: (field.annotation, field.value)
        for kind in reversed([*_kinds(options)])
        for field in kind.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    for name in options.__struct_fields__:
        yield name, *found[name]


def _meanings(node: Function) -> Iterator[str]:
    """The options that a method takes, where these are no others' as well.

    What most of them mean is said on the page of the settings file.
    """
    if (options := _options(node)) is AgentOptions:
        means = {field.name: field.type.__metadata__[0].meaning for field in fields(options)}
        there = {field.name: field.type.__metadata__[0].meaning for field in fields(ServeOptions)}
        shapes = {
            name: f"`{_briefly(_argument(ast.arg(name, kind), default))}`"
            for name, kind, default in _given(options)
        }
        yield f"As in [the settings file]({SETTINGS}); seconds and bytes:"
        yield ", ".join(it for name, it in shapes.items() if means[name] == there.get(name)) + "\n"
        for name, shape in shapes.items():
            if means[name] != there.get(name):
                yield f"- {shape}: {means[name]}"


def _call(start: str, arguments: ast.arguments, returns: ast.expr | None) -> str:
    """A signature."""
    plain = arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    shown = [
        _argument(*each) for each in zip(plain, defaults, strict=True) if each[0].arg != "self"
    ]
    if arguments.vararg is not None:
        shown.append(f"*{_text(arguments.vararg)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += map(_argument, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg is not None:
        shown.append(f"**{_text(arguments.kwarg)}")
    decorates = plain[-1:] and plain[-1].arg in {"handler", "hook", "middleware"}
    told = returns is not None and _text(returns) != "None" and not decorates
    given = f" -> {_text(returns)}" if told else ""
    return f"{start}({', '.join(shown)}){given}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return _text(argument) + ("" if default is None else f"={_text(default)}")


class _Plain(ast.NodeTransformer):
    """Leaves out marks of lenience and module prefixes, and writes names as readers know them."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        ours = isinstance(node.value, ast.Name) and node.value.id in MODULES
        return self.visit_Name(ast.Name(node.attr)) if ours else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        mark = node.value.id if isinstance(node.value, ast.Name) else ""
        if mark == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node.slice if mark in LENIENCE else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(IN_WORDS.get(node.id, node.id), mode="eval").body


def _text(node: ast.AST | None) -> str:
    """The code of a node, with double quotes, as it stands in the source."""
    text = "None" if node is None else ast.unparse(_Plain().visit(copy.deepcopy(node)))
    return text if '"' in text else text.replace("'", '"')


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
