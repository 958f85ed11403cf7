"""The exceptions of acphold and of acp-wire, in one tree.

    AcpError
    ├── PeerError                  the other side of a connection broke a rule
    │   ├── InvalidRequestError    JSON, but not a JSON-RPC message, or too early -32600
    │   ├── MethodNotFoundError    nobody here answers that method               -32601
    │   └── InvalidParamsError     parameters that break the protocol            -32602
    ├── RemoteError                the other side answered a request with an error
    ├── ConnectionLostError        the other side went away
    │   └── SilentPeerError        it is there, and does not answer
    ├── RemoteRefusalError         a server far away does not let us in
    ├── DeclarationError           an agent's author declared what cannot be
    ├── SettingsError              the settings file cannot be used, or has no such agent
    │   └── MissingExtraError      … or an optional package is not installed
    ├── AuthRequiredError          the person has to sign in first                   -32000
    ├── ForbiddenError             the token of this connection does not permit it   -32003
    ├── IncidentError              an author's code failed; only the log says how
    ├── CapabilityError            asked for what the other side did not advertise
    ├── NothingSaidError           a session without a turn that could be copied     -32602
    ├── UnknownSessionError        neither the journal nor the agent has it      -32002
    ├── AmbiguousIdError           a prefix that fits several sessions
    ├── AgentError                 the wrapped program
    │   ├── AgentStartError        cannot be started, or never answers `initialize`
    │   ├── AgentExitedError       ended while it was needed
    │   ├── HeldOutsideError       another process of the agent has the session open
    │   ├── FolderElsewhereError   the session's folder is on another machine
    │   ├── TermsRefusedError      did not accept its sign-in, or a provider, again
    │   ├── AgentBusyError         at work on a cancelled turn, or not reading its stdin
    │   └── AgentTimeoutError      did not answer a request of ours in time
    ├── TermsDifferError           a session on other terms than those of the client
    ├── TermsLostError             a session on terms that its agent has no longer
    ├── RuntimeFolderError         the folder for sockets cannot be used
    ├── HeldElsewhereError         another process has the session live          -32050
    ├── OtherAgentError            a session of an agent that does not run here      -32051
    ├── SessionMovedError          the session has moved to another machine          -32602
    ├── MoveRefusedError           the session cannot move to another machine
    ├── SilentDaemonError          a daemon of ours does not answer
    ├── InterruptedTurnError       that process ended in the turn, or lost the session
    ├── StoppedError               this process ends before it has answered
    ├── TranscriptError            a conversation on disk that our reader of it fails on
    ├── ExportError                a file of an export that cannot be written
    ├── WorkspaceError             files and terminals of a session
    │   ├── OutsideRootsError      a path that leads out of the session's folders -32602
    │   ├── MissingFileError       there is no such file or folder               -32002
    │   ├── NotTextError           a folder, a device, or bytes that are no text -32602
    │   ├── FileTooLargeError      more than is read at once                     -32602
    │   ├── FileAccessError        what the system does not permit
    │   ├── TerminalStartError     the command cannot be run, or too many are kept
    │   └── UnknownTerminalError   never made here, or released                  -32002
    └── JournalError               the journal cannot be read or written         -32052
        ├── JournalUnavailableError  read-only, full, gone, no such folder       -32052
        │   ├── NoJournalError       none was made there yet                     -32052
        │   ├── JournalBusyError     held, or does not answer; worth another try -32052
        │   └── ReadOnlyJournalError it lies where nothing can be written; it can be read  -32052
        │       └── OlderJournalError  an earlier release wrote it, and still uses it  -32052
        ├── NotAJournalError         a file, but not one of ours, or a torn one  -32052
        ├── NewerJournalError        written by a later release                  -32052
        ├── SessionExistsError       the id is taken                             -32052
        ├── RewrittenError           entries were joined while they were copied  -32052
        ├── ForgottenTextError       a person had removed a text meanwhile       -32052
        ├── IllegibleNameError       half a surrogate pair in an id or a path    -32602
        ├── CursorError              a list cursor that is not ours to continue  -32602
        └── LeaseLostError           another process owns the session now        -32050
            └── HistoryLostError     the journal has gone back: it lacks its last entries -32050

Each class knows its JSON-RPC code; the message of each may be shown to a person. Any other
exception inside a handler is reported to the other side as an opaque incident.
"""

