"""The agents of examples/, in front of the client of the official Python SDK."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.library.conftest import SERVER

if TYPE_CHECKING:  # otherwise late: it takes a second, of each worker that collects this
    import acp
    from acp.schema import ReadTextFileResponse, RequestPermissionResponse
    from pydantic import BaseModel

EXAMPLES = Path(__file__).parents[2] / "examples"


class Person:
    """A client of the SDK: allows everything, and has one file open with unsaved text."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.unsaved: dict[str, str] = {}
        self.choice = "allow_once"

    def on_connect(self, conn: acp.Agent) -> None:
        return None

    async def session_update(self, session_id: str, update: BaseModel, **_: Any) -> None:
        self.updates.append(update.model_dump(mode="json", by_alias=True, exclude_unset=True))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        from acp.schema import AllowedOutcome, RequestPermissionResponse

        self.asked.append(tool_call.title)
        chosen = next(option for option in options if option.kind == self.choice)
        outcome = AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        import acp
        from acp.schema import ReadTextFileResponse

        if path not in self.unsaved:
            raise acp.RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.unsaved[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.unsaved[path] = content

    @property
    def text(self) -> str:
        """All that the agent has said."""
        return "".join(
            update["content"]["text"]
            for update in self.updates
            if update["sessionUpdate"] == "agent_message_chunk"
        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]


class Talk:
    """A connection of the SDK to one example."""

    def __init__(self, person: Person, connection: Any) -> None:
        self.person = person
        self.connection = connection

    async def say(self, session_id: str, words: str) -> str:
        """Run a turn; its stop reason."""
        from acp.schema import TextContentBlock

        block = TextContentBlock(type="text", text=words)
        answer = await self.connection.prompt(session_id=session_id, prompt=[block])
        return str(answer.stop_reason)


@asynccontextmanager
async def talking(example: str, journal: Path, *, files: bool = False) -> AsyncIterator[Talk]:
    import acp
    from acp.schema import ClientCapabilities, FileSystemCapabilities

    person = Person()
    async with acp.spawn_agent_process(
        cast(acp.Client, person),
        sys.executable,
        str(EXAMPLES / example),
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
    ) as (connection, _):
        fs = FileSystemCapabilities(read_text_file=files, write_text_file=files)
        await connection.initialize(
            protocol_version=1, client_capabilities=ClientCapabilities(fs=fs)
        )
        yield Talk(person, connection)


async def test_echo_says_what_it_is_told_and_goes_on_after_a_restart(
    journal: Path, tmp_path: Path
) -> None:
    async with talking("echo.py", journal) as talk:
        made = await talk.connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        assert await talk.say(made.session_id, "hello") == "end_turn"
        assert talk.person.text == "hello"
    async with talking("echo.py", journal) as talk:
        [listed] = (await talk.connection.list_sessions()).sessions
        assert (listed.session_id, listed.title) == (made.session_id, "hello")
        await talk.connection.load_session(
            session_id=made.session_id, cwd=str(tmp_path), mcp_servers=[]
        )
        said = [update["sessionUpdate"] for update in talk.person.updates]
        assert said[:2] == ["user_message_chunk", "agent_message_chunk"]
        assert await talk.say(made.session_id, "again") == "end_turn"
        assert talk.person.text == "helloagain"


async def test_the_reviewer_reads_unsaved_text_and_mends_it_with_permission(
    journal: Path, tmp_path: Path
) -> None:
    (file := tmp_path / "a.py").write_text("saved\n")
    async with talking("reviewer.py", journal, files=True) as talk:
        talk.person.unsaved[str(file)] = "unsaved  \n"
        made = await talk.connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        assert [mode.id for mode in made.modes.available_modes] == ["review", "fix"]
        await talk.say(made.session_id, "a.py missing.py ../outside.py")
        assert "a.py has lines that end in blanks" in talk.person.text
        assert "missing.py" in talk.person.text
        assert "outside the folders of this session" in talk.person.text
        await talk.connection.set_session_mode(session_id=made.session_id, mode_id="fix")
        talk.person.choice = "allow_always"
        await talk.say(made.session_id, "a.py")
        assert talk.person.asked == ["Mend a.py"]
        assert talk.person.unsaved[str(file)] == "unsaved\n"
        assert file.read_text() == "saved\n"
        diff = talk.person.of("tool_call")[-1]["content"][0]
        assert (diff["type"], diff["newText"]) == ("diff", "unsaved\n")
        talk.person.unsaved[str(file)] = "again \n"
        await talk.say(made.session_id, "a.py")
        assert talk.person.asked == ["Mend a.py"], "it was allowed for always"
        await talk.say(made.session_id, "/count")
        assert talk.person.text.endswith("5 so far.")
        await talk.say(made.session_id, "/test echo hello && exit 3")
        assert talk.person.text.endswith("It ended with 3.")
        shown = talk.person.of("tool_call_update")[-1]
        assert (shown["status"], "hello" in str(shown["content"])) == ("completed", True)


async def test_the_mcp_client_uses_the_servers_of_the_session(
    journal: Path, tmp_path: Path
) -> None:
    from acp.schema import McpServerStdio

    server = McpServerStdio(
        name="test", command=sys.executable, args=["-S", "-E", str(SERVER)], env=[]
    )
    broken = McpServerStdio(name="broken", command=sys.executable, args=["-c", "1/0"], env=[])
    async with talking("mcp_client.py", journal) as talk:
        made = await talk.connection.new_session(cwd=str(tmp_path), mcp_servers=[server, broken])
        await talk.say(made.session_id, "tools")
        assert "`test` `echo`" in talk.person.text
        assert "MCP server 'broken'" in talk.person.text
        arguments = json.dumps({"message": "through two protocols"})
        await talk.say(made.session_id, f"call test echo {arguments}")
        assert talk.person.asked == ["Call echo of test?"]
        assert talk.person.text.endswith("through two protocols")
        call = talk.person.of("tool_call")[-1]
        assert (call["title"], call["kind"]) == ("Echo", "read")
        await talk.say(made.session_id, "read test test://a")
        assert talk.person.text.endswith("the text of test://a")
        await talk.say(made.session_id, "/test:greet Ada warmly")
        assert talk.person.text.endswith("Greet Ada warmly")


def test_the_coder_is_seven_hundred_lines_on_public_names() -> None:
    files = sorted((EXAMPLES / "coder").glob("*.py"))
    assert sum(len(file.read_text().splitlines()) for file in files) <= 700
    imported = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    ours = {name for name in imported if name.partition(".")[0] == "acphold"}
    siblings = {file.stem for file in files}
    others = {name.partition(".")[0] for name in imported} - siblings - sys.stdlib_module_names
    assert ours == {"acphold"}
    assert others == {"acphold", "pathspec", "pydantic_ai"}
