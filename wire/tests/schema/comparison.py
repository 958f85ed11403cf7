"""Our types against the official JSON schema, both put into the same few words.

A type becomes a short text: `string`, `uint32?` (or null), `[ToolCallLocation]`, `{any}`,
`enum(high|low|medium)`, `enum(info|...)` for an open set, `<type: image=ImageContent|text=…>` for
a tagged union, with `; else X` for the variant without a tag and `; other` for a catch-all.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

import acp_wire.schema as ours
from acp_wire.schema.client_services import NEEDS, PropertyFields, TerminalFields
from acp_wire.schema.methods import UNSTABLE_METHODS
from acp_wire.schema.salvage import lenience_of
from acp_wire.schema.session_requests import ConfigOptionFields
from acp_wire.schema.shapes import Extensible, KnownValues, Nothing, Otherwise, Shape
from acp_wire.schema.updates import ToolCallChanges

Json = dict[str, Any]

OTHER_NAMES = {
    "UserMessageChunk": "ContentChunk",
    "AgentMessageChunk": "ContentChunk",
    "AgentThoughtChunk": "ContentChunk",
    "ToolCallStart": "ToolCall",
    "ToolCallPatch": "ToolCallUpdate",
    "ErrorObject": "Error",
    "CancelledPermissionOutcome": "{}",
}
"""Our name to the schema's, where they differ."""

OPENED = {"ContentBlock", "ToolCallContent", "SessionUpdate", "SessionConfigOption", "McpServer"}
"""Closed unions of which we keep unknown variants all the same."""

MARKS = {
    "x-deserialize-default-on-error": "on_error",
    "x-deserialize-default-on-null": "on_null",
    "x-deserialize-skip-invalid-items": "skip_items",
}
BASES = (Shape, Extensible, ConfigOptionFields, PropertyFields, TerminalFields, ToolCallChanges)
"""Bases that types share; they are no types of the schema themselves."""

UNSTABLE = {method.params for method in UNSTABLE_METHODS.values()} - {
    method.params for method in ours.AGENT_METHODS.values()
}
"""Types of methods that the stable schema does not have."""

NO_DEFAULT = object()


class Property(NamedTuple):
    """The facts of a property that both sides state, apart from `default`."""

    type: str
    required: bool
    marks: frozenset[str] = frozenset()

    def __str__(self) -> str:
        words = [self.type, "required" if self.required else "optional", *sorted(self.marks)]
        return " ".join(words)


Properties = dict[str, Property]


def differences(schema: Json) -> list[str]:
    """Each way in which our types differ from `schema`, in one line; none when they agree."""
    official = Official(schema["$defs"])
    theirs, mine = official.objects(), our_objects()
    found = [f"{name}: missing" for name in theirs if name not in mine]
    found += [f"{name}: not in the schema" for name in mine if name not in theirs]
    for name in theirs.keys() & mine.keys():
        for label, properties in mine[name].items():
            found += _compared(label, theirs[name], properties)
    found += _compared_methods(official.methods())
    found += _compared_defaults(schema["$defs"])
    found += _compared_needs(schema["$defs"])
    return sorted(found)


def _compared(name: str, theirs: Properties, mine: Properties) -> Iterable[str]:
    for key in sorted(theirs.keys() | mine.keys()):
        if key not in mine:
            yield f"{name}.{key}: missing"
        elif key not in theirs:
            yield f"{name}.{key}: not in the schema"
        elif theirs[key] != mine[key]:
            yield f"{name}.{key}: the schema says {theirs[key]}, we say {mine[key]}"


# --- the schema ---------------------------------------------------------------------------------


