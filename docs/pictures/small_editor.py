"""The editor of the pictures: one file, one agent behind acphold, and what that says."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

import acphold
from acp_wire.schema import AgentMessageChunk, TextContent, ToolCallStart, ToolCallUpdate

COLUMNS = 78

write = partial(print, flush=True)


async def main(command: list[str]) -> None:
    write(f"\x1b[7m{'  editor │ retry.py │ agent: coder':<{COLUMNS}}\x1b[0m\n")
    async with acphold.connect(*command) as agent:
        session = await agent.new_session()
        while True:
            words = await asyncio.to_thread(input, "\x1b[1;36m    you\x1b[0m  ")
            write("\n\x1b[1;32m  agent\x1b[0m  ", end="")
            column = 0
            async for update in session.prompt(words):
                match update:
                    case AgentMessageChunk(content=TextContent(text=text)):
                        if column + len(text) > COLUMNS - 10:
                            write("\n         ", end="")
                            column = 0
                        write(text, end="")
                        column += len(text)
                    case ToolCallStart(title=title):
                        write(f"\n\n\x1b[1;35m   tool\x1b[0m  ◐ {title}", end="")
                    case ToolCallUpdate(status="completed"):
                        write("  \x1b[32m● completed\x1b[0m\n\n         ", end="")
                        column = 0
                    case _:
                        pass
            write("\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
