"""The tools the model is given: read, edit, find, shell, and those of the session's MCP servers.

Each call is shown to the person with its whole arguments, and is pending until it may run. What
changes something shows all that it will do, the diff or the command, before the person is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic_ai import FunctionToolset, RunContext, Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import UserContent

import acphold
from models import withdrawn
from prompt import for_the_model

LONGEST = 48_000  # characters that a tool tells the model; more crowds out the conversation
FIND_SECONDS = 20
FINDER = (sys.executable, "-P", str(Path(__file__).with_name("finder.py")))

TOOLS: FunctionToolset[acphold.Turn] = FunctionToolset()


@asynccontextmanager
async def told_to_the_model(call: acphold.RunningTool) -> AsyncGenerator[None]:
    """For the block, the model's call is at work; what goes wrong in it, the model is told too."""
    await call.announce()
    try:
        yield
    except acphold.AcpError as error:
        await call.fail(str(error))
        raise ToolFailed(str(error)) from error
    await call.complete()


async def begin(
    turn: acphold.Turn, call: acphold.RunningTool, what: str, *, freely: bool = False
) -> None:
    """Ask whether the call may run, and start it; raises AcpError when it may not.

    An answer for always holds for whatever else is asked about as the same `what`.
    """
    if turn.session.mode == "plan":
        raise acphold.AcpError("In plan mode nothing is changed or run.")
    if not freely and not await turn.ask_permission(what, tool=call):
        raise acphold.AcpError("The person did not allow this. Do not try another way.")
    await call.start()


@TOOLS.tool
async def read(ctx: RunContext[acphold.Turn], path: str, line: int = 1, limit: int = 2000) -> str:
    """Read a text file: at most `limit` lines from `line`, which counts from 1."""
    turn, asked = ctx.deps, {"path": path, "line": line, "limit": limit}
    call = turn.tool(f"Read {path}", kind="read", input=asked, locations=[(path, line)])
    async with told_to_the_model(call):
        await call.start()
        lines = (await turn.files.read(path, line, limit + 1)).splitlines(keepends=True)
        text = shortened("".join(lines[:limit]))
        await call.content(fenced(text))
        more = f"\n(There is more: read on with line={line + limit}.)" if lines[limit:] else ""
        return f"{text}{more}" or "(The file is empty, or has no such line.)"


@TOOLS.tool(sequential=True)
async def edit(ctx: RunContext[acphold.Turn], path: str, old_text: str, new_text: str) -> str:
    """Put `new_text` for `old_text` in a text file, which you have read.

    `old_text` stands there exactly so, and once: give enough of what is around. If it is empty,
    `new_text` becomes the whole file, which may be new.
    """
    turn, asked = ctx.deps, {"path": path, "old_text": old_text, "new_text": new_text}
    call = turn.tool(f"Edit {path}", kind="edit", input=asked, locations=[path])
    async with told_to_the_model(call):
        old = await _text(turn, path)
        if old and "\r\n" in old and old_text not in old:  # models write line ends as LF
            old_text, new_text = (re.sub("\r?\n", "\r\n", it) for it in (old_text, new_text))
        if old_text and (count := (old or "").count(old_text)) != 1:
            raise acphold.AcpError(f"old_text is in the file {count} times, not once")
        new = (old or "").replace(old_text, new_text) if old_text else new_text
        await call.diff(path, new, old)
        await begin(turn, call, "change files", freely=turn.session.mode == "code")
        if await _text(turn, path) != old:
            raise acphold.AcpError(f"{path} was changed meanwhile: read it again")
        await turn.files.write(path, new)
        return f"{path} is written."


@TOOLS.tool
async def find(
    ctx: RunContext[acphold.Turn], path: str = ".", glob: str = "", pattern: str = ""
) -> str:
    """Find files, or lines in them; what git ignores is left out.

    `path` alone lists a folder. With `glob` (`*.py`, `src/**/test_*.py`) it is the files anywhere
    below it, with `pattern`, a regular expression of Python's, the lines in them that match.
    """
    turn, asked = ctx.deps, {"path": path, "glob": glob, "pattern": pattern}
    title = f"Find {' in '.join(filter(None, [pattern, glob, path]))}"
    call = turn.tool(title, kind="search", input=asked, locations=[path])
    async with told_to_the_model(call):
        await call.start()
        found = await _found({**asked, "folder": await turn.files.folder(path)})
        await call.content(fenced(found))
        return found


