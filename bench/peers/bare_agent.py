"""What no agent in Python that keeps its sessions can be quicker than: two commits for each prompt.

`python bare_agent.py DATABASE`. It has msgspec and SQLite as acphold has them, and nothing of
acphold: no loop, no check of what it reads, no second client. A prompt is committed as it is read;
its updates (`flood N`), with its end, before they are sent in one write.
"""

from __future__ import annotations

import os
import sqlite3
import sys

import msgspec

SESSION = "bare-1"
TEXT = "0 the quick brown fox jumps over the lazy dog, 0123456"
ANSWERS = {
    "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
    "session/new": {"sessionId": SESSION},
    "session/prompt": {"stopReason": "end_turn"},
}


def main() -> None:
    """Answer until stdin ends."""
    database = sqlite3.connect(sys.argv[1], isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
        database.execute(f"PRAGMA {setting}")
    database.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, raw BLOB)")

    def commit(rows: list[bytes]) -> None:
        database.execute("BEGIN IMMEDIATE")
        for row in rows:
            database.execute("INSERT INTO entries (raw) VALUES (?)", (row,))
        database.execute("COMMIT")

    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder().decode
    for line in sys.stdin.buffer:
        message = decode(line)
        if "id" not in message:
            continue
        method = message["method"]
        answer = encode({"jsonrpc": "2.0", "id": message["id"], "result": ANSWERS[method]})
        sent = [answer]
        if method == "session/prompt":
            commit([line])
            number = int(message["params"]["prompt"][0]["text"].split()[1])
            updates = [update(text) for text in [TEXT] * (number - 1) + [f"{TEXT}!"] * bool(number)]
            sent = [encode(update) for update in updates] + sent
            commit(sent)
        os.write(1, b"\n".join([*sent, b""]))


def update(text: str) -> dict[str, object]:
    """A piece of the agent's message, as the protocol has it."""
    piece = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    params = {"sessionId": SESSION, "update": piece}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


if __name__ == "__main__":
    main()
