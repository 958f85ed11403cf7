"""An agent that answers `session/load` with the lines of FILE, one update each, at full speed."""

import json
import sys


def main() -> None:
    """Answer until stdin ends."""
    out = sys.stdout.buffer
    with open(sys.argv[1], "rb") as transcript:
        updates = transcript.read().splitlines()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        result: dict[str, object] = {}
        if message["method"] == "initialize":
            capabilities = {"loadSession": True}
            result = {"protocolVersion": 1, "agentCapabilities": capabilities}
        elif message["method"] == "session/load":
            session = json.dumps(message["params"]["sessionId"]).encode()
            head = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%b,"update":'
            before = head % session
            out.writelines(before + update + b"}}\n" for update in updates)
        out.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        out.write(b"\n")
        out.flush()


if __name__ == "__main__":
    main()
