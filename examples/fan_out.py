"""One question for several agents at once: what each has said, side by side, and who was quickest.

    python examples/fan_out.py "Where is the port set?" -- gemini --acp -- opencode acp

Each agent works in this folder and may read, but change nothing. What they say is printed as soon
as one is done; who needs longer than two minutes is cancelled, with what there is until then.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from time import monotonic

import acphold

SECONDS = 120.0


@dataclass
class Answer:
    """What one agent made of the question."""

    agent: str
    text: str
    how: str
    seconds: float


async def ask(command: Sequence[str], question: str) -> Answer:
    """Start an agent, ask it, and end it; an agent that fails is an answer, too."""
    began, name, text = monotonic(), command[0], ""
    try:
        async with acphold.connect(
            *command, permission={"read": "allow", "search": "allow", "*": "reject"}
        ) as agent:
            name = agent.name
            session = await agent.new_session()
            turn = session.prompt(question, timeout=SECONDS)
            try:
                await turn
            finally:
                text = turn.text
            how = turn.stop_reason or "no reason"
    except acphold.AcpError as error:
        how = str(error)
    return Answer(name, text, how, monotonic() - began)


async def fan_out(question: str, commands: Sequence[Sequence[str]]) -> list[Answer]:
    """Ask all of them, print each answer as it comes; the answers, the quickest first."""
    answers: list[Answer] = []
    for coming in asyncio.as_completed([ask(command, question) for command in commands]):
        answer = await coming
        print(f"== {answer.agent}, {answer.seconds:.1f} s: {answer.how}\n{answer.text}\n")
        answers.append(answer)
    return answers


def main(words: Sequence[str]) -> int:
    """The words of the command line: the question, and each agent's command behind a `--`."""
    parts = [list(group) for is_dash, group in groupby(words, lambda it: it == "--") if not is_dash]
    if len(parts) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    question, *commands = parts
    answers = asyncio.run(fan_out(" ".join(question), commands))
    return 0 if any(answer.text for answer in answers) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