from __future__ import annotations

from acp_wire.errors import (
    AUTH_REQUIRED as AUTH_REQUIRED,
    PARSE_ERROR as PARSE_ERROR,
    AcpError as AcpError,
    AgentError as AgentError,
    AgentStartError as AgentStartError,
    ConnectionLostError as ConnectionLostError,
    ExportError as ExportError,
    FileAccessError as FileAccessError,
    FileTooLargeError as FileTooLargeError,
    IncidentError as IncidentError,
    InvalidParamsError as InvalidParamsError,
    InvalidRequestError as InvalidRequestError,
    MethodNotFoundError as MethodNotFoundError,
    MissingExtraError as MissingExtraError,
    MissingFileError as MissingFileError,
    NotTextError as NotTextError,
    OutsideRootsError as OutsideRootsError,
    PeerError as PeerError,
    RemoteError as RemoteError,
    RemoteRefusalError as RemoteRefusalError,
    SettingsError as SettingsError,
    SilentPeerError as SilentPeerError,
    TerminalStartError as TerminalStartError,
    UnknownTerminalError as UnknownTerminalError,
    WorkspaceError as WorkspaceError,
)
from acphold.conversation.errors import InterruptedTurnError as InterruptedTurnError
from acphold.machine.runtime_folder import RuntimeFolderError as RuntimeFolderError

TYPE_CHECKING = False  # see quick_start
if TYPE_CHECKING:
    from collections.abc import Sequence

FORBIDDEN = -32003
HELD_ELSEWHERE = -32050
"""Our own codes, from the range that JSON-RPC leaves to servers; the second one is for other
acphold processes."""

OTHER_AGENT = -32051
"""Also ours: a client has to choose another agent to continue a session."""

JOURNAL_FAILED = -32052
"""Also ours: no agent behind us can answer with it."""


class DeclarationError(AcpError):
    """An agent's author declared or asked for something impossible; raised at the line that did."""


class AuthRequiredError(AcpError):
    """The person has to sign in before this can be done."""

    code = AUTH_REQUIRED


class ForbiddenError(AcpError):
    """This client may not do this: its token lacks `scope`, or the session belongs to another user
    and is not shared for that, or it runs in another `place`."""

    code = FORBIDDEN

    def __init__(
        self, wanted: str, scope: str, *, is_shared: bool = False, place: str = ""
    ) -> None:
        lacking = "in which the session is not shared with you"
        if not is_shared:
            lacking = (
                "which the token of this connection lacks; "
                "make another token with `acphold access token`"
            )
        if place:
            lacking = (
                "and this program only looks, because it runs in another sandbox or container than "
                f"the session, {place}; if you trust what runs there, run on the host: acphold "
                f"access places allow {place}"
            )
        super().__init__(f"{wanted} needs the scope {scope!r}, {lacking}")
        self.scope = scope

    @property
    def data(self) -> dict[str, object]:
        return {"scope": self.scope}


class CapabilityError(AcpError):
    """The other side did not advertise the requested capability; nothing was sent."""


class NothingSaidError(AcpError):
    """The session has no completed turn, or none up to the requested place."""

    code = InvalidParamsError.code


class UnknownSessionError(AcpError):
    """Neither the journal nor the agent has a session `session_id`."""

    code: int = MissingFileError.code

    def __init__(self, session_id: str, reason: str | None = None) -> None:
        super().__init__(reason or f"no session {session_id!r}")
        self.session_id = session_id

    @property
    def data(self) -> dict[str, object]:
        return {"sessionId": self.session_id}


