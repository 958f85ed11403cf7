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
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, is_typeddict

from msgspec import Struct
from msgspec.structs import fields

import acphold
from acp_wire import schema
from acp_wire.schema.shapes import UnknownVariant
from acphold.errors import AcpError
from acphold.library import agent
from acphold.serve_options import AgentOptions, ServeOptions

HERE = Path(__file__).parent
PAGE = HERE / "api.md"
SOURCE = Path(acphold.__file__).parent

HEAD = """\
# API

Everything that authors of agents and of clients can call, from the docstrings (`make docs`), a page
for each role. For a tour, read [Write an agent](library.md) and
[Talk to an agent](library.md#talk-to-an-agent). Each heading says where a name is imported from;
[Versions](versions.md) says what may change, and when.
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
            "A turn": "Turn PlanEntry",
            "Tool calls, permissions, forms": "RunningTool Location Decision FormAnswer Visit"
            " Outcome PermissionOption ToolCallLocation",
            "Files and commands": "SessionFiles PendingCommand RunningCommand CommandOutput"
            " CommandExit",
            "A session and its past": "Session Severity Store SessionState TurnState Item Message"
            " MessageRole ToolCall DisplayTerminal ContextCompaction SubAgent TurnEnd TurnOutcome",
            "Its past, for a model": "bridges.pydantic_ai.model_messages"
            " bridges.openai.chat_messages bridges.anthropic.messages",
            "MCP servers": "TurnServers TurnServer McpTool McpCallResult McpProgress McpResource"
            " McpPrompt McpPromptArgument McpMadePrompt McpPromptMessage McpServerStdio"
            " McpServerHttp McpServerSse EnvVariable HttpHeader",
            "What one sees of it": "Step StepKind Middleware otel.spans LogContext",
            "Content of messages": "TextContent ImageContent AudioContent ResourceLink"
            " EmbeddedResource TextResourceContents BlobResourceContents",
        },
    ),
    "api-client": Role(
        "A client",
        "What a program works with that talks to agents; the tour is"
        " [Talk to an agent](library.md#talk-to-an-agent). The same in plain calls is"
        " [a client without asyncio](api-sync.md).",
        {
            "Connecting": "connect connect_over Options Folder Token Handler",
            "The agent": "RemoteAgent",
            "A session": "RemoteSession Content ConfigOption Replay UpdateStream",
            "What waits in it": "RemoteQueue PromptQueue WaitingPrompt EndedPrompt",
            "A copy of it": "SessionCopy CopiedFiles",
            "A turn": "RemoteTurn",
            "What an agent asks": "PermissionQuestion Policy Rule Kind PermissionAnswer"
            " AskPermission FormQuestion AskForm Filled PageQuestion AskPage",
        },
    ),
    "api-sync": Role(
        "A client without asyncio",
        "What `acphold.sync` has: [the client](api-client.md) in plain calls, for scripts and"
        " notebooks. What the agent asks is answered as there, and updates, items and content are"
        " those of that page.",
        {
            "Connecting": "sync.connect sync.ConnectOptions",
            "The agent": "sync.SyncAgent",
            "A session": "sync.SyncSession",
            "What waits in it": "sync.SyncQueue",
            "A turn": "sync.SyncTurn",
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
    "api-transport": Role(
        "A transport",
        "What carries the protocol, for whom stdio and what `connect` starts are not enough.",
        {
            "A connection": "Transport",
            "Adapters": "StreamTransport MessageTransport MessageConnection over_websocket"
            " PlainSocket AcceptedSocket",
            "What one promises": "testing.Promise testing.TRANSPORT_PROMISES testing.MakePair",
        },
    ),
}
"""The pages but for that of the schema, which is made of it."""

TYPES = {
    name.asname or name.name: (str(node.module), name.name)
    for node in ast.walk(ast.parse((SOURCE / "types.py").read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("acphold.", "acp_wire."))
    for name in node.names
}
"""What `acphold.types` offers, and where it is defined."""

ALIASES = {
    **TYPES,
    "StopReason": ("acphold.library.definition", "StopReason"),
    "testing.TRANSPORT_PROMISES": ("acp_wire.transports.promises", "TRANSPORT_PROMISES"),
    "testing.MakePair": ("acp_wire.transports.promises", "MakePair"),
}
"""Names that may be no classes."""

SHOWN = {
    "Mounted": "",
    "Principal": "name scopes tenant session_id sees_all expires_at is_here note refused",
    "SessionState": "timeline turns turn plan",
    "Summary": "",
    "Visitor": "principal client headers meta",
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

BLANK = "\n\n"

MADE_BY_AUTHORS = {"Agent", "MessageTransport", "StreamTransport"}
"""Classes whose constructor is for authors; the others are handed to them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def names() -> list[str]:
    """What is documented, in order."""
    sections = [names for role in ROLES.values() for names in role.sections.values()]
    listed = [name for names in sections for name in names.split()]
    return [*listed, *(error.__name__ for error in errors())]


