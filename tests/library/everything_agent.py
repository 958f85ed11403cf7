"""An agent that obeys its prompts, and uses everything that the library has for that."""

from __future__ import annotations

import asyncio

import acphold

agent = acphold.Agent("everything", version="1")
agent.mode("ask", "Ask", "Asks first")
agent.mode("code")


@agent.prompt
async def do(turn: acphold.Turn) -> None:
    match turn.text.split():
        case ["set", key, value]:
            turn.session.store[key] = value
            await turn.say("kept")
        case ["get", key]:
            history = await turn.history()
            await turn.say(f"{turn.session.store.get(key)} {turn.session.mode} {history.turns}")
        case ["work"]:
            await work(turn)
        case ["hang"]:
            await turn.say("hanging")
            await asyncio.Event().wait()
        case ["mode", mode]:
            await turn.session.set_mode(mode)
        case ["title", *words]:
            await turn.title(" ".join(words) or None)
        case _:
            try:
                await use_tools(turn)
            except acphold.AcpError as error:
                await turn.say(str(error))


async def work(turn: acphold.Turn) -> None:
    await turn.think("I should look ")
    await turn.think("first")
    await turn.plan(["look", "change"])
    async with turn.tool("Look", kind="read", input={"path": "a.txt"}) as call:
        await call.content("what I saw")
        await call.diff("/a.txt", "new", "old")
        await call.output({"changed": True})
    await turn.usage(10, 100, 0.01)
    for word in ("All ", "of it ", "done."):
        await turn.say(word)


async def use_tools(turn: acphold.Turn) -> None:
    match turn.text.split(maxsplit=2):
        case ["read", path]:
            await turn.say(await turn.files.read(path))
        case ["write", path]:
            await turn.files.write(path, "changed")
        case ["run", command]:
            async with turn.terminal(command) as running:
                await running.wait()
                await turn.say((await running.output()).text)
        case ["mcp", server, tool]:
            result = await turn.mcp.call(server, tool, {"message": "hello"})
            await turn.say(result.text)
        case ["tools"]:
            servers = {tool.server for tool in await turn.mcp.tools()}
            await turn.say(" ".join(sorted(servers)))


if __name__ == "__main__":
    agent.run()
