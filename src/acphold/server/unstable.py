"""The methods that are no part of the protocol yet, for who asks for them with `--unstable`.

`session/fork` is there without it, too, where the agent offers it itself.

Source: ACP v1 schema with its unstable parts: `ForkSessionRequest`, `SetSessionTitleRequest`,
`ArchiveSessionRequest`, `UnarchiveSessionRequest`, `SessionArchiveFilter`, `SessionStatusRequest`;
RFD session fork.
Without the option nothing else of it is on the wire: strict clients drop an answer with members
they do not know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from acphold.errors import InvalidParamsError, UnknownSessionError
from acphold.hub import Client, Hub, Setup
from acphold.hub.forks import FORK_SESSION
from acphold.journal import Archived, At, Silent
from acphold.rpc.request import Request
from acphold.schema import CLOSE_SESSION, ResumeSessionRequest, decode, encode
from acphold.schema.shapes import Extensible
from acphold.schema.splice import splice
from acphold.server.checked_params import session_id_of
from acphold.server.neighbours import tell_owner
from acphold.server.principals import Note
from acphold.server.remote_sessions import RemoteSessions

SET_TITLE = "session/set_title"
ARCHIVE = "session/archive"
UNARCHIVE = "session/unarchive"
STATUS = "session/status"

AT = "acphold/at"
"""The `_meta` key of ours in a fork: the number of an entry, to whose turn it goes."""

FILTERS: tuple[Archived, ...] = ("exclude", "include", "only")


class SetSessionTitleRequest(Extensible, frozen=True):
    """`session/set_title`."""

    session_id: str
    title: str


class ForkSessionRequest(ResumeSessionRequest, frozen=True):
    """`session/fork`: as `session/resume`, of the session that is forked."""


class ArchiveFilter(Extensible, frozen=True):
    """What `session/list` asks for besides `cwd` and `cursor`."""

    archived: str | None = None


def archive_filter(params: bytes) -> Archived:
    """Which sessions `session/list` asks for; InvalidParamsError for what we do not know."""
    asked = decode(ArchiveFilter, params).value.archived or "exclude"
    for known in FILTERS:
        if asked == known:
            return known
    raise InvalidParamsError(f"archived: {asked!r} is none of {', '.join(FILTERS)}", "archived")


class UnstableMethods:
    """What one client asks by these methods.

    `setup` checks what opens a session, `shown` makes a result fit for this client, `note` writes
    down what it does.
    """

    def __init__(
        self,
        hub: Hub,
        client: Client,
        remote: RemoteSessions,
        setup: Callable[[bytes], Setup],
        shown: Callable[[bytes], bytes],
        note: Note,
    ) -> None:
        self._hub = hub
        self._client = client
        self._remote = remote
        self._setup = setup
        self._shown = shown
        self._note = note
        self.handlers: dict[str, Callable[[Request], Awaitable[bytes | None]]] = {
            FORK_SESSION: self.fork,
            SET_TITLE: self._set_title,
            ARCHIVE: self._archive,
            UNARCHIVE: self._unarchive,
            STATUS: self._status,
        }

    async def _set_title(self, request: Request) -> bytes:
        session_id = session_id_of(request.params)
        asked = decode(SetSessionTitleRequest, request.params).value
        title = await self._hub.listed.rename(session_id, asked.title)
        await self._tell_owner(session_id)
        return encode({"title": title})

    async def _tell_owner(self, session_id: str) -> None:
        """Tell the process that has a session live, if another one has, that its row changed."""
        await tell_owner(await self._hub.whereabouts.owner(session_id), session_id)

    async def _archive(self, request: Request) -> bytes:
        session_id = session_id_of(request.params)
        if (line := self._remote.line(session_id)) is not None:
            await line.call(CLOSE_SESSION.name, encode({"sessionId": session_id}))
            line.opened.pop(session_id, None)
        await self._hub.listed.archive(session_id, self._client)
        await self._tell_owner(session_id)
        return b"{}"

    async def _unarchive(self, request: Request) -> bytes:
        await self._hub.listed.unarchive(session_id_of(request.params))
        return b"{}"

    async def _status(self, request: Request) -> bytes:
        """Whether somebody has it open, in whichever process; nothing is changed by asking."""
        session_id = session_id_of(request.params)
        hub = self._hub
        is_open = hub.holds(session_id)
        try:
            is_open = is_open or isinstance(await hub.whereabouts.owner(session_id), At | Silent)
        except UnknownSessionError:
            if await hub.sessions.look_up(session_id) is None:
                raise
        return encode({"status": "open" if is_open else "saved"})

    async def fork(self, request: Request) -> None:
        """A copy in the journal, and of the agent's own what it forks when the copy is opened."""
        session_id = session_id_of(request.params)
        asked = decode(ForkSessionRequest, request.params).value
        at = (asked.meta or {}).get(AT)
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 1):
            problem = f"{AT}: {at!r} is not the number of an entry"
            raise InvalidParamsError(problem, field=f"_meta.{AT}")
        setup = self._setup(request.params)
        made = await self._hub.listed.fork(session_id, setup, at)
        self._note(request.method, made)
        try:
            conversation, attachment = await self._hub.resume(self._client, made, setup)
        except BaseException:  # nothing is left of a copy that could not be opened
            await self._hub.delete(made, self._client)
            raise
        named = {"sessionId": encode(made)}
        request.answer(self._shown(splice(conversation.opened_result, named)))
        self._remote.open_here(conversation, attachment, setup)
