"""An MCP server over Streamable HTTP, without any library; it answers each message by itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """`seen` has the headers of the last request, in lower case."""

    seen: dict[str, str]

    def do_POST(self) -> None:
        self.seen.update({name.lower(): value for name, value in self.headers.items()})
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        result = self._result(message["method"], message.get("params") or {})
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""

    def _result(self, method: str, params: dict[str, object]) -> dict[str, object]:
        match method:
            case "initialize":
                return {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "web", "version": "1"},
                }
            case "tools/list":
                return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                arguments = params["arguments"]
                assert isinstance(arguments, dict)
                return {"content": [{"type": "text", "text": arguments["message"]}]}
        return {}


@contextmanager
def http_server() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a server that runs for the block, and the headers it was sent last."""
    seen: dict[str, str] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Seeing", (Handler,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, name="mcp over http")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