class Official:
    """The definitions of a JSON schema of ACP."""

    def __init__(self, defs: Json) -> None:
        self._defs = defs
        self._folded: set[str] = set()

    def methods(self) -> dict[str, str]:
        """`side method params|result` to the name of the type."""
        return {
            f"{node['x-side']} {node['x-method']} "
            f"{'result' if name.endswith('Response') else 'params'}": name
            for name, node in self._defs.items()
            if "x-method" in node
        }

    def objects(self) -> dict[str, Properties]:
        """Every object we need a Struct for."""
        found: dict[str, Properties] = {}
        bases: dict[str, Properties] = {}
        for name, node in self._defs.items():
            if node.get("type") != "object" or "x-docs-ignore" in node:
                continue
            if "discriminator" in node:
                base = self._own(node)
                for branch in node["oneOf"]:
                    bases[_target(branch["allOf"][0])] = base
            else:
                found[name] = self._flat(node)
        for name in self._folded:
            found.pop(name, None)
        return {name: {**bases.get(name, {}), **own} for name, own in found.items()} | {"{}": {}}

    def _own(self, node: Json) -> Properties:
        required = node.get("required", [])
        return {
            name: Property(
                self.type_of(value),
                name in required,
                frozenset(MARKS[key] for key in value if key in MARKS),
            )
            for name, value in node.get("properties", {}).items()
        }

    def _flat(self, node: Json) -> Properties:
        """The properties of an object, those of its branches folded in."""
        flat = self._own(node)
        for part in node.get("allOf", []):
            self._folded.add(_target(part))
            flat |= self._flat(self._defs[_target(part)])
        branches = [self._flat(branch) for branch in node.get("anyOf", [])]
        for name in {name for branch in branches for name in branch}:
            flat[name] = _folded([branch.get(name) for branch in branches])
        return flat

    def type_of(self, node: Json) -> str:
        if "$ref" in node:
            return self._named(_target(node))
        if "allOf" in node:
            return self.type_of(node["allOf"][0])
        if "const" in node:
            return f"enum({node['const']})"
        if "anyOf" in node:
            return _united(self.type_of(option) for option in node["anyOf"])
        kinds = node.get("type", [])
        return _united(
            self._plain(kind, node) for kind in ([kinds] if isinstance(kinds, str) else kinds)
        )

    def _plain(self, kind: str, node: Json) -> str:
        match kind:
            case "array":
                return f"[{self.type_of(node['items'])}]"
            case "object":
                values = node.get("additionalProperties", True)
                return "{any}" if values is True else f"{{{self.type_of(values)}}}"
            case "integer" | "number":
                return str(node["format"])
            case "string" if "minLength" in node:
                return f"string>={node['minLength']}"
        return kind

    def _named(self, name: str) -> str:
        node = self._defs[name]
        branches: list[Json] = node.get("oneOf", node.get("anyOf", []))
        if node.get("type") == "object" and "discriminator" not in node:
            return name
        if not branches:
            return self.type_of(node)
        if any("const" in branch for branch in branches):
            closed = all("const" in branch for branch in branches)
            return _enum([branch["const"] for branch in branches if "const" in branch], closed)
        if any("properties" in branch or "allOf" in branch for branch in branches):
            return self._union(branches, opened=name in OPENED)
        texts = [self.type_of(branch) for branch in branches]
        return " else ".join(texts) if all(text[0] == "[" for text in texts) else _united(texts)

    def _union(self, branches: list[Json], *, opened: bool) -> str:
        tags: dict[str, str] = {}
        untagged: list[str] = []
        tag_field = ""
        for branch in branches:
            consts = {
                k: v["const"] for k, v in branch.get("properties", {}).items() if "const" in v
            }
            target = _target(branch["allOf"][0]) if "allOf" in branch else "{}"
            if consts:
                ((tag_field, tag),) = consts.items()
                tags[tag] = target
            elif "not" in branch:
                opened = True
            else:
                untagged.append(target)
        return _union_text(tag_field, tags, untagged, opened=opened)


def _target(node: Json) -> str:
    return str(node["$ref"]).removeprefix("#/$defs/")


def _folded(seen: list[Property | None]) -> Property:
    """Merge the versions of a property in the branches of an object."""
    there = [one for one in seen if one is not None]
    consts = {one.type for one in there if one.type.startswith("enum(")}
    kinds = {one.type for one in there} - consts
    if consts:  # a branch that says nothing of it, or "string", lets anything through
        values = [text.removeprefix("enum(").removesuffix(")") for text in consts]
        kinds = {_enum(values, closed=len(there) == len(seen) and not kinds)}
    return Property(
        _united(kinds),
        required=len(there) == len(seen) and all(one.required for one in there),
        marks=frozenset().union(*(one.marks for one in there)),
    )


# --- our types ----------------------------------------------------------------------------------


@cache
def our_structs() -> list[type[Struct]]:
    """Every type that goes over the wire, from every module of the package."""
    names = [f"{ours.__name__}.{info.name}" for info in pkgutil.iter_modules(ours.__path__)]
    return [
        kind
        for name in names
        for kind in vars(import_module(name)).values()
        if isinstance(kind, type)
        and issubclass(kind, Shape)
        and kind.__module__ == name
        and kind not in BASES
        and kind not in UNSTABLE
    ]


