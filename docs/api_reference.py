"""Makes docs/api.md from the docstrings: `make docs`. A test tells when it is out of date."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec.structs import fields

import acphold
import acphold.client
import acphold.mcp
import acphold.testing
import acphold.transports.web_sockets
from acphold.errors import AcpholdError
from acphold.library import agent
from acphold.serve_options import AgentOptions, ServeOptions

PAGE = Path(__file__).with_name("api.md")

HEAD = """\
# API

Everything that authors of agents and of clients can call, from the docstrings (`make docs`). For a
tour, read [Write an agent](library.md) and [Talk to an agent](library.md#talk-to-an-agent). What
`acphold.sync` has is the client of this page without `await`. Names are imported from `acphold`,
unless said otherwise; types of the protocol that are only mentioned here (`ContentBlock`,
`ClientCapabilities` …) are in `acphold.schema`. "Source" names the page of the protocol's
specification.
"""

SECTIONS = {
    "An agent": "Agent Value SessionHook AuthHandler LogoutHandler SignedIn MethodHandler"
    " StopReason Refusal MaxTokens MaxTurnRequests",
    "Many clients": "Server Visitor Principal Scope",
    "Transports": "Transport StreamTransport MessageTransport MessageConnection over_websocket"
    " transports.web_sockets.PlainSocket transports.web_sockets.AcceptedSocket",
    "A turn": "Turn PlanEntry",
    "Tool calls, permissions, forms": "RunningTool Location Decision FormAnswer Visit Outcome"
    " PermissionOption ToolCallLocation",
    "Files and commands": "SessionFiles PendingCommand RunningCommand CommandOutput CommandExit",
    "A session and its past": "Session Severity Store SessionState Message ToolCall TurnEnd",
    "MCP servers": "TurnServers mcp.Connection mcp.Tool mcp.CallResult mcp.Prompt"
    " mcp.PromptArgument mcp.Progress mcp.offers.Resource mcp.offers.MadePrompt"
    " mcp.offers.PromptMessage McpServerStdio McpServerHttp McpServerSse EnvVariable HttpHeader",
    "What one sees of it": "LogContext",
    "Content of messages": "TextContent ImageContent AudioContent ResourceLink EmbeddedResource"
    " TextResourceContents BlobResourceContents",
    "A client": "connect connect_over client.Options RemoteAgent RemoteSession RemoteTurn"
    " client.UpdateStream client.Replay Content Folder PermissionQuestion Policy Kind"
    " PermissionAnswer AskPermission FormQuestion AskForm Filled PageQuestion AskPage Handler",
    "Tests of an agent": "testing.connect testing.WatchedAgent testing.WatchedSession"
    " testing.WatchedTurn testing.Received testing.Promise testing.TRANSPORT_PROMISES MakePair",
}
"""Everything but the errors, which are found by themselves."""

ALIASES = {
    "MakePair": "testing/transports.py",
    "TRANSPORT_PROMISES": "testing/transports.py",
    "StopReason": "library/definition.py",
    "SessionHook": "library/definition.py",
    "AuthHandler": "library/definition.py",
    "LogoutHandler": "library/definition.py",
    "SignedIn": "library/definition.py",
    "MethodHandler": "library/definition.py",
    "Scope": "journal/access.py",
    "Value": "library/agent.py",
    "Location": "library/tools.py",
    "Outcome": "library/form.py",
    "Severity": "library/author_session.py",
    "Policy": "client/policy.py",
    "AskPermission": "client/policy.py",
    "PermissionAnswer": "client/policy.py",
    "AskForm": "client/form_answers.py",
    "AskPage": "client/form_answers.py",
    "Filled": "client/form_answers.py",
    "Folder": "client/advertised.py",
    "Content": "client/prompt_content.py",
    "Handler": "client/duties.py",
    "Kind": "client/policy.py",
}
"""Names of types that are no classes, and where they are defined."""

SHOWN = {
    "Connection": "tools resources prompts call read_resource get_prompt error",
    "Principal": "name scopes session_id is_here tenant",
    "SessionState": "timeline turns turn plan",
    "Visitor": "principal client headers meta",
}
"""What is shown of classes that also serve acphold itself: of them, and not all they say."""

IN_WORDS = {
    "A": "AuthHandler",
    "I": "SignedIn",
    "Int64": "int",
    "Item": "Message | ToolCall | TurnEnd",
    "L": "LogoutHandler",
    "M": "MethodHandler",
    "Role": "Literal['user', 'agent', 'thought']",
    "S": "SessionHook",
    "StopReasonOrNone": "StopReason | None",
    "TurnOutcome": "Literal['completed', 'limited', 'refused', 'cancelled', 'failed',"
    " 'interrupted']",
    "TurnState": "Literal['idle', 'running', 'interrupted']",
}
"""Names in signatures that a reader cannot look up, and what they stand for."""

LENIENCE = {"OrDefault", "NullIsDefault", "GoodItems"}
"""Marks on the types of the protocol that say how they are read; for a reader they are noise."""

BLANK = "\n\n"

MADE_BY_AUTHORS = {"Agent", "MessageTransport", "StreamTransport"}
"""Classes whose constructor is for authors; the others are handed to them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def names() -> list[str]:
    """What is documented, in order."""
    listed = [name for section in SECTIONS.values() for name in section.split()]
    return [*listed, *(error.__name__ for error in errors())]


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, listed in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [part for name in listed.split() for part in entry(name)]
    parts.append("## Errors one may catch\n\nBelow each stand those that are a kind of it.\n")
    parts.append("\n".join(error_tree(AcpholdError, 0)) + "\n")
    return "\n".join(parts)


def errors() -> list[type[AcpholdError]]:
    """The errors that the package exports."""
    found = (getattr(acphold, name) for name in acphold.__all__)
    return [error for error in found if isinstance(error, type) and issubclass(error, AcpholdError)]


def error_tree(error: type[AcpholdError], depth: int) -> Iterator[str]:
    """One line for the error, and for those that are a kind of it."""
    text = " ".join((inspect.getdoc(error) or "").split())
    yield f"{'  ' * depth}- `{error.__name__}`: {text}"
    for kind in sorted(errors(), key=lambda other: other.__name__):
        if error in kind.__bases__ or (depth == 0 and _hangs_below_what_is_unnamed(kind)):
            yield from error_tree(kind, depth + 1)


def _hangs_below_what_is_unnamed(error: type[AcpholdError]) -> bool:
    return error is not AcpholdError and not set(error.__bases__) & set(errors())


def entry(name: str) -> Iterator[str]:
    """A name with its docstring, then what it offers."""
    short = name.rpartition(".")[2]
    if short in ALIASES:
        yield from _alias(short)
        return
    found: object = acphold
    for part in name.split("."):
        found = getattr(found, part)
    node = _node(found)
    yield f"### acphold.{name}\n"
    yield _block(_class(short, found) if isinstance(found, type) else _function(node))
    doc = ast.get_docstring(node) or ""
    yield f"{doc.partition(BLANK)[0] if short in SHOWN else doc}\n"
    if isinstance(found, type):
        for member in _members(found):
            if _is_property(member):
                yield f"#### {short}.{member.name}: `{_text(member.returns)}`\n"
            else:
                yield f"#### {short}.{member.name}\n"
                yield _block(_function(member))
            yield f"{ast.get_docstring(member)}\n"
            yield from _meanings(member)


def _alias(name: str) -> Iterator[str]:
    """The name of a type, what it stands for, and the docstring that follows it."""
    source = Path(acphold.__file__).parent / ALIASES[name]
    body = ast.parse(source.read_text(encoding="utf-8")).body
    for node, behind in pairwise(body):
        match node, behind:
            case (
                ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ) if found == name:
                if isinstance(value, ast.Constant):  # as a string, for types that are not imported
                    value = ast.parse(str(value.value), mode="eval").body
                stands_for = _text(value)
                yield f"### {'acphold.' if name in acphold.__all__ else ''}{name}\n"
                yield _block(f"{name} = {stands_for}")
                yield f"{' '.join(doc.split())}\n"


def _node(found: object) -> ast.ClassDef | Function:
    """The source of a class or function."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(found))).body  # type: ignore[arg-type]
    assert isinstance(node, ast.ClassDef | Function)
    return node


def _kinds(found: type) -> Iterator[ast.ClassDef]:
    """The source of a class, then of those it is made from."""
    for kind in found.__mro__:
        if kind.__module__.startswith("acphold."):
            node = _node(kind)
            assert isinstance(node, ast.ClassDef)
            yield node


def _members(found: type) -> Iterator[Function]:
    """The public methods and properties that say what they are for, inherited ones too."""
    seen: set[str] = set()
    for kind in _kinds(found):
        if kind.name != found.__name__ and kind.name in acphold.__all__:
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
    ]
    return "\n    ".join([f"class {name}{':' if fields else ''}", *fields])


def _function(node: ast.ClassDef | Function) -> str:
    assert isinstance(node, Function)
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    arguments = node.args
    if options := _options(node):
        arguments = ast.arguments([], [], None, [], [], None, [])
        for kind in reversed([*_kinds(options)]):
            is_keyword_only = any(keyword.arg == "kw_only" for keyword in kind.keywords)
            for field in kind.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    argument = ast.arg(field.target.id, field.annotation)
                    if is_keyword_only:
                        arguments.kwonlyargs.append(argument)
                        arguments.kw_defaults.append(field.value)
                    else:
                        arguments.args.append(argument)
                        arguments.defaults += [field.value] if field.value else []
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
    given = "" if returns is None or _text(returns) == "None" else f" -> {_text(returns)}"
    line = f"{start}({', '.join(shown)}){given}"
    if len(line) <= 92:
        return line
    return "\n".join([f"{start}(", *(f"    {each}," for each in shown), f"){given}"])


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if argument.annotation else "="
    return _text(argument) + ("" if default is None else equals + _text(default))


class _Plain(ast.NodeTransformer):
    """Leaves out marks of lenience, and puts what names stand for in their place."""

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
    PAGE.write_text(page(), encoding="utf-8")
