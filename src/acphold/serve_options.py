"""The options of serving agents, each once, for the command line, the settings file and Python.

A field is a key of the settings file, an argument of `Agent.run`, an option of `wrap` if it is in
`wrap.TYPED`, and a line in the tables of docs/reference.md, docs/use.md and docs/api-agent.md,
which `make docs` writes. To add an option, add a line here, and the code that heeds it.
"""

from os import PathLike
from typing import Annotated, Literal

from msgspec import Meta, Struct


class OptionHelp(Struct, frozen=True):
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
        OptionHelp(
            "where conversations are kept: a path, or sqlite:////absolute/path",
            value="URL",
            otherwise="ACPHOLD_JOURNAL, otherwise a file in the data folder",
        ),
    ] = None
    cancel_grace: Annotated[
        float,
        OptionHelp(
            "how long the agent may take to end a cancelled turn before acphold answers for it",
            value="SECONDS",
        ),
        Meta(ge=0),
    ] = 10.0
    when_detached: Annotated[
        Literal["wait", "reject"],
        OptionHelp(
            "what to do with a permission request or form that no connected client can "
            "show: wait for a client, or reject it at once",
            value="wait|reject",
        ),
    ] = "wait"
    when_limited: Annotated[
        Literal["pause", "wait"],
        OptionHelp(
            "what to do when a turn ends at the vendor's usage limit: pause the queue, or "
            "continue automatically once the limit resets, if the agent reported when",
            value="pause|wait",
        ),
    ] = "pause"
    keep_prompts: Annotated[
        bool,
        OptionHelp(
            "when a client leaves, move its prompts that wait for a running turn into the "
            "session's queue, which outlives this process"
        ),
    ] = False
    snapshots: Annotated[
        bool | Literal["all"],
        OptionHelp(
            "keep the files of a git repository at the beginning and the end of each turn, for "
            '`acphold continue --files`; `"all"`: of any folder except the home folder',
            value="true|all",
            otherwise="true",
        ),
    ] = True
    answer_timeout: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)] | None,
        OptionHelp(
            "reject a question that nobody has answered after this long",
            value="SECONDS",
            otherwise="never",
        ),
    ] = None
    max_outage: Annotated[
        float,
        OptionHelp(
            "how long a turn waits for a database that cannot be reached, before it ends with its "
            "agent",
            value="SECONDS",
        ),
        Meta(ge=0, le=1e9),
    ] = 600.0
    all_agents: Annotated[
        bool,
        OptionHelp(
            "list the sessions of all agents; a session of another agent moves to this one "
            "when you prompt it here"
        ),
    ] = False
    unstable: Annotated[
        bool,
        OptionHelp(
            "experimental: offer methods that are not in the protocol yet: session/fork, "
            "set_title, archive, unarchive, and the list's filter"
        ),
    ] = False
    max_message: Annotated[
        int,
        OptionHelp(
            "longest message in either direction; a longer one is refused, and the connection "
            "stays open",
            value="BYTES",
            otherwise="16M",
        ),
    ] = 16 << 20


class AgentOptions(ServeOptions, frozen=True, kw_only=True):
    """The options of serving an agent of the library.

    It reads no settings file, in which a person could switch `snapshots` off: it asks for them.
    """

    snapshots: Annotated[
        bool | Literal["all"],
        OptionHelp(
            "keep the files of a git repository at the beginning and the end of each turn, for "
            '`acphold continue --files`; `"all"`: of any folder except the home folder. The '
            "settings "
            "file does not turn this on"
        ),
    ] = False
    mcp_timeout: Annotated[
        float,
        OptionHelp("how long each MCP server of a session may take to start", value="SECONDS"),
        Meta(ge=0),
    ] = 10.0