@TOOLS.tool(sequential=True)
async def shell(ctx: RunContext[acphold.Turn], command: str, seconds: int = 120) -> str:
    """Run a command line with /bin/sh; it is ended after `seconds`. Nobody can answer it."""
    turn, asked = ctx.deps, {"command": command, "seconds": seconds}
    call = turn.tool(command, kind="execute", input=asked)
    async with told_to_the_model(call):
        await call.content(fenced(command))
        await begin(turn, call, f"run {command}")
        line, how = ("/bin/sh", "-c", command), f"ended after {seconds} s"
        # An editor that runs it in its own terminal may have our keys there: they become empty.
        blank = dict.fromkeys(withdrawn if turn.session.client_capabilities.terminal else (), "")
        async with turn.terminal(*line, env=blank, output_bytes=LONGEST) as running:
            await call.terminal(running)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    ended = await running.wait()
                    how = f"ended by {ended.signal}" if ended.signal else f"exit code {ended.code}"
        output = await running.output()
        if how != "exit code 0":
            await call.fail(how)
        return f"{output.text}\n({how})"


async def server_tools(turn: acphold.Turn) -> list[Tool[acphold.Turn]]:
    """The tools of the session's MCP servers, each by a name that every vendor takes."""
    tools: dict[str, Tool[acphold.Turn]] = {}
    for offered in await turn.mcp.tools():
        whole = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{offered.server}__{offered.name}")
        name = whole[:60] if whole[:60] not in tools else f"{whole[:55]}_{len(tools)}"
        tools[name] = _server_tool(name, offered)
    return list(tools.values())


def _server_tool(name: str, offered: Any) -> Tool[acphold.Turn]:
    """`offered` as a tool of the model; its server checks the arguments itself."""
    title = f"{offered.server}: {offered.title or offered.name}"
    reads = dict[str, Any](offered.annotations or {}).get("readOnlyHint") is True

    async def use(ctx: RunContext[acphold.Turn], /, **asked: object) -> str | list[UserContent]:
        call = ctx.deps.tool(title, kind="read" if reads else "other", input=asked)
        async with told_to_the_model(call):
            if reads:  # so its server says, and the person chose the server
                await call.start()
            else:
                await begin(ctx.deps, call, f"{offered.server}/{offered.name}")
            result = await ctx.deps.mcp[offered.server].call(offered.name, asked)
            await call.content(*result.content)
            await call.output(result.raw)
            if result.failed:
                raise acphold.AcpError(result.text or "it failed, and does not say why")
            found = for_the_model(result.content)
            return shortened(found) if isinstance(found, str) else found

    schema, about = offered.input_schema, offered.description
    return Tool.from_schema(use, name, about, schema, takes_ctx=True, sequential=not reads)


async def _text(turn: acphold.Turn, path: str) -> str | None:
    """The text of a file, None if there is none; raises what else is wrong with it."""
    try:
        return await turn.files.read(path)
    except acphold.MissingFileError:
        return None


async def _found(query: dict[str, str]) -> str:
    """What `finder.py` finds, which can be ended: some patterns take longer than anybody waits."""
    process = await asyncio.create_subprocess_exec(  # in "/": nothing of the project is imported
        *FINDER, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", start_new_session=True
    )
    try:
        async with asyncio.timeout(FIND_SECONDS):
            found, said = await process.communicate(json.dumps(query).encode())
    except TimeoutError:
        raise acphold.AcpError(f"this took more than {FIND_SECONDS} s: look for less") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:  # the pattern is no expression, say: the last line of a traceback
        raise acphold.AcpError(said.decode(errors="replace").strip().rpartition("\n")[2])
    return shortened(found.decode())


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n(The rest is left out.)"


def fenced(text: str) -> str:
    """`text` as a block of code, which nothing in it ends."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"
