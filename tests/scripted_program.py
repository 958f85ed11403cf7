"""An agent that obeys its prompts: a program, which tests run behind `acphold wrap`.

    python scripted_agent.py '{"log": "/tmp/log.jsonl", …}'

Options (a JSON object):
    log                 file that gets every message it receives, one a line
    store               file that keeps its sessions over restarts (for list, load, resume)
    capabilities        its agentCapabilities
    info                its agentInfo; null for none
    meta                `_meta` of its answer to `initialize`
    opened              merged into the answer of session/new, load and resume
    ids                 "counter": 0, 1, … in every process; else unique ones
    replies             method to a list of results or {"error": …}, used up one after the other;
                        the last one stays
    before              method to a list of lines printed before its answer; "$ID" is the session
    after               the same, after the answer
    silent              methods it never answers
    refuses             method to [a file, the error object that it answers while that exists; null
                        for no answer]
    sign_in             a file: until it exists, sessions and prompts need a sign-in (-32000);
                        `authenticate` makes it, and so does this program, run with `--login`, which
                        needs LOGIN=1 and waits for a line; `logout` removes it
    steps               the steps of every prompt that has none
    echo                true: sends every prompt back as it came
    initialize          "never", "exit", "garbage", "flood", "version 2", or the line to answer
    deaf                true: goes on when stdin ends and when SIGTERM comes
    exit_on             method to a file: exits with status 9 when it is called and the file
                        exists, which it removes
    reads               the number of messages after which it reads no more
    one thread          true: reads nothing while it works at a prompt

A prompt whose first text block is a JSON array is a list of steps, each an object with one key:
    say, think          one chunk of text
    update              one update object
    line                a line as it is, "$ID" replaced by the session
    ask                 [method, params]: a request to the client; the answer is sent as text
    ask many            [count, method, params]: so many requests, without a wait in between; the
                        number of results is sent as text
    tell                [method, params]
    until               "cancel": wait for session/cancel; "cancel ignored": never ends;
                        a path: wait until this file exists
    spawn               a shell command, left running
    spawn loud          the same, with this program's stdout
    flood               [count, size]: so many chunks of so many bytes, each with its number
    flood of            [text, count]: so many chunks of it; null: until session/cancel
    paced               [count, seconds]: so many chunks, "#0 ", "#1 " and so on, so many
                        seconds apart
    say at once         [text, count]: one chunk that has it so many times
    kill                a signal number, sent to itself
    close               a descriptor, closed
    touch               a path: make this file
    stderr              text for stderr
    exit                an exit status, at once
    stop                the stopReason to answer with
    answer              the whole result to answer with
    error               the error object to answer with
    later               one update object, sent after the answer
Any other prompt is answered by `heard: …` with all its text.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from _json import encode_basestring_ascii, make_encoder, make_scanner
from _thread import allocate_lock, start_new_thread

# A thousand of these are started: nothing is imported that few need. `json` and `threading` take
# as long as all of Python.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Json:
    """What `json` itself gives to its scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


SCANNED = make_scanner(Json)  # type: ignore[arg-type]
NONE: Any = None
ENCODED = make_encoder(None, NONE, encode_basestring_ascii, None, ": ", ", ", False, False, True)


def loads(text: str) -> Any:
    return SCANNED(text.strip(), 0)[0]


def dumps(value: object) -> str:
    return "".join(ENCODED(value, 0))


class Event:
    """As that of `threading`; one thread sets it."""

    def __init__(self) -> None:
        self.is_set = False
        self._gate = allocate_lock()
        self._gate.acquire()

    def set(self) -> None:
        if not self.is_set:
            self.is_set = True
            self._gate.release()

    def wait(self) -> None:
        with self._gate:
            pass


GATED = ("session/new", "session/load", "session/resume", "session/prompt")
"""Methods that want a sign-in first, where `sign_in` says so; or those that `gated` names."""