@cache
def pages() -> dict[Path, str]:
    """All pages, by their files."""
    made = {PAGE: _index()}
    for name, role in ROLES.items():
        parts = [f"# {role.title}\n", f"{role.head}\n", _contents(role.sections)]
        for title, listed in role.sections.items():
            parts.append(f"## {title}\n")
            parts += [part for one in listed.split() for part in entry(one)]
        made[HERE / f"{name}.md"] = "\n".join(parts)
    made[HERE / "api-schema.md"] = _schema()
    return made


def _index() -> str:
    parts = [HEAD, "## By role\n"]
    for name, role in ROLES.items():
        sections = ", ".join(f"[{it}]({name}.md#{_anchor(it)})" for it in role.sections)
        parts.append(f"- [{role.title}]({name}.md): {sections}")
    parts.append("- [The schema](api-schema.md): the types and methods of the protocol\n")
    parts.append("## Errors one may catch\n\nBelow each stand those that are a kind of it.\n")
    parts.append("\n".join(error_tree(AcpError, 0)) + "\n")
    return "\n".join(parts)


def _contents(sections: dict[str, str]) -> str:
    """A table of contents: the sections, with the names in each."""
    lines = []
    for title, listed in sections.items():
        names = [_heading(name) for name in listed.split()]
        links = ", ".join(f"[{it.removeprefix('acphold.')}](#{_anchor(it)})" for it in names)
        links = links.replace("[types.", "[")
        lines.append(f"- [{title}](#{_anchor(title)}): {links}")
    return "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _heading(name: str) -> str:
    """Where a name is imported from."""
    if name.startswith("schema."):
        return f"acp_wire.{name}"
    return f"acphold.types.{name}" if name in TYPES else f"acphold.{name}"


def _schema() -> str:
    """The page of the protocol: its methods, then its types with their fields."""
    offered = {name: found for name, found in vars(schema).items() if not name.startswith("_")}
    types = {name: it for name, it in offered.items() if isinstance(it, type)}
    shown = {
        name: it for name, it in sorted(types.items()) if issubclass(it, Struct | UnknownVariant)
    }
    parts = [
        "# The schema\n",
        "The types and methods of the protocol, version 1, in `acp_wire.schema`. Fields are in"
        " Python's spelling; what a release of the protocol adds later is kept, and sent on as it"
        " came. The meaning of each is in the protocol's own pages.\n",
        "- [Methods](#methods)\n- [Reading and writing](#reading-and-writing)\n- [Types](#types)\n",
        "## Methods\n",
        "For `RemoteAgent.ask`, which takes and gives their types.\n",
        "| name | method | params | result |\n|---|---|---|---|",
    ]
    for name, it in sorted(offered.items()):
        if isinstance(it, schema.Method):
            parts.append(f"| `{name}` | `{it.name}` | {_link(it.params)} | {_link(it.result)} |")
        elif isinstance(it, schema.Notification):
            parts.append(f"| `{name}` | `{it.name}` | {_link(it.params)} | |")
    parts.append("\n## Reading and writing\n")
    for name, it in sorted(offered.items()):
        if inspect.isfunction(it):
            parts += entry(f"schema.{name}")
    parts.append("## Types\n")
    for name in shown:
        parts += entry(f"schema.{name}")
    return "\n".join(parts)


def _link(kind: type) -> str:
    name = kind.__name__
    return f"[{name}](#{_anchor(f'acp_wire.schema.{name}')})" if hasattr(schema, name) else name


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