class AmbiguousIdError(AcpError):
    """A prefix fits several sessions; `matches` holds their ids.

    Of very many it holds only the first; then `is_cut` is True. `names` say more of the first
    `SHOWN` than their ids.
    """

    SHOWN = 8
    """The message names this many sessions; it counts the rest."""

    def __init__(
        self,
        prefix: str,
        matches: tuple[str, ...],
        *,
        more: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        least = "more than " if more else ""
        rest = len(matches) - self.SHOWN
        shown = ", ".join(names or matches[: self.SHOWN])
        shown += f" and {least}{rest} more" if rest > 0 else ""
        is_one = len({it[: len(prefix) + 1] for it in matches}) == len(matches)
        letters = "one more letter" if is_one else "more letters"
        super().__init__(f"{prefix!r} fits {least}{len(matches)} sessions; {letters}: {shown}")
        self.matches = matches
        self.is_cut = more


class AgentExitedError(AgentError):
    """The program ended while it was needed.

    `status` reads like `exit status 3` or `signal SIGKILL`; `stderr` holds its last lines.
    """

    def __init__(self, message: str, status: str, stderr: str) -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr

    @property
    def data(self) -> dict[str, object]:
        return {"status": self.status, "stderr": self.stderr}


class HeldOutsideError(AgentError):
    """The agent does not open the session: another process of the agent has it open.

    `reason` is the agent's message.
    """

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(
            f"the agent has this session open in another process ({reason}); close it there and "
            f"send this again, or continue a copy: acphold continue {session_id} --from last"
        )
        self.reason = reason


class FolderElsewhereError(AgentError):
    """The session's `folder` is not on this machine, so the agent is not asked to open it."""

    def __init__(self, session_id: str, folder: str, host: str) -> None:
        super().__init__(
            f"this session works in {folder!r}, which is not on this machine ({host}); here it can "
            "only be read. To continue, open it on the machine with that folder, or continue a "
            f"copy in a folder of this machine: acphold continue {session_id} --from last --cwd "
            "FOLDER"
        )
        self.folder = folder


class TermsRefusedError(AgentError):
    """The agent `called` so was started again, and did not accept a choice of its client again."""

    def __init__(self, called: str, choice: str, *, is_sign_in: bool = False) -> None:
        if is_sign_in:
            self.code = AUTH_REQUIRED
            remedy = "sign in again"
        else:
            remedy = "set it again"
        super().__init__(
            f"{called} was started again and did not accept the {choice} again, so nothing is sent "
            f"to it; {remedy}"
        )


class AgentBusyError(AgentError):
    """The agent still works on a cancelled turn, or does not read its stdin."""


class AgentTimeoutError(AgentError):
    """The agent did not answer `method` within `seconds`."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"the agent did not answer {method} within {seconds:g} s")
        self.method = method
        self.seconds = seconds


class TermsDifferError(AcpError):
    """A client would work on terms that it has not chosen: those of a session, and its own."""

    def __init__(self, there: str, own: str, way_out: str) -> None:
        super().__init__(
            f"this works on the terms of another client ({there}), and you have chosen others "
            f"({own}); {way_out}"
        )


class TermsLostError(AcpError):
    """A prompt would leave by another endpoint or account than that which a client had chosen."""

    def __init__(self, session_id: str, its: str) -> None:
        super().__init__(
            f"this session stood on {its}, which its agent has no longer, so nothing is sent to "
            "it; load it in a client that chooses that again, or continue a copy on what the agent "
            f"has by itself: acphold continue {session_id} --from last"
        )


class HeldElsewhereError(AcpError):
    """Another process has the session live, described in words, under the lease with this epoch; it
    may be one that cannot be reached from here."""

    code = HELD_ELSEWHERE

    def __init__(self, session_id: str, where: str, epoch: int = 0) -> None:
        super().__init__(f"session {session_id!r} is open in {where}")
        self.epoch = epoch


class SessionMovedError(AcpError):
    """The session has moved to another machine, or is still arriving from it.

    `where` is the name of that machine. Here the session can be read, and a copy continued.
    """

    code = InvalidParamsError.code

    def __init__(self, session_id: str, where: str, *, arrives: bool = False) -> None:
        if arrives:
            told = (
                f"is still arriving from {where}: start the same command again to finish the move"
            )
        else:
            told = (
                f"continues on {where}; `acphold continue {session_id} --from last` continues a "
                "copy "
                f"here, and `acphold continue {session_id} --bring-from {where}` brings it back"
            )
        super().__init__(f"session {session_id!r} {told}")
        self.session_id = session_id
        self.where = where


class MoveRefusedError(AcpError):
    """One of the two machines refuses to move a session; nothing is lost."""


class OtherAgentError(AcpError):
    """The session belongs to `agent`, which does not run here, and nobody chose another one.

    The agents in `served` could continue it. A person decides, because that agent then reads the
    conversation.
    """

    code = OTHER_AGENT

    def __init__(self, session_id: str, agent: str, served: tuple[str, ...] = ()) -> None:
        others = f" ({', '.join(served)})" if served else ""
        super().__init__(
            f"session {session_id!r} was held with {agent}, which is not served here; name the "
            f"agent that is to read and continue it{others} as acphold/agent in _meta"
        )
        self.session_id = session_id
        self.agent = agent
        self.served = served

    @property
    def data(self) -> dict[str, object]:
        return {"acphold/agent": self.agent, "acphold/allAgents": list(self.served)}


class SilentDaemonError(AcpError):
    """A daemon does not answer; its words say which, and what to do."""


class StoppedError(AcpError):
    """This process was stopped, or its editor has left, before it answered."""

    def __init__(self) -> None:
        super().__init__(
            "acphold was stopped before it answered this; start it again, load the session, and "
            "send this again"
        )


class TranscriptError(AcpError):
    """A conversation that another agent keeps on disk could not be read by our reader."""


class JournalError(AcpError):
    """The journal cannot be read or written."""

    code = JOURNAL_FAILED


def as_raised(refusal: RemoteError) -> AcpError:
    """Return the answer of a process of ours as it was raised there, if it is about its journal."""
    return JournalError(refusal.message) if refusal.code == JOURNAL_FAILED else refusal


class JournalUnavailableError(JournalError):
    """The journal is read-only, full or deleted under us, or its folder cannot be created."""


class NoJournalError(JournalUnavailableError):
    """There is no journal at `place` yet: no file, or a database without one."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"there is no journal at {place}; the first session, or `acphold import`, makes it"
        )
        self.place = place