OPTIONS: dict[str, Any] = loads(sys.argv[1]) if len(sys.argv) > 1 else {}
WRITE = allocate_lock()
MEMORY = allocate_lock()
ANSWERED: dict[int, Event] = {}
ANSWERS: dict[int, Any] = {}
CANCELLED: dict[str, Event] = {}
NUMBERS = itertools.count(1000)
COUNTER = itertools.count()
READ = itertools.count(1)


def send(**message: Any) -> None:
    line(dumps({"jsonrpc": "2.0", **message}))


def line(text: str) -> None:
    with WRITE:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def update(session_id: str, body: dict[str, Any]) -> None:
    send(method="session/update", params={"sessionId": session_id, "update": body})
    remember(session_id, body)


# -- its own memory, if it has one --------------------------------------------------------------


def stored() -> dict[str, Any]:
    path = OPTIONS.get("store")
    if path is None or not os.path.exists(path):
        return {}
    with open(path) as file:
        found: dict[str, Any] = loads(file.read())
    return found


def store(sessions: dict[str, Any]) -> None:
    """Write beside the file, then rename: a kill in the middle leaves the last whole file."""
    if path := OPTIONS.get("store"):
        half = f"{path}.{os.getpid()}"
        with open(half, "w") as file:
            file.write(dumps(sessions))
        os.replace(half, path)


def remember(session_id: str, body: dict[str, Any]) -> None:
    with MEMORY:  # turns of two sessions may run at once
        sessions = stored()
        if session_id in sessions:
            sessions[session_id]["updates"].append(body)
            store(sessions)


# -- methods ------------------------------------------------------------------------------------


def initialize(message: dict[str, Any]) -> None:
    how = OPTIONS.get("initialize", "")
    if how == "never":
        return
    if how == "exit":
        sys.stderr.write("no licence found\n")
        sys.stderr.flush()
        os._exit(7)
    if how.startswith("{"):
        line(how)
        return
    if how == "garbage":
        line("Welcome to the agent!")
        line('{"half": ')
        line("[1, 2]")
    if how == "flood":
        for _ in range(5000):
            sys.stderr.write("x" * 1023 + "\n")
        sys.stderr.flush()
    result = {
        "protocolVersion": 2 if how == "version 2" else 1,
        "agentCapabilities": OPTIONS.get("capabilities", {}),
        "agentInfo": OPTIONS.get("info", {"name": "scripted", "version": "1"}),
        "authMethods": OPTIONS.get("authMethods", []),
        **({"_meta": OPTIONS["meta"]} if "meta" in OPTIONS else {}),
    }
    send(id=message["id"], result=result)


def new_session(params: dict[str, Any]) -> dict[str, Any]:
    number = next(COUNTER)
    session_id = str(number) if OPTIONS.get("ids") == "counter" else f"own-{os.getpid()}-{number}"
    sessions = stored()
    sessions[session_id] = {"cwd": params["cwd"], "updates": []}
    store(sessions)
    return {"sessionId": session_id, **OPTIONS.get("opened", {})}


def open_session(params: dict[str, Any], *, replay: bool) -> dict[str, Any]:
    session = stored().get(params["sessionId"])
    if session is None:
        raise LookupError(params["sessionId"])
    if replay:
        for body in session["updates"]:
            send(
                method="session/update",
                params={"sessionId": params["sessionId"], "update": body},
            )
    return dict(OPTIONS.get("opened", {}))


def list_sessions(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "sessions": [
            {"sessionId": key, "cwd": value["cwd"], **value.get("info", {})}
            for key, value in stored().items()
        ]
    }


def delete_session(params: dict[str, Any]) -> dict[str, Any]:
    sessions = stored()
    sessions.pop(params["sessionId"], None)
    store(sessions)
    return {}


METHODS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "session/new": new_session,
    "session/load": lambda params: open_session(params, replay=True),
    "session/resume": lambda params: open_session(params, replay=False),
    "session/list": list_sessions,
    "session/delete": delete_session,
    "session/close": lambda params: {},
    "session/set_mode": lambda params: {},
    "session/set_config_option": lambda params: {},
    "authenticate": lambda params: {},
}


