"""A file reviewer: reads the files you name, points out lines to mend, mends them if it may.

It shows a plan, tool calls with locations, diffs and output, two modes, an option, a slash
command, permissions whose answers are remembered, and a store that outlives restarts. No model
is involved: its only opinion is that lines end where their text ends, and are not too long.
"""

from __future__ import annotations

import acphold

agent = acphold.Agent("reviewer", version="1.0", title="File reviewer")
agent.mode("review", "Review", "Say what could be better, change nothing")
agent.mode("fix", "Fix", "Mend what can be mended, with permission")
agent.option(
    "width",
    "Line width",
    default="100",
    values=[("80", "80 columns"), ("100", "100 columns"), ("120", "120 columns")],
    description="Longer lines are pointed out",
)


@agent.prompt
async def review(turn: acphold.Turn) -> None:
    names = turn.text.split()
    if not names:
        await turn.say("Name the files I should look at, one or several.")
        return
    done = 0
    for name in names:
        await show_plan(turn, names, done)
        await review_file(turn, name)
        done += 1
    await show_plan(turn, names, done)
    turn.session.store["reviewed"] = turn.session.store.get("reviewed", 0) + done


async def show_plan(turn: acphold.Turn, names: list[str], done: int) -> None:
    await turn.plan(
        [
            acphold.PlanEntry(
                content=f"Review {name}",
                priority="medium",
                status="completed" if place < done else "pending",
            )
            for place, name in enumerate(names)
        ]
    )


async def review_file(turn: acphold.Turn, name: str) -> None:
    try:
        async with turn.tool(f"Read {name}", kind="read", locations=[name]) as call:
            text = await turn.files.read(name)  # the editor's unsaved text, if it has the file open
            await call.output({"lines": text.count("\n")})
    except acphold.WorkspaceError as error:
        await turn.say(f"- {error}\n")
        return
    width = int(turn.session.config_options["width"])
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > width:
            await turn.say(f"- {name}:{number} has {len(line)} columns\n")
    mended = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if mended == text:
        await turn.say(f"- {name} ends its lines well\n")
    elif turn.session.mode == "fix":
        await fix_file(turn, name, text, mended)
    else:
        await turn.say(f"- {name} has lines that end in blanks; I could mend that in mode Fix\n")


async def fix_file(turn: acphold.Turn, name: str, text: str, mended: str) -> None:
    call = turn.tool(f"Mend {name}", kind="edit", locations=[name])
    await call.diff(name, mended, text)
    if not await turn.ask_permission(f"Mend {name}?", tool=call, remember="mend"):
        await turn.say(f"- {name} stays as it is\n")
        return
    async with call:
        await turn.files.write(name, mended)
    await turn.say(f"- {name} is mended\n")


@agent.command("count", "How many files were reviewed in this conversation")
async def count(turn: acphold.Turn, words: str) -> None:
    await turn.say(f"{turn.session.store.get('reviewed', 0)} so far.")


@agent.command("test", "Run a command, for instance the tests", hint="make test")
async def test(turn: acphold.Turn, words: str) -> None:
    async with turn.tool(f"Run {words}", kind="execute", input={"command": words}) as call:
        if not await turn.ask_permission(f"Run {words}?", tool=call):
            return
        async with turn.terminal("/bin/sh", "-c", words) as running:
            await call.terminal(running)
            ended = await running.wait()
    await turn.say(f"It ended with {ended.signal or ended.code}.")


if __name__ == "__main__":
    agent.run()
