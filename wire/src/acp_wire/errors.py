"""Exceptions of the wire, in one tree. Failures end in `Error`.

    AcpError
    ├── PeerError                  the other side of a connection broke a rule
    │   ├── InvalidRequestError    JSON, but not a JSON-RPC message, or too early -32600
    │   ├── MethodNotFoundError    nobody here answers that method               -32601
    │   └── InvalidParamsError     parameters that break the protocol            -32602
    ├── RemoteError                the other side answered a request with an error
    ├── RequestCancelledError      the request was cancelled                     -32800
    ├── ConnectionLostError        the other side went away
    │   └── SilentPeerError        it is there, and does not answer
    ├── RemoteRefusalError         a server far away does not let us in
    ├── SettingsError              the settings file cannot be used, or has no such agent
    │   └── MissingExtraError      … or an optional package is not installed
    ├── IncidentError              an author's code failed; only the log says how
    ├── AgentError                 the wrapped program
    │   └── AgentStartError        cannot be started, or never answers `initialize`
    ├── ExportError                a file of an export that cannot be written
    └── WorkspaceError             files and terminals of a session
        ├── OutsideRootsError      a path that leads out of the session's folders -32602
        ├── MissingFileError       there is no such file or folder               -32002
        ├── NotTextError           a folder, a device, or bytes that are no text -32602
        ├── FileTooLargeError      more than is read at once                     -32602
        ├── FileAccessError        what the system does not permit
        ├── TerminalStartError     the command cannot be run, or too many are kept
        └── UnknownTerminalError   never made here, or released                  -32002

Each class knows its JSON-RPC code; the message of each may be shown to a person. Any other
exception inside a handler is reported to the other side as an opaque incident.
"""

from __future__ import annotations

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
"""JSON-RPC and ACP error codes; source: ACP v1 schema, `ErrorCode`."""


class AcpError(Exception):
    """The root of the tree; `code` is the code of its JSON-RPC error."""

    code: int = INTERNAL_ERROR

    @property
    def data(self) -> dict[str, object] | None:
        """Facts for the `data` member of a JSON-RPC error; JSON-serialisable, or None."""
        return None


class PeerError(AcpError):
    """The other side of a connection broke a rule of JSON-RPC or ACP."""


class InvalidRequestError(PeerError):
    """JSON, but not a JSON-RPC message, or one that comes too early."""

    code = INVALID_REQUEST


class MethodNotFoundError(PeerError):
    """Nobody here answers `method`."""

    code = METHOD_NOT_FOUND

    def __init__(self, method: str) -> None:
        super().__init__(f"method not found: {method}")
        self.method = method

    @property
    def data(self) -> dict[str, object]:
        return {"method": self.method}


class InvalidParamsError(PeerError):
    """Parameters that break the protocol; `field` names the wrong one, as a JSON path."""

    code = INVALID_PARAMS

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    @property
    def data(self) -> dict[str, object] | None:
        return None if self.field is None else {"field": self.field}


DATA_CHARACTERS = 500
"""Most of the data of a peer's error that its text shows."""


class RemoteError(AcpError):
    """The other side answered a request with an error.

    `code` and `message` are those of its error object, `raw` is the object as it came; as text it
    is the message with the object's `data`.
    """

    def __init__(self, code: int, message: str, raw: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.raw = raw

    def __str__(self) -> str:
        if b'"data"' not in self.raw:
            return self.message
        from json import dumps, loads  # late: rarely needed

        try:
            data = loads(self.raw).get("data")
        except (ValueError, AttributeError, RecursionError):
            return self.message
        if data in (None, "", {}, [], self.message):
            return self.message
        if isinstance(data, dict) and all(str(it) in self.message for it in data.values()):
            return self.message  # which says it all
        told = data if isinstance(data, str) else dumps(data, ensure_ascii=False)
        told = " ".join(told.split())
        cut = f"{told[:DATA_CHARACTERS]}…" if len(told) > DATA_CHARACTERS else told
        return f"{self.message} ({cut})"


class RequestCancelledError(AcpError):
    """The request was cancelled before it was answered."""

    code = REQUEST_CANCELLED


class ConnectionLostError(AcpError):
    """The other side of a connection went away."""


class SilentPeerError(ConnectionLostError):
    """The other side exists, but takes no connection or does not answer."""


class RemoteRefusalError(AcpError):
    """The server at `address` does not let us in; `status` is its HTTP status.

    `why` says what that means and what to do, `told` is the server's own explanation.
    """

    def __init__(self, address: str, status: int, why: str, told: str = "") -> None:
        said = f'HTTP {status}: "{told}"' if told else f"HTTP {status}"
        super().__init__(f"{address}: {why} ({said})")
        self.address = address
        self.status = status


class SettingsError(AcpError):
    """The settings file cannot be used, or has no agent of that name; names the line or key."""


class MissingExtraError(SettingsError):
    """A package of the optional `extra` is not installed; the message has the command for that."""

    def __init__(self, needy: str, extra: str, package: str = "acp-wire") -> None:
        super().__init__(
            f"{needy} needs: pip install '{package}[{extra}]' (the same with `pipx install "
            "--force` or `uv tool install`, or in a checkout ACPHOLD_FOLDERS=1 and '.[all]')"
        )
        self.extra = extra


class IncidentError(AcpError):
    """An author's code raised; the log has the exception under `incident`."""

    def __init__(self, incident: str) -> None:
        super().__init__(f"internal error (incident {incident})")
        self.incident = incident

    @property
    def data(self) -> dict[str, object]:
        return {"incident": self.incident}


class AgentError(AcpError):
    """The wrapped program failed us."""


class AgentStartError(AgentError):
    """The program cannot be started, ended at once, or never answered `initialize`."""


class ExportError(AcpError):
    """A file or folder of an export cannot be written."""


class WorkspaceError(AcpError):
    """A file or a terminal of a session cannot be served as requested."""


class OutsideRootsError(WorkspaceError):
    """`path` leads to `target`, which is outside the session's folders, `roots`."""

    code = INVALID_PARAMS

    def __init__(self, path: str, target: str, roots: tuple[str, ...]) -> None:
        via = "" if path == target else f" leads to {target!r}, which"
        folders = ", ".join(map(repr, roots))
        super().__init__(f"{path!r}{via} is outside the folders of this session: {folders}")
        self.path = path
        self.target = target
        self.roots = roots

    @property
    def data(self) -> dict[str, object]:
        return {"path": self.path, "roots": self.roots}


class MissingFileError(WorkspaceError):
    """There is no such file, or no such folder."""

    code = RESOURCE_NOT_FOUND


class NotTextError(WorkspaceError):
    """Not a text file: a folder, a device, a pipe, or bytes that are not UTF-8."""

    code = INVALID_PARAMS


class FileTooLargeError(WorkspaceError):
    """The file is larger than one read allows; part of it, by lines, can be read."""

    code = INVALID_PARAMS


class FileAccessError(WorkspaceError):
    """The system refuses: no permission, a full disk, a changing path."""


class TerminalStartError(WorkspaceError):
    """The command cannot be run, or too many terminals are kept already."""


class UnknownTerminalError(WorkspaceError):
    """The terminal was never created here, was released, or went with its client."""

    code = RESOURCE_NOT_FOUND

    def __init__(self, terminal_id: str, reason: str | None = None) -> None:
        super().__init__(reason or f"no terminal {terminal_id!r} here; was it released?")
        self.terminal_id = terminal_id
