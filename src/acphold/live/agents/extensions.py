"""Methods beside the protocol: a client copies a session, or speaks into a running turn.

The request to copy a session, `_acphold/fork`, is acphold's own. The copy is not opened.

An agent that takes words into a running turn says so in the `_meta` of its answer to `initialize`,
as `{"steering": {"supported": true}}`. The request `_session/steering` takes a session and a
prompt. It is answered with an `outcome`: `injected`; `promptRequired` if no turn runs, to a client
that asks for that with `idleBehavior`; or `failed`. docs/protocol.md has the agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from acp_wire.schema import ContentBlock
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.conversation.history.raw_update import members, string

FORK_METHOD: Final = "_acphold/fork"
"""See docs/protocol.md."""


MARK_METHOD: Final = "_acphold/mark"
"""See docs/protocol.md."""


class MarkRequest(Struct, frozen=True, rename="camel"):
    """The params: the tags of a session, and whether this person has it pinned; null leaves it."""

    session_id: str
    tags: list[str] | None = None
    pinned: bool | None = None


class CopyRequest(Struct, frozen=True, rename="camel"):
    """The params: copy the turns up to the one with entry `at`, or those `before` it, or all.

    `files` also copies the files of that moment, into the folder that it names, or for true into
    one beside the project. `include` adds the ignored files that the project names. `agent` is the
    name of the one that continues it, by default its own.
    """

    session_id: str
    at: int | None = None
    before: bool = False
    files: bool | str = False
    include: bool = False
    agent: str | None = None

    @property
    def folder(self) -> str | None:
        """The named folder for the files."""
        return self.files if isinstance(self.files, str) else None


_COPIED = {"why_plain": "whyPlain", "status": "state", "left_out": "leftOut"}


class CopiedFiles(Struct, frozen=True, rename=_COPIED, omit_defaults=True):
    """The files of a copy, in `folder`. `why_plain` says why that is no work tree, "" if it is one;
    the snapshot's `status` is `whole`, `late` (the next turn may have begun) or `later` (by the
    next turn). `left_out` counts those that it left out, `included` the copied ignored ones.
    """

    folder: str
    why_plain: str = ""
    status: str = "whole"
    left_out: int = 0
    included: int = 0


class SessionCopy(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A new session with `turns` of another one; `files` if they were asked for."""

    session_id: str
    cwd: str
    turns: int
    files: CopiedFiles | None = None


TREE_METHOD: Final = "_acphold/worktree"
"""See docs/protocol.md."""


class TreeRequest(Struct, frozen=True, rename="camel"):
    """The params: look at the work tree of a session; or `do` what a person wants who has `seen` it
    as it was then."""

    session_id: str
    do: Literal["", "commit", "merge"] = ""
    seen: str = ""


class SessionTree(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The work tree of a session in the folder `top`, and its way back, as `WayBack` has it: of
    long lists the beginnings, with the numbers of all.

    `mark` is another one once anything is different. It `is_ours` if acphold has made it, and no
    other session works there. `problem` says why there is no way back, and `is_merged` that it was
    just gone.
    """

    top: str = ""
    source: str = ""
    branch: str = ""
    mark: str = ""
    title: str = ""
    locked: str = ""
    is_gone: bool = False
    is_ours: bool = False
    problem: str = ""
    target: str = ""
    into: str = ""
    command: str = ""
    commits: tuple[str, ...] = ()
    files: tuple[tuple[str, int | None, int | None], ...] = ()
    uncommitted: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    numbers: dict[str, int] = {}
    own_git: str = ""
    is_merged: bool = False


class QueueRequest(Struct, rename="camel"):
    """A request about the queued prompts: a change of them, and one whose content is wanted."""

    change: QueueChange | None = None
    read: str = ""
    session_id: str = ""


SET_PROVIDER: Final = "providers/set"
DISABLE_PROVIDER: Final = "providers/disable"
"""Where an agent sends what it says to a model. Source: ACP v1 schema, its unstable parts."""

STEERING: Final = "_session/steering"


class _Idle(Struct, frozen=True, rename="camel"):
    idle_behavior: str = ""


class _IdleMeta(Struct, frozen=True):
    steering: _Idle = _Idle()


class SteeringRequest(Struct, frozen=True, rename="camel"):
    """The params of `_session/steering`, as far as they are known here."""

    session_id: str
    prompt: tuple[ContentBlock, ...]
    meta: _IdleMeta = field(name="_meta", default=_IdleMeta())


def has_steering(meta: Mapping[str, object] | None) -> bool:
    """Return True if an agent with this `_meta` in its answer to `initialize` has it."""
    said = (meta or {}).get("steering")
    return isinstance(said, dict) and said.get("supported") is True


def steering_params(session_id: str, prompt: bytes) -> bytes:
    """Return the params for content blocks; without a running turn the agent leaves them to us."""
    return msgspec.json.encode(
        {
            "sessionId": session_id,
            "prompt": msgspec.Raw(prompt),
            "_meta": {"steering": {"idleBehavior": "promptRequired"}},
        }
    )


def is_injected(answer: bytes) -> bool:
    """Return True if the agent has taken the words into its turn."""
    return string(members(answer).get("outcome")) == "injected"
