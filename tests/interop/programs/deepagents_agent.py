"""deepagents-acp with its checkpoints in memory: a real agent that forgets all when it ends.

Run by the Python that has deepagents; OPENAI_BASE_URL says where its model is.
"""

# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import asyncio
from typing import Any

from acp import run_agent
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from deepagents_acp.server import AgentServerACP
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import MemorySaver


async def _main() -> None:
    model = ChatOpenAI(model="stand-in", streaming=True)
    memory = MemorySaver()

    def make(context: Any) -> Any:
        files = FilesystemBackend(root_dir=context.cwd, virtual_mode=False)
        asking = {"write_file": True}
        return create_deep_agent(
            model=model, checkpointer=memory, interrupt_on=asking, backend=files
        )

    await run_agent(AgentServerACP(agent=make))


if __name__ == "__main__":
    asyncio.run(_main())
