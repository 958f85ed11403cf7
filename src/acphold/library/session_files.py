"""Files of a session, for its turns to read and write.

Source: spec v1, file system; session setup, "Working Directory".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from acphold.errors import (
    RESOURCE_NOT_FOUND,
    FileAccessError,
    InvalidParamsError,
    MissingFileError,
    RemoteError,
    WorkspaceError,
)
from acphold.library.client_side import UNANSWERED
from acphold.schema import (
    READ_TEXT_FILE,
    WRITE_TEXT_FILE,
    ReadTextFileRequest,
    WriteTextFileRequest,
)

if TYPE_CHECKING:
    from acphold.library.client_side import ClientSide
    from acphold.workspace.files import Files
    from acphold.workspace.roots import Roots
    from acphold.workspace.threads import Threads


class Folders:
    """The folders of a session on this machine; imports nothing for them before their first use."""

    def __init__(self, cwd: str, additional: tuple[str, ...]) -> None:
        self.cwd = cwd
        self._additional = additional

    @cached_property
    def roots(self) -> Roots:
        """The meaning of paths inside them; its methods block."""
        from acphold.workspace.roots import Roots

        return Roots(self.cwd, self._additional)

    @cached_property
    def files(self) -> Files:
        """The files inside them."""
        from acphold.workspace.files import Files

        return Files(self.roots)

    async def named(self, path: str) -> str:
        """Return the absolute path of a file, for a client, after checking that it is inside."""
        return await self._threads.run(lambda _: self.roots.named(path))

    async def folder(self, path: str) -> str:
        """Return the absolute path of a folder inside them; raises WorkspaceError."""
        return await self._threads.run(lambda _: self.roots.folder(path))

    @cached_property
    def _threads(self) -> Threads:
        from acphold.workspace.threads import Threads

        return Threads(at_once=8)


class SessionFiles:
    """Text files inside the session's folders.

    A client that serves files is asked for them, because it also has unsaved text. Otherwise
    they are read and written here, a file in one step. A relative path starts at the session's
    `cwd`, wherever the agent was started.

    All methods raise WorkspaceError: OutsideRootsError for a path that leads out of the folders,
    also through links; MissingFileError; NotTextError (a folder, a device, not UTF-8); and
    FileAccessError. InvalidParamsError is for values that no path or line can have.
    """

    def __init__(self, client: ClientSide, folders: Folders) -> None:
        self._client = client
        self._folders = folders

    async def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file: all of it, or at most `limit` lines from line `line` on.

        Lines count from 1; past the end the text is "". Raises FileTooLargeError for more than
        10 MiB at once.
        """
        for field, value in (("line", line), ("limit", limit)):
            if value is not None and value < 0:
                raise InvalidParamsError(f"{field} is negative: {value}", field)
        if self._client.capabilities.fs.read_text_file:
            request = ReadTextFileRequest(
                session_id=self._client.session_id,
                path=await self._folders.named(path),
                line=line,
                limit=limit,
            )
            try:
                return (await self._client.ask(READ_TEXT_FILE, request)).content
            except UNANSWERED:
                pass  # the client that prompted is not the one with that capability
            except RemoteError as exc:
                raise _refusal(path, "read", exc) from exc
        return await self._folders.files.read(path, line=line, limit=limit)

    async def write(self, path: str, content: str) -> None:
        """Write a file: `content` is its whole text; a missing file is created."""
        if self._client.capabilities.fs.write_text_file:
            request = WriteTextFileRequest(
                session_id=self._client.session_id,
                path=await self._folders.named(path),
                content=content,
            )
            try:
                await self._client.ask(WRITE_TEXT_FILE, request)
            except UNANSWERED:
                pass
            except RemoteError as exc:
                raise _refusal(path, "write", exc) from exc
            else:
                return
        await self._folders.files.write(path, content)

    async def folder(self, path: str) -> str:
        """Return the absolute path of a folder inside the session's; raises WorkspaceError."""
        return await self._folders.folder(path)


def _refusal(path: str, verb: str, error: RemoteError) -> WorkspaceError:
    if error.code == RESOURCE_NOT_FOUND:
        return MissingFileError(f"there is no file {path!r}: {error}")
    return FileAccessError(f"the client cannot {verb} {path!r}: {error}")
