"""The tools a model is given: files, search, commands, a plan. Their docstrings are its manual."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field
from pydantic_ai import FunctionToolset, RunContext

from holdfast.agents.model.editing import first_change, replaced
from holdfast.agents.model.modes import CODE
from holdfast.agents.model.searching import Query, search
from holdfast.agents.model.secrecy import without_keys
from holdfast.agents.model.walking import listed
from holdfast.agents.model.work import RESULT_CHARACTERS, Work
from holdfast.errors import HoldfastError, MissingFileError, WorkspaceError
from holdfast.schema import PlanEntry

if TYPE_CHECKING:
    from holdfast.agents.terminals import Exit, RunningCommand
    from holdfast.agents.toolcall import RunningTool

LINES = 2000
"""Lines of a file that are read at once if the model does not say."""

COMMAND_SECONDS = 120
LONGEST_COMMAND = 3600

PROGRESS_SECONDS = 2.0
PROGRESS_CHARACTERS = 2000
"""How often, and how much of it, the output of a running command is shown."""

CHANGING = frozenset({"write", "edit", "shell"})
"""What is not offered in plan mode."""


class Step(BaseModel):
    """A step of a plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


async def read(
    ctx: RunContext[Work],
    path: str,
    line: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int, Field(ge=1)] = LINES,
) -> str:
    """Read a text file.

    Args:
        path: Relative to the working directory, or absolute inside the session's folders.
        line: The first line to read, counted from 1.
        limit: How many lines to read.
    """
    async with ctx.deps.running(ctx) as call:
        await call.start()
        text = await ctx.deps.turn.files.read(path, line=line, limit=limit + 1)
        shown, rest = _some_lines(without_keys(text), limit)
        await call.content(_fenced(shown))
        await call.output({"lines": len(shown.splitlines()), "more": rest})
        if rest:
            following = line + len(shown.splitlines())
            return f"{shown}\n(There is more: read on with line={following}.)"
        return shown or "(The file is empty, or has no such line.)"


async def write(ctx: RunContext[Work], path: str, content: str) -> str:
    """Write a whole text file, replacing what it held; folders are made as needed.

    For a change to a file that exists, prefer `edit`.

    Args:
        path: Relative to the working directory, or absolute inside the session's folders.
        content: The whole new text.
    """
    async with ctx.deps.running(ctx) as call:
        old = await _text_now(ctx.deps, path)
        await _change(ctx.deps, call, path, old, content)
        return f"Wrote {path}." if old is not None else f"Made {path}."


async def edit(
    ctx: RunContext[Work], path: str, old_text: str, new_text: str, replace_all: bool = False
) -> str:
    """Replace a piece of a text file, exactly; read the file first.

    Args:
        path: Relative to the working directory, or absolute inside the session's folders.
        old_text: What to replace, exactly as it stands in the file, with enough around it to
            occur only once.
        new_text: What to put there instead.
        replace_all: Replace every occurrence.
    """
    async with ctx.deps.running(ctx) as call:
        old = await ctx.deps.turn.files.read(path)
        new = replaced(old, old_text, new_text, everywhere=replace_all)
        await call.location(path, first_change(old, new))
        await _change(ctx.deps, call, path, old, new)
        return f"Edited {path}."


async def list_files(ctx: RunContext[Work], path: str = ".", glob: str | None = None) -> str:
    """List a folder, or with a glob the files anywhere below it; what git ignores is left out.

    Args:
        path: The folder, relative to the working directory, or absolute.
        glob: Such as `*.py` or `src/**/test_*.py`.
    """
    async with ctx.deps.running(ctx) as call:
        await call.start()
        roots = ctx.deps.turn.files.roots
        listing = await asyncio.to_thread(listed, roots, path, glob)
        text = "\n".join(listing.paths) or "(Nothing.)"
        if listing.more:
            text += "\n(There are more: give a narrower path or glob.)"
        await call.content(_fenced(text))
        await call.output({"entries": len(listing.paths), "more": listing.more})
        return text


async def search_files(
    ctx: RunContext[Work],
    pattern: str,
    path: str = ".",
    glob: str | None = None,
    ignore_case: bool = False,
) -> str:
    """Find lines that match a regular expression; what git ignores is left out.

    Args:
        pattern: In Python's syntax.
        path: A folder or a file, relative to the working directory, or absolute.
        glob: Look only into files that match, such as `*.py`.
        ignore_case: Whether upper and lower case are the same.
    """
    async with ctx.deps.running(ctx) as call:
        await call.start()
        cwd, *additional = ctx.deps.turn.session.roots
        report = await search(Query(cwd, tuple(additional), pattern, path, glob, ignore_case))
        text = _first_characters(without_keys("\n".join(report.lines))) or "(No line matches.)"
        if report.more:
            text += "\n(There are more: look for something rarer, or in a narrower place.)"
        await call.content(_fenced(text))
        await call.output({"lines": len(report.lines), "files": report.files, "more": report.more})
        return text


