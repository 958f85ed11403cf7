"""A client in memory, for the tests of an agent.

    async with acphold.testing.connect(agent) as client:
        session = await client.new_session()
        result = await session.prompt("hello")
        assert result.text == "hello"

Everything is real but the pipe: the same protocol, the same journal (in a folder that is deleted
afterwards), the same sessions. `client.restart()` shows what outlives the process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from acphold.library.agent import definition_of
from acphold.schema import (
    BooleanConfigOptionCapabilities,
    ClientCapabilities,
    ClientSessionCapabilities,
    CompactionCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    NoticeCapabilities,
    SessionConfigOptionsCapabilities,
)
from acphold.serve_options import AgentOptions
from acphold.testing.client import Client, ClientSession
from acphold.testing.person import Answer, Form, Permission, Person
from acphold.testing.received import Received, Result
from acphold.testing.wire import Wire

if TYPE_CHECKING:
    from acphold.library.agent import Agent

__all__ = ["Client", "ClientSession", "Received", "Result", "connect"]


@asynccontextmanager
async def connect(
    agent: Agent,
    *,
    permission: Permission = "allow_once",
    form: Form | None = None,
    buffers: Mapping[str, str] | None = None,
    answers: Mapping[str, Answer] | None = None,
    capabilities: ClientCapabilities | None = None,
    journal: str | os.PathLike[str] | None = None,
    mcp_timeout: float = 10.0,
    cancel_grace: float = 10.0,
) -> AsyncIterator[Client]:
    """A client of `agent` for the block.

    It shows notices, compactions and boolean options, and offers what it is given: forms with
    `form`, files with `buffers` (open files by absolute path; others are read from the disk).
    `capabilities` says instead what it offers, and `answers` what it answers to a method.
    `permission` is how the person answers. `journal` is a path, by default one in a folder of its
    own.
    """
    definition_of(agent)  # one without a prompt handler is refused before it is asked
    if capabilities is None:
        has_files = buffers is not None
        forms = None
        if form is not None:
            forms = ElicitationCapabilities(form=ElicitationFormCapabilities())
        capabilities = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=has_files, write_text_file=has_files),
            session=ClientSessionCapabilities(
                config_options=SessionConfigOptionsCapabilities(
                    boolean=BooleanConfigOptionCapabilities()
                ),
                notices=NoticeCapabilities(),
                compaction=CompactionCapabilities(),
            ),
            elicitation=forms,
        )
    with tempfile.TemporaryDirectory(prefix="acphold-test-") as folder:
        wire = Wire(
            agent,
            AgentOptions(
                journal=Path(folder, "journal.db") if journal is None else Path(journal),
                mcp_timeout=mcp_timeout,
                cancel_grace=cancel_grace,
            ),
            capabilities,
            Person(permission, form, None if buffers is None else dict(buffers), answers or {}),
        )
        try:
            await wire.start()
            yield Client(wire)
        finally:
            await wire.stop()
