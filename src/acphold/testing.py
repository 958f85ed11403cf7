"""A client in memory, for the tests of an agent.

    async with acphold.testing.connect(agent) as client:
        session = await client.new_session()
        turn = await session.prompt("hello")
        assert turn.text == "hello"

Everything is real but the pipe: the client of `acphold.connect`, the same protocol, the same
journal (in a folder that is deleted afterwards). `client.restart()` shows what survives the
process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from acp_wire.schema import ClientCapabilities, Implementation
from acphold.client.advertised import Folder, require_folder
from acphold.client.answers import (
    Answers,
    AskForm,
    AskPage,
    AskPermission,
    Handler,
    PermissionAnswer,
    Policy,
)
from acphold.client.uplink import UplinkSettings
from acphold.extras import require_loop
from acphold.library.agent import Agent, definition_of
from acphold.library.memory_client import (
    Received,
    Recording,
    WatchedAgent,
    WatchedSession,
    WatchedTurn,
    decides,
    handlers as editor,
)
from acphold.serve_options import AgentOptions

__all__ = [
    "Received",
    "WatchedAgent",
    "WatchedSession",
    "WatchedTurn",
    "connect",
]


@asynccontextmanager
async def connect(
    agent: Agent,
    *,
    permission: Policy | None = None,
    on_permission: AskPermission | Sequence[PermissionAnswer] | None = None,
    on_form: AskForm | None = None,
    on_page: AskPage | None = None,
    files: bool | Sequence[Folder] | Mapping[str, str] = False,
    terminals: bool = False,
    handlers: Mapping[str, Handler] | None = None,
    client_info: Implementation | None = None,
    capabilities: ClientCapabilities | None = None,
    journal: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,  # noqa: ASYNC109 - as in all of the API
    raise_agent_exceptions: bool = True,
    mcp_timeout: float = 10.0,
    cancel_grace: float = 10.0,
) -> AsyncIterator[WatchedAgent]:
    """Connect a client to `agent` for the block.

    As in `acphold.connect`, but: without `permission` and `on_permission` everything is allowed.
    `on_permission` may be one answer to all, or the answers, one after the other; after the last a
    question stays open. `files` may be texts by absolute path, like an editor's unsaved files;
    others are then read from the disk. With any `files`, the session's folder and each of these
    folders must exist.

    With `raise_agent_exceptions`, exceptions of the agent's code are raised where the test waits
    for the answer, or at the end of the block; otherwise, and always for an AcpError, the client
    gets a RemoteError. No wait takes more than `timeout` seconds. `journal` is a path, by default
    in its own folder.
    """
    require_loop()
    definition_of(agent)  # one without a prompt handler is refused at once
    if permission is None and on_permission is None:
        permission = "allow"
    if on_permission is not None and not callable(on_permission):
        on_permission = decides(on_permission)
    texts = dict(files) if isinstance(files, Mapping) else None
    folders: bool | list[str] = files is True
    if texts is not None:
        if relative := [path for path in texts if not os.path.isabs(path)]:
            raise ValueError(f"files: {relative[0]!r} is not an absolute path")
    elif not isinstance(files, bool | Mapping):
        folders = [require_folder(path) for path in files]
    answers = Answers(
        permission=permission,
        on_permission=on_permission,
        on_form=on_form,
        on_page=on_page,
        files=folders,
        terminals=terminals,
        handlers={**({} if texts is None else editor(texts)), **(handlers or {})},
    )
    if capabilities is None:
        capabilities = answers.capabilities
        if texts is not None:
            capabilities = replace(capabilities, fs=replace(answers, files=True).capabilities.fs)
    with tempfile.TemporaryDirectory(prefix="acphold-test-") as folder:
        recording = Recording(
            agent,
            AgentOptions(
                journal=Path(folder, "journal.db") if journal is None else journal,
                mcp_timeout=mcp_timeout,
                cancel_grace=cancel_grace,
            ),
            UplinkSettings(
                client_info=client_info or Implementation(name="acphold.testing", version="1"),
                capabilities=capabilities,
                start_timeout=timeout,
                silence=timeout,
                cancel_grace=2 * cancel_grace,
            ),
            answers,
            deadline=timeout,
            raises=raise_agent_exceptions,
        )
        try:
            await recording.start()
            yield WatchedAgent(recording, texts, serves_files=bool(files))
        finally:
            await recording.stop()
        recording.raise_left()
