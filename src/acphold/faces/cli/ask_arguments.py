"""The arguments of `acphold ask`, which are read before the rest of it is imported."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from acphold.faces.cli import options


class AskArguments(Struct):
    """The prompt, the agent and session that it is for, and the way to ask it."""

    prompt: str = options.argument(
        "PROMPT", "the prompt; `-` reads it from stdin", type=options.a_text
    )
    agent: str | None = options.AGENT
    program: tuple[str, ...] = options.PROGRAM
    file: list[str] = options.repeatable("PATH", "attach a file", "--file", "-f")
    session: str | None = options.value("ID", "continue this session")
    newest: bool = options.flag("continue the newest session of the folder", "--continue")
    cwd: str | None = options.value(
        "DIR",
        "the working folder; with --session, the session moves there [default: . or the session's]",
    )
    permission: Literal["allow", "reject", "ask"] | None = options.PERMISSION
    mcp_config: list[str] = options.MCP_CONFIG
    mode: str | None = options.MODE
    agent_options: list[str] = options.AGENT_OPTIONS
    timeout: float | None = options.value("SECONDS", "cancel the turn after this long")
    later: bool = options.flag(
        "add the prompt to the session's queue and return; see `acphold queue`"
    )
    at: int | None = options.value(
        "TIME", "like --later, but start no earlier than TIME, such as 02:00"
    )
    json: bool = options.flag("print JSON: one object per update, and one at the end")
    name: str | None = options.value("NAME", "store the session under this agent name")
    typed_journal: str | None = options.JOURNAL  # over one of the agent's settings