@cache  # hundreds of schemas are compared with the same types
def fields_of(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    return fields(kind)


@cache
def hints_of(kind: type[Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def our_objects() -> dict[str, dict[str, Properties]]:
    """By the schema's name, each Struct of ours for it, by our name."""
    found: dict[str, dict[str, Properties]] = {}
    for kind in our_structs():
        hints = hints_of(kind)
        properties = {
            info.encode_name: Property(
                our_type(hints[info.name]), info.required, _our_marks(hints[info.name])
            )
            for info in fields_of(kind)
        }
        found.setdefault(_schema_name(kind), {})[kind.__name__] = properties
    return found


def _schema_name(kind: type[Struct]) -> str:
    return OTHER_NAMES.get(kind.__name__, kind.__name__)


def _our_marks(hint: object) -> frozenset[str]:
    lenience = lenience_of(hint)
    return frozenset(mark for mark in MARKS.values() if getattr(lenience, mark))


def our_type(hint: object) -> str:
    marks: list[object] = []
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
    for mark in marks:
        if isinstance(mark, KnownValues):
            return _enum(list(mark.values), closed=False)
        if isinstance(mark, Otherwise):
            return _our_union(hint, mark)
        if isinstance(mark, Meta):
            return _bounded(mark)
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _enum(list(options), closed=True)
    if origin in (Union, UnionType):
        if all(isinstance(one, type) and issubclass(one, Struct) for one in options):
            return _our_union(hint, Otherwise())
        return _united(our_type(option) for option in options if option is not UnsetType)
    if origin is tuple:
        return f"[{our_type(options[0])}]"
    if origin is dict:
        return f"{{{our_type(options[1])}}}"
    assert isinstance(hint, type), hint
    if issubclass(hint, Struct):
        return _schema_name(hint)
    plain = {str: "string", bool: "boolean", int: "int64", float: "double"}
    return {**plain, NoneType: "null", object: "any"}[hint]


def _bounded(meta: Meta) -> str:
    if meta.min_length is not None:
        return f"string>={meta.min_length}"
    bounds = {65535: "uint16", 2**32 - 1: "uint32", None: "uint64", 2**63 - 1: "int64"}
    return bounds[meta.le]  # type: ignore[index]


def _our_union(hint: object, otherwise: Otherwise) -> str:
    kinds: list[Any] = [kind for kind in get_args(hint) or [hint] if kind is not Nothing]
    if get_origin(hint) is tuple:
        return f"{our_type(hint)} else {our_type(otherwise.untagged)}"
    configs = [(kind.__struct_config__, _schema_name(kind)) for kind in kinds]
    untagged = [name for config, name in configs if config.tag is None]
    if otherwise.untagged is not None:
        untagged.append(our_type(otherwise.untagged))
    return _union_text(
        next((str(config.tag_field) for config, _ in configs if config.tag_field), ""),
        {str(config.tag): name for config, name in configs if config.tag is not None},
        untagged,
        opened=otherwise.unknown is not None,
    )


# --- words for both -----------------------------------------------------------------------------


def _enum(values: list[Any], closed: bool) -> str:
    return f"enum({'|'.join([*sorted(map(str, values)), *([] if closed else ['...'])])})"


def _united(texts: Iterable[str]) -> str:
    options = set(texts)
    if options == {"null"}:
        return "null"
    rest = sorted(options - {"null"})
    return ("|".join(rest) or "any") + ("?" if "null" in options else "")


def _union_text(tag: str, tags: dict[str, str], untagged: list[str], *, opened: bool) -> str:
    if not tags:
        return " else ".join(untagged)
    text = f"{tag}: " + "|".join(f"{key}={value}" for key, value in sorted(tags.items()))
    text += "".join(f"; else {name}" for name in untagged)
    return f"<{text}{'; other' if opened else ''}>"


# --- types that are not properties


def _compared_methods(theirs: dict[str, str]) -> Iterable[str]:
    sides = {
        "agent": ours.AGENT_METHODS,
        "client": ours.CLIENT_METHODS,
        "protocol": ours.PROTOCOL_METHODS,
    }
    mine: dict[str, str] = {}
    for side, table in sides.items():
        for name, method in table.items():
            mine[f"{side} {name} params"] = method.params.__name__
            if isinstance(method, ours.Method):
                mine[f"{side} {name} result"] = method.result.__name__
    for key in sorted(theirs.keys() | mine.keys()):
        if theirs.get(key) != mine.get(key):
            yield f"{key}: the schema has {theirs.get(key)}, we have {mine.get(key)}"


def _compared_defaults(defs: Json) -> Iterable[str]:
    for kind in our_structs():
        hints = hints_of(kind)
        properties = defs.get(_schema_name(kind), {}).get("properties", {})
        for info in fields_of(kind):
            default = properties.get(info.encode_name, {}).get("default", NO_DEFAULT)
            if default is not NO_DEFAULT:
                made = (
                    info.default
                    if info.default is not msgspec.NODEFAULT
                    else info.default_factory()
                )
                if msgspec.convert(default, hints[info.name]) != made:
                    yield f"{kind.__name__}.{info.name}: the schema's default is {default}"


def _compared_needs(defs: Json) -> Iterable[str]:
    for mode, needed in NEEDS.items():
        required = defs[f"Elicitation{mode.title()}Mode"]["required"]
        camel = {info.name: info.encode_name for info in fields_of(ours.CreateElicitationRequest)}
        if {camel[name] for name in needed} != set(required):
            yield f"elicitation mode {mode}: the schema requires {required}"
