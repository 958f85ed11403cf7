"""An agent of a few lines, on the standard library: what a prompt says is what it sends.

`flood N`: N updates as fast as the pipe takes them. `single N`: the same, each in a write of its
own. The last one ends in "!". `paced N`: one each millisecond, its text beginning with the time it
was sent (monotonic, ns). `ask N`: N questions, one behind the answer to the other; what is asked is
the time it was sent (of the clock on the wall, ms).
"""

import json
import os
import sys
import time

SESSION = f"scripted-{os.getpid()}"
UPDATE = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%b","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":'
    b'"%d the quick brown fox jumps over the lazy dog, 0123456%b"}}}}\n'
)
LAST = UPDATE % (SESSION.encode(), 0, b"!")
AT_ONCE = 256
ANSWERS = {
    "initialize": {
        "protocolVersion": 1,
        "agentCapabilities": {},
        "agentInfo": {"name": "scripted", "version": "1"},
    },
    "session/new": {"sessionId": SESSION},
}


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = ANSWERS.get(message["method"], {"stopReason": "end_turn"})
        if message["method"] == "session/prompt":
            how, number, *_ = message["params"]["prompt"][0]["text"].split()
            WAYS[how](int(number))
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")


def flood(number: int) -> None:
    """Updates as fast as the pipe takes them."""
    update = UPDATE % (SESSION.encode(), 0, b"")
    for sent in range(1, number, AT_ONCE):
        write(update * min(AT_ONCE, number - sent))
    if number:
        write(LAST)


def single(number: int) -> None:
    """The same, each in a write of its own."""
    update = UPDATE % (SESSION.encode(), 0, b"")
    for _ in range(1, number):
        write(update)
    write(LAST)


def paced(number: int) -> None:
    """One each millisecond, with its time."""
    session = SESSION.encode()
    for _ in range(number):
        time.sleep(0.001)
        write(UPDATE % (session, time.monotonic_ns(), b""))


def ask(number: int) -> None:
    """Questions, each with its time."""
    options = [{"optionId": "go", "name": "Go on", "kind": "allow_once"}]
    for asked in range(number):
        call = {"toolCallId": f"call-{asked}", "title": str(time.time_ns() // 1_000_000)}
        params = {"sessionId": SESSION, "toolCall": call, "options": options}
        request = {"id": asked, "method": "session/request_permission", "params": params}
        write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
        sys.stdin.buffer.readline()


def write(data: bytes) -> None:
    """All of it, however little the pipe takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


WAYS = {"flood": flood, "single": single, "paced": paced, "ask": ask}

if __name__ == "__main__":
    main()
