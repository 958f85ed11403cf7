"""JetBrains AIR's extensions of a list of sessions, and the drafts that say the same.

A client is AIR if its capabilities have `_meta.jetbrains.air`: `{"version": 1, "capabilities":
[NAME…]}`. In the same way an agent says in its answer to `initialize` what it has. Of these names
acphold knows

    sessionIndex           the client's lists have `_meta.jetbrains.air` in each session, and the
                           agent answers the methods below
    sessionArchive …       said by an agent that has a session index, see OFFERED
    loadReplayEnd          said by a client that wants REPLAY_END behind the replay of a load

Sources: the npm packages @agentclientprotocol/claude-agent-acp 0.101.0 and codex-acp 2.6.0, which
have both sides of it; ACP v1 schema with its unstable parts for `session/set_title`,
`session/archive` and `session/unarchive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from acp_wire.schema import splice
from acp_wire.schema.methods import ARCHIVE_SESSION
from acp_wire.schema.splice import json_value
from acphold.conversation.history.raw_update import array, encode_text, members

INDEX: Final = "sessionIndex"
REPLAY_END: Final = "loadReplayEnd"
OFFERED: Final = (
    INDEX,
    "sessionBatchGet",
    "sessionArchive",
    "sessionRename",
    "sessionListSubscribe",
)
"""The names that acphold says in front of every agent, to a client with a session index."""

RENAME: Final = "_session/rename"
ARCHIVE: Final = "_session/archive"
UNARCHIVE: Final = "_session/unarchive"
BATCH_GET: Final = "_session/batch_get"
SUBSCRIBE: Final = "_session/list/subscribe"
UNSUBSCRIBE: Final = "_session/list/unsubscribe"
CHANGES: Final = "_session/list/changes"
"""The notification of changed sessions, to whoever has subscribed."""

SET_TITLE: Final = "session/set_title"
DRAFT_UNARCHIVE: Final = "session/unarchive"
STATUS: Final = "session/status"

ARCHIVING: Final = (ARCHIVE, ARCHIVE_SESSION.name)
UNARCHIVING: Final = (UNARCHIVE, DRAFT_UNARCHIVE)
NAMING: Final = (RENAME, SET_TITLE)
"""The methods for each change of a list, of which an agent may have one."""

_METHODS: Final = {
    "sessionArchive": (ARCHIVE, UNARCHIVE),
    "sessionRename": (RENAME,),
    "sessionListSubscribe": (SUBSCRIBE, UNSUBSCRIBE),
    INDEX: (INDEX,),
}
_DRAFTS: Final = {"title": (SET_TITLE,), "archive": (ARCHIVE_SESSION.name, DRAFT_UNARCHIVE)}

EVERY_SESSION: Final = {"jetbrains": {"air": {"list": {"limit": 100, "archived": "all"}}}}
"""The `_meta` by which an agent with a session index lists archived sessions, too."""

VERSION: Final = b"1"


class ListWishes(Struct, frozen=True, rename="camel"):
    """AIR's `list` in the `_meta` of `session/list`."""

    limit: int | None = None
    archived: str | None = None
    include_worktrees: bool | None = None


class _Air(Struct, frozen=True):
    version: int = 1
    list: ListWishes = ListWishes()


class _JetBrains(Struct, frozen=True):
    air: _Air = _Air()


class _ListMeta(Struct, frozen=True):
    jetbrains: _JetBrains = _JetBrains()


class ListRequest(Struct, frozen=True):
    """The params of `session/list`, with what AIR and the drafts add."""

    cwd: str | None = None
    cursor: str | None = None
    archived: str | None = None
    meta: _ListMeta = field(name="_meta", default=_ListMeta())


class SubscribeRequest(Struct, frozen=True):
    """The params of SUBSCRIBE."""

    cwd: str


class UnsubscribeRequest(Struct, frozen=True, rename="camel"):
    """The params of UNSUBSCRIBE."""

    subscription_id: str


class BatchGetRequest(Struct, frozen=True, rename="camel"):
    """The params of BATCH_GET."""

    session_ids: list[str]


class RenameRequest(Struct, frozen=True, rename="camel"):
    """The params of `session/set_title`, and of RENAME."""

    session_id: str
    title: str


REPLAY_ENDED: Final = (
    b'{"sessionUpdate":"session_info_update",'
    b'"_meta":{"jetbrains":{"air":{"version":1,"loadReplayEnd":true}}}}'
)
"""The update behind the replay of a load."""


def _names_in(raw: bytes) -> list[str] | None:
    """Return the names in AIR's `capabilities` of the object `raw`; None for no such list."""
    return json_value(fields_in(raw).get("capabilities", b"[]"), list[str])


def capabilities_in(raw: bytes) -> frozenset[str] | None:
    """Return what the object `raw` says of AIR's extensions; None if it says nothing."""
    version, names = fields_in(raw).get("version", b""), _names_in(raw)
    is_said = version.isdigit() and version != b"0" and names is not None
    return frozenset(names or ()) if is_said else None


def index_methods(answer: bytes) -> frozenset[str]:
    """Return the methods by which an agent with this answer to `initialize` changes and tells its
    own list; INDEX among them if its list has all that AIR shows."""
    offered = capabilities_in(answer) or ()
    known = {method for name in offered for method in _METHODS.get(name, ())}
    can = members(object_in(answer, "agentCapabilities", "sessionCapabilities"))
    for name, methods in _DRAFTS.items():
        if can.get(name, b"").startswith(b"{"):
            known.update(methods)
    return frozenset(known)


def fields_in(raw: bytes) -> dict[str, bytes]:
    """Return AIR's members of the object `raw`, each as JSON; {} if it has none."""
    return members(object_in(raw, "_meta", "jetbrains", "air"))


def with_fields(raw: bytes, fields: Mapping[str, bytes | None]) -> bytes:
    """Return the object `raw` with these members of AIR's beside those that it has."""
    return within(raw, ("_meta", "jetbrains", "air"), {"version": VERSION, **fields})


def with_index(answer: bytes) -> bytes:
    """Return an answer to `initialize` that offers the session index beside what it offers."""
    every = dict.fromkeys((*(_names_in(answer) or ()), *OFFERED))
    return with_fields(answer, {"capabilities": array([encode_text(name) for name in every])})


def without_replay_end(can: bytes) -> bytes:
    """Return the capabilities of a client without REPLAY_END: a replay of ours ends later than the
    agent's."""
    names = _names_in(can) or ()
    if REPLAY_END not in names:
        return can
    kept = [encode_text(name) for name in names if name != REPLAY_END]
    return with_fields(can, {"capabilities": array(kept)})


def tells_archived(update: bytes) -> bool:
    """Return True for an update that only says whether the session is archived: the lists say
    that."""
    return (
        b'"archived"' in update
        and "archived" in fields_in(update)
        and members(update).keys() <= {"sessionUpdate", "_meta"}
    )


def object_in(raw: bytes, *names: str) -> bytes:
    """Return the object that is the member of these names, one in the other; b"{}" if it is absent,
    null or something else."""
    for name in names:
        raw = members(raw).get(name, b"{}")
    return raw if members(raw) else b"{}"


def within(raw: bytes, names: Sequence[str], changes: Mapping[str, bytes | None]) -> bytes:
    """Return the object `raw` with changes of the object in it that `object_in` returns."""
    if not names:
        return splice(raw, changes)
    name, *rest = names
    return splice(raw, {name: within(object_in(raw, name), rest, changes)})