class JournalBusyError(JournalUnavailableError):
    """Another program holds the journal, or its database does not answer: worth another try."""


class ReadOnlyJournalError(JournalUnavailableError):
    """The journal is in a place where nothing can be written; it can be read."""

    @classmethod
    def of(cls, path: str) -> ReadOnlyJournalError:
        """Return the error for a journal in a file."""
        return cls(f"the journal {path} is read-only; make the file and its folder writable")


class OlderJournalError(ReadOnlyJournalError):
    """The journal was written by an earlier release, and processes of it own sessions there.

    It is upgraded by the first process that writes to it once these have ended. Until then a file
    can be read.
    """

    def __init__(self, place: str, processes: Sequence[str]) -> None:
        told = f" ({'process' if len(processes) == 1 else 'processes'} {', '.join(processes)})"
        super().__init__(
            f"an older acphold{told if processes else ''} is using the journal {place}, so this "
            "release does not upgrade it now, and changes nothing in it: once no turn runs there, "
            "restart the agent in your editor, and stop daemons with `acphold agent "
            "stop --all`"
        )


class NotAJournalError(JournalError):
    """There is a file, but it is not a journal of ours, or it is damaged."""


class NewerJournalError(JournalError):
    """The journal was written by a later release of acphold."""


class RewrittenError(JournalError):
    """The entries of a session were merged between two reads, or the journal went back: the parts
    read do not fit together."""


class SessionExistsError(JournalError):
    """The session id is taken."""


class ForgottenTextError(JournalError):
    """A person had a text removed meanwhile that what was to be taken in may have; nothing was
    written."""


class IllegibleNameError(JournalError):
    """An id or a path holds half of a surrogate pair; no journal has such a name."""

    code = InvalidParamsError.code


class CursorError(JournalError):
    """A list cursor was altered, is unknown, or belongs to another filter."""

    code = InvalidParamsError.code


class LeaseLostError(JournalError):
    """Another process owns the session now, or it was deleted; nothing was written."""

    code = HELD_ELSEWHERE

    def __init__(self, session_id: str, *, deleted: bool = False) -> None:
        why = "was deleted meanwhile" if deleted else "is owned by another acphold process now"
        super().__init__(f"session {session_id!r} {why}")
        if deleted:
            self.code = AcpError.code
        self.session_id = session_id
        self.deleted = deleted


class HistoryLostError(LeaseLostError):
    """The journal has gone back and lacks everything this owner has written after `last_seq`."""

    def __init__(self, session_id: str, last_seq: int) -> None:
        super().__init__(session_id)
        missing = f"has nothing after entry {last_seq}" if last_seq else "has nothing in it"
        self.args = (
            "the journal has gone back, as if a backup or a lagging standby had replaced it: "
            f"session {session_id!r} {missing}",
        )
        self.last_seq = last_seq
