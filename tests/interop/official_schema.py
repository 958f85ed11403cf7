"""The JSON Schema of ACP version 1, as its authors publish it, against recorded lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.interop.wire import Json, Line
from tests.npm import installed

PACKAGE = "@agentclientprotocol/sdk@2.4.0"


def sdk_folder() -> str:
    """The folder of the TypeScript SDK, with the schema in it."""
    return str(installed(PACKAGE) / "node_modules" / "@agentclientprotocol" / "sdk")


def violations(lines: Iterable[Line], sender: str) -> list[str]:
    """Violations of the schema by `sender` ("client" or "agent") in `lines`, each listed once.

    Methods with a leading underscore are free (spec v1, extensibility).
    """
    found: dict[str, None] = {}
    open_requests: dict[tuple[str, str], str] = {}
    for line in lines:
        message = line.message()
        if message is None:
            wrong = ["not a JSON object"]
        else:
            wrong = list(_wrong(message, line.by, open_requests))
        if line.by == sender:
            found.update((f"{text} in {line.text[:300]}", None) for text in wrong)
    return list(found)


def _wrong(message: Json, by: str, open_requests: dict[tuple[str, str], str]) -> Iterator[str]:
    other = "agent" if by == "client" else "client"
    if message.get("jsonrpc") != "2.0":
        yield "no jsonrpc 2.0"
    if "method" in message:
        method = message["method"]
        if "id" in message:
            # With its type: 1 and "1" are two ids.
            open_requests[by, json.dumps(message["id"])] = method
        yield from _wrong_params(method, message, other)
    elif ("result" in message) == ("error" in message):
        yield "neither result nor error, or both"
    else:
        request = (other, json.dumps(message.get("id")))
        answered = open_requests.pop(request, None)
        if answered is None:
            yield "an answer to no request"
        elif "error" in message:
            yield from _against("Error", message["error"])
        else:
            # A response belongs to the side that gives it.
            name = definitions().get((by, answered, "Response"))
            yield from () if name is None else _against(name, message["result"])


def _wrong_params(method: str, message: Json, side: str) -> Iterator[str]:
    kind = "Request" if "id" in message else "Notification"
    name = definitions().get((side, method, kind)) or definitions().get(("protocol", method, kind))
    if name is not None:
        yield from _against(name, message.get("params"))
    elif not method.startswith("_"):
        yield f"unknown {kind.lower()} {method}"


def _against(name: str, value: object) -> Iterator[str]:
    for error in _validator(name).iter_errors(value):
        nearest = _nearest(error)
        path = "/".join(map(str, nearest.absolute_path))
        yield f"{name} {path}: {nearest.message[:200]}"


def _nearest(error: ValidationError) -> ValidationError:
    """Of the branches of an anyOf or oneOf, the one that came furthest."""
    while error.context:
        error = max(error.context, key=lambda branch: len(branch.absolute_path))
    return error


@cache
def _schema() -> Json:
    with open(f"{sdk_folder()}/schema/v1/schema.json", encoding="utf-8") as file:
        schema: Json = json.load(file)
    return schema


@cache
def definitions() -> dict[tuple[str, str, str], str]:
    """(side that answers, method, "Request" | "Response" | "Notification") to a definition."""
    found = {}
    for name, definition in _schema()["$defs"].items():
        if method := definition.get("x-method"):
            kind = next(k for k in ("Request", "Response", "Notification") if name.endswith(k))
            found[definition["x-side"], method, kind] = name
    return found


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = _schema()
    return Draft202012Validator(
        {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{name}"}
    )