def entry(name: str) -> Iterator[str]:
    """A name with its docstring, then what it offers."""
    short = name.rpartition(".")[2]
    found = found_by(name)
    if not (isinstance(found, type) or inspect.isfunction(found)):
        yield from _alias(name)
        return
    node = _node(found)
    yield f"### {_heading(name)}\n"
    block = _class(short, found) if isinstance(found, type) else _function(node)
    if block != f"class {short}":  # the heading has it already
        yield _block(block)
    doc = ast.get_docstring(node) or ""
    yield f"{doc}\n"
    if isinstance(found, type):
        for member in _members(found):
            if _is_property(member):
                yield f"#### {name}.{member.name}: `{_text(member.returns)}`\n"
            else:
                yield f"#### {name}.{member.name}\n"
                yield _block(_function(member))
            yield f"{ast.get_docstring(member)}\n"
            yield from _meanings(member)


def found_by(name: str) -> object:
    """What a name on a page stands for; a function without what is wrapped around it."""
    path = f"types.{name}" if name in TYPES else name
    package = "acp_wire" if name.startswith("schema.") else "acphold"
    module, _, short = f"{package}.{path}".rpartition(".")
    return inspect.unwrap(getattr(import_module(module), short))


def _alias(name: str) -> Iterator[str]:
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
                yield f"### {_heading(name)}\n"
                line = f"{name.rpartition('.')[2]} = {_text(value)}"
                if len(line) > 100:
                    start, _, rest = line.partition("[")
                    line = f"{start}[\n    {rest.removesuffix(']')}\n]"
                yield _block(line)
                yield f"{' '.join(doc.split())}\n"
                return
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
        if kind.__module__.startswith(("acphold.", "acp_wire.")):
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
        return _call(f"class {name}", init.args, None)
    fields = [
        _text(node)
        for kind in reversed(kinds)
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and _is_shown(name, _text(node.target))
        if issubclass(found, Struct) or is_typeddict(found)  # else they are no fields
    ]
    of = "(TypedDict)" if is_typeddict(found) else "(Protocol)" if is_protocol(found) else ""
    return "\n    ".join([f"class {name}{of}{':' if fields else ''}", *fields])


def is_protocol(found: type) -> bool:
    """Whether it is there to be fulfilled."""
    return bool(getattr(found, "_is_protocol", False))


def _function(node: ast.ClassDef | Function) -> str:
    assert isinstance(node, Function)
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    if any(_text(decorator) == "asynccontextmanager" for decorator in node.decorator_list):
        start = f"@asynccontextmanager\n{start}"
    arguments = node.args
    if options := _options(node):
        arguments = ast.arguments([], [], None, [], [], None, [])
        keywords: dict[str, tuple[ast.arg, ast.expr | None]] = {}  # a subclass may change a default
        for kind in reversed([*_kinds(options)]):
            is_keyword_only = any(keyword.arg == "kw_only" for keyword in kind.keywords)
            for field in kind.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    argument = ast.arg(field.target.id, field.annotation)
                    if is_keyword_only:
                        keywords[argument.arg] = argument, field.value
                    else:
                        arguments.args.append(argument)
                        arguments.defaults += [field.value] if field.value else []
        arguments.kwonlyargs = [argument for argument, _ in keywords.values()]
        arguments.kw_defaults = [value for _, value in keywords.values()]
    return _call(f"{start} {node.name}", arguments, node.returns)


def _options(node: Function) -> type[ServeOptions] | None:
    """The Struct whose fields a method takes as its arguments."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="_taking"), args=[ast.Name(id=name)]):
                found: type[ServeOptions] = getattr(agent, name)
                return found
    return None


def _meanings(node: Function) -> Iterator[str]:
    """What the options are that a method takes, where these are no others' as well."""
    if (options := _options(node)) is AgentOptions:
        for field in fields(options):
            yield f"- `{field.name}`: {field.type.__metadata__[0].meaning}"
        yield ""


def _call(start: str, arguments: ast.arguments, returns: ast.expr | None) -> str:
    """A signature, on one line if it fits."""
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
    given = "" if returns is None or _text(returns) == "None" else f" -> {_text(returns)}"
    line = f"{start}({', '.join(shown)}){given}"
    if len(line) <= 92:
        return line
    return "\n".join([f"{start}(", *(f"    {each}," for each in shown), f"){given}"])


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if argument.annotation else "="
    return _text(argument) + ("" if default is None else equals + _text(default))


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


def _block(code: str) -> str:
    return f"```python\n{code}\n```\n"


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
