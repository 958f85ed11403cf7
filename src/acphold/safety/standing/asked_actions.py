"""The action that a permission request asks for: a command to run, or unclear.

Read from the agent's own structured input, by a table for each agent: never from a title, a kind,
or the options' names. Titles and names of tools can only make it unclear. A field that is not in
the table makes it unclear, too: it may change the meaning of the others. Where two fields say the
same thing, or the request and the call that was reported before it, they have to agree.

    agent      command                          its tool is known by
    ---------  -------------------------------  ---------------------------------------------
    claude     `command`                        `name` of the call
    codex      `[shell, "-lc", text]`, `cwd`    `call_id` in the input
               `command`, `cwd`                 the fields
    copilot    `command` and `commands`         the call before, which has `command`, too
    cline      `commands`                       the beginning of the title
    opencode   `command`, `cwd` before          the title, which is the command
    goose      `command`                        `_meta.goose.toolCall` of the call before
    qwen       `command`, `is_background`       `_meta.toolName`
    demo       `command`                        the field: it has one tool for each

Gemini and old releases of Qwen and Claude send no input, or no tool with it. Sources: recorded
questions of the agents, `tests/standing/questions.jsonl`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

PERMISSION: Final = "session/request_permission"

Json = Mapping[str, Any]
"""A decoded object; values are what JSON has."""


class RunAction(Struct, frozen=True):
    """Command lines to run, one after the other; `cwd` is their folder, None if nobody says.

    With `stays` the agent's shell is still there for its next command, wherever a `cd` has led.
    """

    lines: tuple[str, ...]
    cwd: str | None = None
    stays: bool = False


class Unclear(Struct, frozen=True):
    """Anything else; `why` is for people."""

    why: str


Action = RunAction | Unclear


def read_action(agent: str, method: str, params: bytes, earlier: Json) -> Action:
    """Return what the request `method` with `params` asks for.

    `agent` is a name of `known_agents`. `earlier` has the fields of the call as they were reported
    before, decoded; empty if it was not mentioned.
    """
    if method != PERMISSION:
        return Unclear("it is a form or a link, not a request for permission")
    if (reader := READERS.get(agent)) is None:
        return Unclear("it is not known how this agent describes its commands")
    call = _object(_object(_decode(params)).get("toolCall"))
    given = call.get("rawInput")
    if not isinstance(given, dict) or not given:
        return Unclear("the agent did not describe its action in a form that can be checked")
    action = reader(call, given, earlier, _object(earlier.get("rawInput")))
    if isinstance(action, RunAction) and "\0" in (action.cwd or ""):
        return _UNEXPECTED_FIELDS
    return action


def decode_call(fields: Mapping[str, bytes]) -> dict[str, object]:
    """Return those fields of a call, raw by their names, that say what it does, decoded."""
    names = ("name", "title", "rawInput", "content", "_meta")
    return {name: _decode(fields[name]) for name in names if name in fields}


def allow_once(params: bytes) -> bytes | None:
    """Return the id, as JSON, of the only option that allows once; None if there is not one, or if
    another option has the same id."""
    options = _objects(_object(_decode(params)).get("options"))
    found = [option.get("optionId") for option in options if option.get("kind") == "allow_once"]
    if len(found) != 1 or not isinstance(found[0], str):
        return None
    if [option.get("optionId") for option in options].count(found[0]) > 1:
        return None
    return msgspec.json.encode(found[0])


def ran_lines(call: Json) -> Sequence[str]:
    """Return the command lines in the fields of a call, whatever the agent."""
    given = _object(call.get("rawInput"))
    lines: list[str] = []
    for value in (given.get("command"), given.get("commands")):
        words = value if isinstance(value, list) else [value]
        lines += [word for word in words if isinstance(word, str)]
    return lines


def differs(action: RunAction, call: Json, folder: str) -> bool:
    """True if the fields of a call, reported later, do not fit the `action` that was allowed; the
    folder in them may be named from `folder`."""
    given = _object(call.get("rawInput"))
    command, cwd = given.get("command"), given.get("cwd")
    if isinstance(command, list) and len(command) == 3:
        command = command[2]  # a shell, its option, and the text
    reported = [given.get("commands"), [command] if isinstance(command, str) else command]
    if any(lines is not None and lines != list(action.lines) for lines in reported):
        return True
    if not isinstance(cwd, str) or action.cwd is None:
        return False
    return os.path.normpath(os.path.join(folder, cwd)) != os.path.normpath(action.cwd)


def _decode(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "unreadable"


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return [_object(part) for part in value] if isinstance(value, list) else []


# -- the table ------------------------------------------------------------------------------------

_UNEXPECTED_FIELDS: Final = Unclear("the agent sent unknown fields, or omitted some")
_OTHER_TOOL: Final = Unclear("the tool is not the agent's shell")
_DIFFERS: Final = Unclear("the request does not match the tool call before it")
_BACKGROUND: Final = Unclear("the command would run in the background")


def _has_only(given: Json, needed: str, known: str = "") -> bool:
    """True if `given` has all of the `needed` keys, and besides no others than the `known`."""
    names = set(needed.split())
    return names <= given.keys() <= names | set(known.split())


def _run_action(given: Json, before: Json, cwd: object = None, *, stays: bool = False) -> Action:
    """Run `given["command"]`, unless the call before has another one."""
    text = given["command"]
    if not isinstance(text, str) or not (cwd is None or isinstance(cwd, str)):
        return _UNEXPECTED_FIELDS
    return RunAction((text,), cwd, stays) if before.get("command", text) == text else _DIFFERS


def _claude(call: Json, given: Json, earlier: Json, before: Json) -> Action:
    if any(
        "parentToolUseId" in _object(_object(about.get("_meta")).get("claudeCode"))
        for about in (call, earlier)
    ):
        return Unclear("the request comes from a sub-agent")
    tool = call.get("name")
    if tool != "Bash":
        return _OTHER_TOOL
    if not _has_only(given, "command", "description timeout run_in_background"):
        return _UNEXPECTED_FIELDS
    if given.get("run_in_background"):
        return _BACKGROUND
    return _run_action(given, before, stays=True)


_CODEX: Final = "turn_id started_at_ms parsed_cmd proposed_execpolicy_amendment available_decisions"
_SHELLS: Final = frozenset(
    f"{folder}{name}"
    for folder in ("", "/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/")
    for name in ("bash", "zsh", "sh", "dash", "fish")
)


def _codex(_: Json, given: Json, __: Json, before: Json) -> Action:
    if _has_only(given, "command cwd") and isinstance(given["command"], str):
        return _codex_text(given["command"], given["cwd"], before.get("command"))
    if _has_only(given, "call_id command cwd", _CODEX):
        match given["command"]:
            case [str() as shell, "-c" | "-lc", str() as text] if shell in _SHELLS:
                if before.get("command", given["command"]) != given["command"]:
                    return _DIFFERS
                cwd = given["cwd"]
                return RunAction((text,), cwd) if isinstance(cwd, str) else _UNEXPECTED_FIELDS
        return Unclear("the command is for a shell that is not known")
    return _OTHER_TOOL if "changes" in given else _UNEXPECTED_FIELDS


def _codex_text(text: str, cwd: object, before: object) -> Action:
    """Return the run of a text for the shell: codex-acp takes the shell from around it, and quotes,
    if there are some at both ends. The call before has it with the shell, or as the screen has it.
    """
    if not isinstance(cwd, str):
        return _UNEXPECTED_FIELDS
    if "'\"" in text or "\"'" in text:  # perhaps a seam of what was one quoted text
        return Unclear("the agent may have sent the command without its outer quotes")
    if before not in (None, text):
        try:
            words = shlex.split(str(before))
        except ValueError:
            return _DIFFERS
        match words:
            case [shell, "-c" | "-lc", inner] if shell in _SHELLS and inner == text:
                pass
            case _:
                return _DIFFERS
    return RunAction((text,), cwd)


def _copilot(_: Json, given: Json, __: Json, before: Json) -> Action:
    if _has_only(given, "command commands"):
        if given["commands"] != [given["command"]]:
            return Unclear("the agent sent two different commands")
        if before.get("mode") != "sync" or before.get("command") != given["command"]:
            return _DIFFERS
        return _run_action(given, before, stays=True)
    return _OTHER_TOOL if "fileName" in given else _UNEXPECTED_FIELDS


def _cline(call: Json, given: Json, _: Json, before: Json) -> Action:
    lines = given.get("commands")
    if not str(call.get("title")).startswith("run_commands: "):
        return _OTHER_TOOL
    if not _has_only(given, "commands") or not isinstance(lines, list) or not lines:
        return _UNEXPECTED_FIELDS
    if before.get("commands", lines) != lines:
        return _DIFFERS
    if not all(isinstance(line, str) for line in lines):
        return _UNEXPECTED_FIELDS
    return RunAction(tuple(lines))


def _opencode(call: Json, given: Json, _: Json, before: Json) -> Action:
    if _has_only(given, "command", "description"):
        if call.get("title") not in ("bash", given["command"]):
            return _OTHER_TOOL
        if not _has_only(before, "", "command cwd description"):
            return _UNEXPECTED_FIELDS
        return _run_action(given, before, before.get("cwd"))
    return _OTHER_TOOL if "filepath" in given else _UNEXPECTED_FIELDS


def _goose(_: Json, given: Json, earlier: Json, before: Json) -> Action:
    tool = _object(_object(_object(earlier.get("_meta")).get("goose")).get("toolCall"))
    if tool.get("extensionName") != "developer":
        return _OTHER_TOOL
    if tool.get("toolName") == "shell" and _has_only(given, "command"):
        return _run_action(given, before)
    return _OTHER_TOOL


def _qwen(call: Json, given: Json, _: Json, before: Json) -> Action:
    tool = _object(call.get("_meta")).get("toolName")
    if tool != "run_shell_command":
        return _OTHER_TOOL
    if not _has_only(given, "command", "is_background description"):
        return _UNEXPECTED_FIELDS
    return _BACKGROUND if given.get("is_background") else _run_action(given, before)


def _demo(_: Json, given: Json, __: Json, before: Json) -> Action:
    return _run_action(given, before) if _has_only(given, "command") else _OTHER_TOOL


READERS: Final[Mapping[str, Callable[[Json, Json, Json, Json], Action]]] = {
    "claude": _claude,
    "codex": _codex,
    "copilot": _copilot,
    "cline": _cline,
    "opencode": _opencode,
    "goose": _goose,
    "qwen": _qwen,
    "demo": _demo,
}
"""By the names of `known_agents`: each gets the call, its input, the fields that were reported
before, and the input among those."""