def answer(message: dict[str, Any]) -> None:
    method, params = message["method"], message.get("params", {})
    session_id = str(params.get("sessionId", ""))
    for text in OPTIONS.get("before", {}).get(method, ()):
        line(text.replace("$ID", session_id))
    replies = OPTIONS.get("replies", {}).get(method)
    if method in OPTIONS.get("silent", ()):
        return
    refused = OPTIONS.get("refuses", {}).get(method)
    if refused is not None and os.path.exists(refused[0]):
        if refused[1] is not None:
            send(id=message["id"], error=refused[1])
        return
    if replies:
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if isinstance(reply, dict) and "error" in reply:
            send(id=message["id"], error=reply["error"])
        else:
            send(id=message["id"], result=reply)
    elif method not in METHODS:
        send(id=message["id"], error={"code": -32601, "message": f"no method {method}"})
    else:
        try:
            result = METHODS[method](params)
        except LookupError:
            send(id=message["id"], error={"code": -32603, "message": "no such session"})
            return
        session_id = session_id or str(result.get("sessionId", ""))
        send(id=message["id"], result=result)
    for text in OPTIONS.get("after", {}).get(method, ()):
        line(text.replace("$ID", session_id))


# -- prompts ------------------------------------------------------------------------------------


def prompt(message: dict[str, Any]) -> None:
    params = message["params"]
    session_id = params["sessionId"]
    for block in params["prompt"]:
        said = {"sessionUpdate": "user_message_chunk", "content": block}
        if OPTIONS.get("echo"):
            update(session_id, said)
        else:
            remember(session_id, said)
    texts = [block.get("text", "") for block in params["prompt"]]
    own = [text for text in texts if text.startswith("[{")]
    heard = [{"say": "heard: " + dumps(params["prompt"])}]
    steps: list[dict[str, Any]] = loads(own[0]) if own else OPTIONS.get("steps", heard)
    reply: dict[str, Any] = {"result": {"stopReason": "end_turn"}}
    later: list[dict[str, Any]] = []
    for step in steps:
        (kind, value) = next(iter(step.items()))
        if kind == "stop":
            reply = {"result": {"stopReason": value}}
        elif kind in ("answer", "error"):
            reply = {"result" if kind == "answer" else "error": value}
        elif kind == "later":
            later.append(value)
        else:
            take(session_id, kind, value)
    send(id=message["id"], **reply)
    for body in later:
        update(session_id, body)


def take(session_id: str, kind: str, value: Any) -> None:
    if kind in ("say", "think"):
        name = "agent_message_chunk" if kind == "say" else "agent_thought_chunk"
        update(session_id, {"sessionUpdate": name, "content": {"type": "text", "text": value}})
    elif kind == "update":
        update(session_id, value)
    elif kind == "line":
        line(value.replace("$ID", session_id))
    elif kind == "ask":
        take(session_id, "say", "answer: " + dumps(ask(value[0], session_id, value[1])))
    elif kind == "ask many":
        take(session_id, "say", f"answered: {ask_many(session_id, *value)}")
    elif kind == "tell":
        send(method=value[0], params={"sessionId": session_id, **value[1]})
    elif kind == "until":
        wait_until(session_id, value)
    elif kind == "spawn":
        import subprocess

        subprocess.Popen(value, shell=True, stdout=subprocess.DEVNULL)
    elif kind == "spawn loud":
        import subprocess

        subprocess.Popen(value, shell=True)
    elif kind == "flood":
        flood(session_id, *value)
    elif kind == "paced":
        for number in range(value[0]):
            take(session_id, "say", f"#{number} ")
            time.sleep(value[1])
    elif kind == "say at once":
        take(session_id, "say", value[0] * value[1])
    elif kind == "flood of":
        cancelled = CANCELLED.setdefault(session_id, Event())
        for _ in itertools.count() if value[1] is None else range(value[1]):
            if cancelled.is_set:
                break
            take(session_id, "say", value[0])
    elif kind == "close":
        os.close(value)
        Event().wait()
    elif kind == "touch":
        touch(value)
    elif kind == "kill":
        os.kill(os.getpid(), value)
    elif kind == "stderr":
        sys.stderr.write(value + "\n")
        sys.stderr.flush()
    elif kind == "exit":
        os._exit(value)


