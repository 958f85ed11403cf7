"""`acphold mcp`: earlier sessions, searched and read by an agent."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acphold.cli.journals import exists
from acphold.cli.mcp_command import made_server, recall_server
from acphold.cli.recall import ANSWER_CHARACTERS
from acphold.journal import NewSession, RowChange, SqliteJournal
from acphold.schema import encode
from mcp import Client, StdioServerParameters, stdio_client
from tests.cli.conversation import CONVERSATION, Raw, ended, prompt, said, update
from tests.editor import introduced, scripted_agent, wrap_command

TOKENS = 500
"""What the definitions of the tools may cost a model; a token is four bytes of their JSON."""


async def remember(path: Path, session_id: str, *entries: Raw, cwd: str = "/w/web") -> None:
    journal = SqliteJournal.open(path)
    lease = await journal.create(NewSession(session_id, "coder", cwd, title="A title"))
    for kind, raw in entries:
        await journal.append(lease, kind, [raw])
    await journal.touch(lease, RowChange(prompted=True))
    await journal.settle(lease, lease.next_seq - 1)
    await journal.release(lease)
    await journal.aclose()


@asynccontextmanager
async def recalling(journal: Path, cwd: str | None = None) -> AsyncIterator[Client]:
    """A client of the official SDK, of a server in this process."""
    async with Client(made_server(str(journal), cwd)) as client:
        yield client


async def answer(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return str(result.content[0].text)  # type: ignore[union-attr]


async def error(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


async def test_the_tools_cost_a_model_few_tokens(journal: Path) -> None:
    async with recalling(journal) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["search", "read"]
    size = sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools)
    assert size / 4 <= TOKENS


async def test_each_hit_has_its_session_and_its_place(journal: Path) -> None:
    await remember(journal, "aaaa-1", *CONVERSATION)
    async with recalling(journal) as client:
        text = await answer(client, "search", query="hello", **{"in": "diffs"})
        head, hit = text.splitlines()
        assert head == "A title [coder in /w/web]"
        assert hit.startswith("aaaa-1@7 ")
        assert hit.endswith(" diff Edit hello.py: /home/me/hello.py hello hi")
        place = hit.split()[0]
        assert "@7 tool: Edit hello.py\n/home/me/hello.py" in await answer(
            client, "read", place=place
        )


async def test_a_place_is_read_with_what_is_before_it_and_on(journal: Path) -> None:
    await remember(journal, "aaaa-1", *CONVERSATION)
    async with recalling(journal) as client:
        text = await answer(client, "read", place="aaaa@5", before=1)
        assert text.splitlines() == [
            "A title [coder in /w/web]",
            "@2 thought: A thought.",
            "@5 agent: I will change **it**.",
            "@7 tool: Edit hello.py",
            "/home/me/hello.py",
            "hello",
            "",
            "hi",
            "",
            "@9 agent: Done.",
            "The session ends here.",
        ]
        whole = await answer(client, "read", place="aaaa-1")
        assert "@1 user: Make it friendlier" in whole


async def test_answers_are_bounded_and_read_on_from_where_they_end(journal: Path) -> None:
    long = [
        said(f"word{n} " + "x" * 3000, f"agent_{kind}_chunk")
        for n, kind in enumerate(["message", "thought"] * 10)
    ]
    await remember(journal, "aaaa-1", prompt("word"), *long, said("y" * 50_000), ended())
    seen: list[str] = []
    place, before = "aaaa-1@1", 2
    async with recalling(journal) as client:
        while True:
            text = await answer(client, "read", place=place, before=before)
            assert len(text) <= ANSWER_CHARACTERS
            *lines, last = text.splitlines()
            seen += [line.split()[0] for line in lines if line.startswith("@")]
            if last == "The session ends here.":
                break
            place, before = last.removeprefix("Go on with ").removesuffix(", before: 0"), 0
        assert seen == [f"@{n}" for n in range(1, 23)]
        found = await answer(client, "search", query="word*", limit=30)
        assert len(found) <= ANSWER_CHARACTERS
        few = await answer(client, "search", query="word*", limit=2)
        assert few.endswith("There are more hits; narrow the query.")


async def test_earlier_answers_and_the_question_itself_are_no_hits(journal: Path) -> None:
    calls = [
        update("tool_call", toolCallId=name, title=name, rawInput={"query": "needle"})
        for name in ("mcp__acphold__search", "acphold_read", "Read acphold/search.py")
    ]
    await remember(journal, "aaaa-1", prompt("a needle"), *calls, ended())
    opened = SqliteJournal.open(journal)
    lease = await opened.create(NewSession("bbbb-2", "coder", "/w"))
    await opened.append(lease, *_prompt("needle"), RowChange(prompted=True))
    await opened.aclose()
    async with recalling(journal) as client:
        text = await answer(client, "search", query="needle")
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["aaaa-1@4", "aaaa-1@1"]


def _prompt(text: str) -> tuple[str, list[bytes]]:
    kind, raw = prompt(text)
    return kind, [raw]


async def test_a_folder_bounds_what_is_searched_and_read(journal: Path) -> None:
    await remember(journal, "aaaa-1", prompt("secret plan"), ended())
    await remember(journal, "bbbb-2", prompt("open plan"), ended(), cwd="/w/api")
    async with recalling(journal, "/w/api") as client:
        assert "bbbb-2@1" in await answer(client, "search", query="plan")
        assert "aaaa-1" not in await answer(client, "search", query="plan")
        assert "open plan" in await answer(client, "read", place="bbbb-2")
        refused = await error(client, "read", place="aaaa-1@1")
        assert "no session" in refused
        assert "/w/web" not in refused


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("search", {"query": " * "}, "no word"),
        ("search", {}, "query"),
        ("search", {"query": "x", "limit": 0}, "limit"),
        ("search", {"query": "x", "since": "yesterday"}, "30d"),
        ("search", {"query": "x", "in": "titles"}, "titles"),
        ("search", {"query": "x", "what": 1}, "what"),
        ("read", {"place": "zzzz"}, "zzzz"),
        ("read", {"place": "aaaa@99"}, "1 to 2"),
        ("read", {"place": "aaaa", "before": -1}, "before"),
        ("write", {}, "search, read"),
    ],
)
async def test_what_cannot_be_answered_says_why(
    journal: Path, tool: str, arguments: dict[str, Any], words: str
) -> None:
    await remember(journal, "aaaa-1", prompt("x"), ended())
    async with recalling(journal) as client:
        assert words in await error(client, tool, **arguments)


async def test_without_a_journal_there_is_nothing_and_none_is_made(journal: Path) -> None:
    async with recalling(journal) as client:
        assert await error(client, "search", query="x") == "there are no sessions yet"
    assert not exists(str(journal))


async def test_a_client_over_stdio_searches_and_reads(journal: Path) -> None:
    await remember(journal, "aaaa-1", *CONVERSATION)
    server = recall_server(str(journal), "/w/web")
    command = StdioServerParameters(command=server.command, args=[*server.args])
    async with Client(stdio_client(command)) as client:
        assert "aaaa-1@9" in await answer(client, "search", query="done")
        assert "I will change" in await answer(client, "read", place="aaaa-1@9")


@pytest.mark.parametrize(
    ("option", "bound"), [("--recall", []), ("--recall-folder", ["--cwd", "/"])]
)
async def test_wrap_adds_it_to_each_session(
    journal: Path, tmp_path: Path, option: str, bound: list[str]
) -> None:
    log = tmp_path / "log"
    command = wrap_command(scripted_agent(log=str(log)), option)
    async with introduced(command, journal=journal) as client:
        await client.new("/")
    received = [json.loads(line) for line in log.read_text().splitlines()]
    (opened,) = [message["params"] for message in received if message["method"] == "session/new"]
    (server,) = opened["mcpServers"]
    assert server == json.loads(encode(recall_server(str(journal), bound[1] if bound else None)))
    assert server["command"] == sys.executable
    assert server["args"][-len(bound) or len(server["args"]) :] == bound
