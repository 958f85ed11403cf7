"""The options of serving agents, each once, for the command line, the settings file and Python.

A field is an option of `wrap` and of `run`, a key of the settings file, an argument of `Agent.run`,
and a line in the tables of docs/reference.md, docs/use.md and docs/api-agent.md, which `make docs`
writes. To add an option, add a line here, and the code that heeds it.
"""

from __future__ import annotations

from os import PathLike
from typing import Annotated, Literal, NamedTuple

from msgspec import Struct


class Option(NamedTuple):
    """The help on an option, for people.

    `value` names the value, "" for a switch; `otherwise` describes the default in words, if the
    field's default does not say it.
    """

    meaning: str
    value: str = ""
    otherwise: str = ""


class ServeOptions(Struct, frozen=True, kw_only=True):
    """The options of serving an agent: times in seconds, sizes in bytes."""

    journal: Annotated[
        str | PathLike[str] | None,
        Option(
            "where conversations are kept: a path, or sqlite:////absolute/path",
            value="URL",
            otherwise="ACPHOLD_JOURNAL, else a file in the data folder",
        ),
    ] = None
    cancel_grace: Annotated[
        float,
        Option(
            "how long the agent may take to end a cancelled turn before acphold answers for it",
            value="SECONDS",
        ),
    ] = 10.0
    when_detached: Annotated[
        Literal["wait", "reject"],
        Option(
            "what to do with a permission request or form that no connected client can "
            "show: wait for a client, or reject it at once",
            value="wait|reject",
        ),
    ] = "wait"
    answer_timeout: Annotated[
        float | None,
        Option(
            "reject a question that nobody has answered after this long",
            value="SECONDS",
            otherwise="never",
        ),
    ] = None
    all_agents: Annotated[
        bool,
        Option(
            "list the sessions of all agents; a session of another agent moves to this one "
            "when you prompt it here"
        ),
    ] = False
    unstable: Annotated[
        bool,
        Option(
            "experimental: offer methods that are not in the protocol yet: session/fork, "
            "set_title, archive, unarchive, and the list's filter"
        ),
    ] = False
    max_message: Annotated[
        int,
        Option(
            "longest message in either direction; a longer one is refused, the connection "
            "stays open",
            value="BYTES",
            otherwise="64M",
        ),
    ] = 64 << 20


class AgentOptions(ServeOptions, frozen=True, kw_only=True):
    """The options of serving an agent of the library."""

    mcp_timeout: Annotated[
        float, Option("how long each MCP server of a session may take to start", value="SECONDS")
    ] = 10.0
