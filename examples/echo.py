"""The smallest agent: it says what it is told. Try it: `holdfast run examples/echo.py`."""

import holdfast

agent = holdfast.Agent("echo", version="1.0")


@agent.prompt
async def echo(turn: holdfast.Turn) -> None:
    await turn.say(turn.text)


if __name__ == "__main__":
    agent.run()
