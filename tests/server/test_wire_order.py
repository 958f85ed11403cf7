"""A client sees what an agent wrote in the order in which it wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.editor import say as said, update_line
from tests.served import wrapped

OPTIONS = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
CALL = {"toolCallId": "t", "title": "do it"}


def line(method: str, params: Any = None, **message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **message})


async def test_questions_requests_and_notifications_keep_their_places_in_one_write(
    journal: Path,
) -> None:
    of_session = {"sessionId": "$ID"}
    question = {**of_session, "toolCall": CALL, "options": OPTIONS}
    written = [
        update_line(said("1")),
        line("session/request_permission", question, id=901),
        line("_told", of_session),
        update_line(said("2")),
        line("_asked", of_session, id=902),
        line("_told_outside"),
        line("_asked_outside", id=903),
        update_line(said("3")),
        line("fs/read_text_file", {**of_session, "path": "/x"}, id=904),
        line("_told", of_session),
    ]
    async with wrapped(journal, client={"fs": {"readTextFile": True}}) as client:
        for method in ("_asked", "_asked_outside"):
            client.answers[method] = lambda _: {}
        client.answers["fs/read_text_file"] = lambda _: {"content": ""}
        session = await client.new()
        await client.prompt(session, {"line": "\n".join(written)})
        wanted = [json.loads(each)["method"] for each in written]
        wanted.insert(1, "session/update")  # of the call that is asked about

        def told() -> list[str]:
            methods = [m["method"] for m in client.messages if "method" in m]
            return methods[methods.index("session/update") :]

        await client.until(lambda: len(told()) >= len(wanted))
        assert told()[: len(wanted)] == wanted
        assert client.text() == "123"
