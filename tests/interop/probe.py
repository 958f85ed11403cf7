"""The same questions to any agent, and its behaviour, in words that can be compared."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from pathlib import Path

from tests.editor import Refused
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text, timeline
from tests.interop.wire import Json

NOWHERE = "00000000-0000-4000-8000-000000000000"
"""The id of no session."""

Report = dict[str, object]


async def probe(client: Client, work: Path, tools: Sequence[str]) -> Report:
    """Talk to a fresh agent; `tools` are those that the model can make it use.

    The report leaves out everything that depends on the time, on ids and on folders.
    """
    report: Report = {}
    hello = await client.call("initialize", introduction())
    for name in ("protocolVersion", "agentInfo", "agentCapabilities", "authMethods"):
        report[name] = hello.get(name)
    report["unknown method"] = await _outcome(client.call("_x/unknown", {}))
    opened = await client.call("session/new", opening(work))
    session_id: str = opened["sessionId"]
    report["new"] = _shape(opened)
    (work / "in.txt").write_text("one\ntwo\n", encoding="utf-8")
    for tool in tools:
        file = work / ("out.txt" if tool == "write" else "in.txt")
        order = f"USE_TOOL:{tool} FILE={file} CMD=pwd"
        report[f"turn with {tool}"] = await _turn(client, session_id, order)
    report["asked"] = list(client.asked)
    report["cancelled turn"] = await _cancelled(client, session_id)
    report["turn after that"] = await _turn(client, session_id, "still there?")
    report |= await _settings(client, session_id, opened)
    # The last turn: codex may lose a prompt that comes right after a turn's error.
    report["turn with a model error"] = await _turn(client, session_id, "BADREQ now")
    report |= await _mistakes(client, work)
    listed = await _outcome(client.call("session/list", {"cwd": str(work)}))
    report["list"] = len(listed["sessions"]) if isinstance(listed, dict) else listed
    report["notifications"] = sorted(set(client.told))
    return report


async def _turn(client: Client, session_id: str, said: str) -> object:
    before = len(client.updates(session_id))
    result = await _outcome(client.call("session/prompt", prompt(session_id, said)))
    happened = timeline(client.updates(session_id)[before:])
    kinds = [item["sessionUpdate"] for item in happened]
    tools = [(item.get("kind"), item.get("status")) for item in happened if "toolCallId" in item]
    return {"result": _shape(result), "timeline": kinds, "tools": tools}


async def _cancelled(client: Client, session_id: str) -> object:
    before = len(client.updates(session_id))
    turn = client.begin("session/prompt", prompt(session_id, "SLOW please"))
    await client.until(lambda: "tick1 " in text(client.updates(session_id)[before:]))
    client.tell("session/cancel", {"sessionId": session_id})
    return _shape(await _outcome(client.answer(turn)))


async def _settings(client: Client, session_id: str, opened: Json) -> Report:
    here = {"sessionId": session_id}
    report: Report = {}
    unknown = {**here, "modeId": "no such mode"}
    report["unknown mode"] = _shape(await _outcome(client.call("session/set_mode", unknown)))
    unknown = {**here, "configId": "no such option", "value": "x"}
    set_option = "session/set_config_option"
    report["unknown option"] = _shape(await _outcome(client.call(set_option, unknown)))
    for option in opened.get("configOptions") or []:
        known = {**here, "configId": option["id"], "value": option["currentValue"]}
        answer = await _outcome(client.call(set_option, known))
        report[f"option {option['id']}"] = _shape(answer)
    return report


async def _mistakes(client: Client, work: Path) -> Report:
    relative = {"cwd": "somewhere", "mcpServers": []}
    made = await _outcome(client.call("session/new", relative))
    calls = {
        "prompt to no session": client.call("session/prompt", prompt(NOWHERE, "hello")),
        "load of no session": client.call("session/load", opening(work, NOWHERE)),
        "resume of no session": client.call("session/resume", opening(work, NOWHERE)),
    }
    return {
        "relative cwd": "made a session" if isinstance(made, dict) else made,
        **{name: _shape(await _outcome(call)) for name, call in calls.items()},
    }


async def _outcome(call: Awaitable[Json | None]) -> Json | str | None:
    """The result, which may be null where there has to be an object; the error in two words."""
    try:
        return await call
    except Refused as exc:
        return f"error {exc.code}"


def _shape(result: Json | str | None) -> object:
    """A result without values that differ each time."""
    if not isinstance(result, dict):
        return result
    options = result.get("configOptions") or []
    attributes = {option["id"]: option["currentValue"] for option in options}
    named = {"stopReason": result["stopReason"]} if "stopReason" in result else {}
    return {"members": sorted(result), **named, **({"options": attributes} if attributes else {})}


def differences(without: Report, behind: Report) -> Report:
    """The differences `behind` acphold: path to both values; None where a side has no value."""
    found: Report = {}
    for name in dict.fromkeys((*without, *behind)):
        was, now = without.get(name), behind.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            inner = differences(was, now)
            found |= {f"{name}.{path}": pair for path, pair in inner.items()}
        elif was != now:
            found[name] = (was, now)
    return found
