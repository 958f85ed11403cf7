"""The smallest agent: it says what it is told. Try it: `acphold agent run examples/echo.py`."""

import acphold

agent = acphold.Agent("echo", version="1.0")


@agent.prompt
async def echo(turn: acphold.Turn) -> None:
    await turn.say(turn.text)


if __name__ == "__main__":
    agent.run()