async def shell(
    ctx: RunContext[Work],
    command: str,
    seconds: Annotated[int, Field(ge=1, le=LONGEST_COMMAND)] = COMMAND_SECONDS,
) -> str:
    """Run a command line with /bin/sh in the working directory, and wait for its end.

    For reading, searching and changing files use the other tools.

    Args:
        command: The command line; nobody can answer what it asks.
        seconds: When to end it if it still runs.
    """
    async with ctx.deps.running(ctx) as call:
        await ctx.deps.permit(call, f"shell {command}")
        await call.start()
        return await _run(ctx.deps, call, command, seconds)


async def plan(ctx: RunContext[Work], steps: list[Step]) -> str:
    """Show the person your plan for a task of several steps; show it again as steps get done.

    Args:
        steps: The whole plan as it stands now.
    """
    entries = [
        PlanEntry(content=step.content, priority=step.priority, status=step.status)
        for step in steps
    ]
    await ctx.deps.turn.plan(entries)
    return "The person sees the plan."


def own_tools() -> FunctionToolset[Work]:
    """All of them."""
    tools: FunctionToolset[Work] = FunctionToolset(
        id="holdfast", require_parameter_descriptions=True
    )
    tools.add_function(read)
    tools.add_function(list_files, name="list")
    tools.add_function(search_files, name="search")
    tools.add_function(plan)
    # One at a time: each may depend on what the one before it has done.
    tools.add_function(write, sequential=True)
    tools.add_function(edit, sequential=True)
    tools.add_function(shell, sequential=True)
    return tools


async def _change(work: Work, call: RunningTool, path: str, old: str | None, new: str) -> None:
    """Show the change, have it allowed, and make it, unless somebody else was faster."""
    await call.diff(path, without_keys(new), None if old is None else without_keys(old))
    await work.permit(call, "change files", freely_in=CODE)
    await call.start()
    if await _text_now(work, path) != old:
        raise WorkspaceError(f"{path!r} was changed meanwhile: read it again")
    await work.turn.files.write(path, new)
    await call.output({"written": len(new.encode())})


async def _text_now(work: Work, path: str) -> str | None:
    """The text of a file, None if there is none; raises what else is wrong with it."""
    try:
        return await work.turn.files.read(path)
    except MissingFileError:
        return None
    except HoldfastError:
        # Some clients have no code of their own for a file that is not there.
        resolved = await asyncio.to_thread(work.turn.files.roots.resolve, path)
        if await asyncio.to_thread(os.path.lexists, resolved):
            raise
        return None


async def _run(work: Work, call: RunningTool, command: str, seconds: int) -> str:
    wanted = 4 * RESULT_CHARACTERS  # bytes: a character has at most so many
    async with work.turn.terminal("/bin/sh", "-c", command, output_bytes=wanted) as running:
        if running.in_client:
            await call.terminal(running)
        ended = await _wait(running, call, seconds)
        output = await running.output()
    # A command sees our environment, and so the key of the model's service.
    text = without_keys(output.text)
    cut = output.truncated or len(text) > RESULT_CHARACTERS
    text = text[-RESULT_CHARACTERS:]
    if not running.in_client:
        await call.content(_fenced(text))
    facts = {"exitCode": ended and ended.code, "signal": ended and ended.signal}
    await call.output({"output": text, "truncated": cut, **facts})
    if ended is not None and ended.code:
        await call.fail(f"exit code {ended.code}")
    return f"{'(The beginning is left out.)' if cut else ''}{text}\n({_end(ended, seconds)})"


async def _wait(running: RunningCommand, call: RunningTool, seconds: int) -> Exit | None:
    """Wait for the end, showing what is printed meanwhile; None if it had to be ended."""
    waiting = asyncio.create_task(running.wait(), name="command")
    shown = ""
    try:
        async with asyncio.timeout(seconds):
            while not (await asyncio.wait([waiting], timeout=PROGRESS_SECONDS))[0]:
                if not running.in_client:
                    text = without_keys((await running.output()).text)[-PROGRESS_CHARACTERS:]
                    if text != shown:
                        shown = text
                        await call.progress(_fenced(text))
            return waiting.result()
    except TimeoutError:
        await running.kill()
        return None
    finally:
        waiting.cancel()


def _end(ended: Exit | None, seconds: int) -> str:
    if ended is None:
        return f"ended by holdfast after {seconds} s"
    return f"ended by {ended.signal}" if ended.signal else f"exit code {ended.code}"


def _some_lines(text: str, limit: int) -> tuple[str, bool]:
    """At most `limit` lines that are not too long together, and whether there are more."""
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    size = 0
    for line in lines[:limit]:
        size += len(line)
        if size > RESULT_CHARACTERS:
            kept = kept or [line[:RESULT_CHARACTERS]]
            return "".join(kept), True
        kept.append(line)
    return "".join(kept), len(lines) > limit


def _first_characters(text: str) -> str:
    return text if len(text) <= RESULT_CHARACTERS else f"{text[:RESULT_CHARACTERS]}…"


def _fenced(text: str) -> str:
    """As a block of code that nothing in the text ends."""
    fence = "```"
    while fence in text:
        fence += "`"
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}\n{text}{end}{fence}"
