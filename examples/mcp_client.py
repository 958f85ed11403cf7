"""An MCP client: uses the servers that the editor names for the session.

    tools                          what there is
    call SERVER TOOL {"a": 1}      call a tool; arguments are JSON
    read SERVER URI                read a resource

The prompts of the servers are slash commands by themselves.
"""

from __future__ import annotations

import json

import acphold

agent = acphold.Agent("mcp-client", version="1.0", title="MCP client")


@agent.prompt
async def use(turn: acphold.Turn) -> None:
    match turn.text.split(maxsplit=3):
        case ["tools"]:
            for tool in await turn.mcp.tools():
                await turn.say(f"- `{tool.server}` `{tool.name}`: {tool.description or ''}\n")
            for name in turn.mcp:
                if (error := turn.mcp[name].error) is not None:
                    await turn.say(f"- {error}\n")
        case ["call", server, tool_name, *rest]:
            await call(turn, server, tool_name, rest[0] if rest else "{}")
        case ["read", server, uri]:
            for contents in await turn.mcp[server].read_resource(uri):
                if isinstance(contents, acphold.TextResourceContents):
                    await turn.say(contents.text)
        case _:
            await turn.say(turn.text)  # what a server made of one of its prompts, for instance


async def call(turn: acphold.Turn, server: str, name: str, text: str) -> None:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        await turn.say(f"The arguments are no JSON: {error}")
        return
    question, remember = f"Call {name} of {server}?", f"{server}/{name}"
    if not await turn.ask_permission(question, input=arguments, remember=remember):
        return
    try:
        result = await turn.mcp.call(server, name, arguments)
    except acphold.McpError as error:
        await turn.say(str(error))
    else:
        await turn.say(result.text)


if __name__ == "__main__":
    agent.run()