def flood(session_id: str, count: int, size: int) -> None:
    content = {"type": "text", "text": "%08d" + "x" * size}
    body = {"sessionUpdate": "agent_message_chunk", "content": content}
    params = {"sessionId": session_id, "update": body}
    text = dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})
    for start in range(0, count, 100):
        line("\n".join([text % number for number in range(start, min(start + 100, count))]))


def wait_until(session_id: str, what: str) -> None:
    if what == "cancel":
        CANCELLED.setdefault(session_id, Event()).wait()
    elif what == "cancel ignored":
        Event().wait()
    else:
        while not os.path.exists(what):
            time.sleep(0.005)


def ask(method: str, session_id: str, params: dict[str, Any]) -> Any:
    number = next(NUMBERS)
    answered = ANSWERED[number] = Event()
    send(id=number, method=method, params={"sessionId": session_id, **params})
    answered.wait()
    return ANSWERS.pop(number)


def ask_many(session_id: str, count: int, method: str, params: dict[str, Any]) -> int:
    asked = {next(NUMBERS): Event() for _ in range(count)}
    ANSWERED.update(asked)
    for number in asked:
        send(id=number, method=method, params={"sessionId": session_id, **params})
    for answered in asked.values():
        answered.wait()
    return sum("error" not in ANSWERS.pop(number) for number in asked)


def settle(message: dict[str, Any]) -> None:
    ANSWERS[message["id"]] = message.get("result", {"error": message.get("error")})
    if answered := ANSWERED.pop(message["id"], None):
        answered.set()


def signs_in(message: dict[str, Any]) -> bool:
    """Handle a message about signing in; True if it was one."""
    method, path = message.get("method"), OPTIONS["sign_in"]
    if method in OPTIONS.get("gated", GATED) and not os.path.exists(path):
        send(id=message["id"], error={"code": -32000, "message": "Authentication required"})
    elif method == "authenticate":
        sys.stderr.write("open https://login.example/device\n")
        sys.stderr.flush()
        touch(path)
        send(id=message["id"], result={})
    elif method == "logout":
        os.unlink(path)
        send(id=message["id"], result={})
    else:
        return False
    return True


def touch(path: str) -> None:
    with open(path, "a"):
        pass


def log_in() -> None:
    """Sign in on a terminal."""
    sys.stdout.write("Your password, please:\n")
    sys.stdout.flush()
    word = sys.stdin.readline().strip()
    if os.environ.get("LOGIN") != "1" or word != "sesame":
        sys.exit(3)
    touch(OPTIONS["sign_in"])


def take_message(message: dict[str, Any]) -> None:
    method = message.get("method")
    if "sign_in" in OPTIONS and method not in OPTIONS.get("replies", {}) and signs_in(message):
        return
    path = OPTIONS.get("exit_on", {}).get(method)
    if path is not None and os.path.exists(path):
        os.unlink(path)
        os._exit(9)
    if method is None:
        settle(message)
    elif method == "initialize":
        initialize(message)
    elif method == "session/prompt":
        session_id = message["params"]["sessionId"]
        CANCELLED[session_id] = Event()
        if OPTIONS.get("one thread"):
            prompt(message)
        else:
            start_new_thread(prompt, (message,))
    elif method == "session/cancel":
        CANCELLED.setdefault(message["params"]["sessionId"], Event()).set()
    elif "id" in message:
        answer(message)


def main() -> None:
    if sys.argv[2:] == ["--login"]:
        log_in()
        return
    if OPTIONS.get("deaf"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for text in sys.stdin:
        if path := OPTIONS.get("log"):
            with open(path, "a") as file:
                file.write(text)
        take_message(loads(text))
        if next(READ) == OPTIONS.get("reads"):
            Event().wait()
    while OPTIONS.get("deaf"):
        Event().wait()
