"""What a session is owed after any order of losses, for every program that keeps a line.

`lines/line.py` has the rules. The page of `serve` keeps its lines in the browser, by the same rules
(web/page/wire/line.js): both do these steps, and owe the same after each. Some are kept in
`corpus/lines.jsonl`, so that a change of the rules shows; `python -m tests.lines.line_cases` writes
them again.

    step                        what it is owed
    --------------------------  -----------------------------------------------------------------
    open POSITION LINEAGE       - (the session is opened after this position)
    told POSITION               the position of the client, which never goes back
    prompt ID                   the prompt as it is sent; None while there is no connection
    answered ID                 -
    question ID                 the client's earlier answer to it, None if it has to be asked
    give QUESTION ANSWER        -
    cut                         -
    back LINEAGE                the resume over the new connection, and the prompts after it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from acp_wire.schema import PROMPT
from acphold.live.lines.line import LastingLine, OpenSession, Pending

FILE = Path(__file__).with_name("corpus") / "lines.jsonl"
KEPT = 60

Json: TypeAlias = Any
Step: TypeAlias = Sequence[Json]

SESSION = "s"


def steps(seed: int) -> list[Step]:
    """A random order of steps, each of which may happen after those before it."""
    random = Random(seed)
    position, prompts, questions = random.randrange(50), list[str](), list[str]()
    is_up, number = True, 0
    found: list[Step] = [("open", position, random.choice(["", "L1"]))]
    for _ in range(random.randrange(4, 40)):
        match random.choice(["told", "told", "prompt", "answered", "question", "link", "open"]):
            case "told" if is_up:  # also late ones, and some twice
                position = max(0, position + random.randrange(-3, 9))
                found.append(("told", position))
            case "prompt":
                number += 1
                prompts.append(f"p{number}")
                found.append(("prompt", prompts[-1]))
            case "answered" if is_up and prompts:
                found.append(("answered", prompts.pop(random.randrange(len(prompts)))))
            case "question" if is_up:
                asked = f"q{random.randrange(3)}"
                found.append(("question", asked))
                if asked not in questions and random.random() < 0.7:
                    questions.append(asked)
                    found.append(("give", asked, f"{asked} yes"))
            case "link":
                lineage = random.choice([None, "L2"])
                found.append(("cut",) if is_up else ("back", lineage))
                is_up = not is_up
            case "open" if is_up and random.random() < 0.2:  # an earlier end may be read again
                position = max(0, position - random.randrange(5))
                found.append(("open", position, "L3"))
    if not is_up:
        found.append(("back", None))
    return found


def owed(case: Sequence[Step]) -> list[Json]:
    """What the line says after each step; None for a step that says nothing."""
    line = LastingLine[str]()
    line.knows_positions = True
    waiting: dict[str, Pending[str]] = {}
    is_up = True

    def sent(asked: Pending[str]) -> Json:
        place = line.send(asked)
        named = {"id": asked.sent_id}
        return named if place is None else {**named, "after": place.position}

    def take(step: Step) -> Json:
        nonlocal is_up
        match step:
            case "open", position, lineage:
                line.sessions[SESSION] = OpenSession(b"{}", position, lineage=lineage or None)
            case "told", position:
                line.sessions[SESSION].advance(position)
                return line.sessions[SESSION].position
            case "prompt", id_:
                asked = waiting[id_] = line.ask(id_, PROMPT.name, b"{}", SESSION)
                asked.sent_id = id_
                return sent(asked) if is_up else None
            case "answered", id_:
                assert line.on_answer(waiting.pop(id_), b"{}")
            case "question", question:
                given = line.answer_to(question)
                return None if given is None else json.loads(given)
            case "give", question, answer:
                line.give(question, json.dumps(answer).encode())
            case ("cut",):
                is_up = False
            case "back", lineage:
                is_up = True
                [resumed], refused, asked_again = line.on_reconnect()
                assert refused == []
                opened = resumed.opened
                resume = {"after": opened.position, "lineage": opened.lineage}
                opened.on_resumed(lineage)
                prompts = [sent(asked) for asked in asked_again]
                return {**resume, "sent": list(resumed.known), "prompts": prompts}
            case _:
                raise ValueError(step)
        return None

    return [take(step) for step in case]


def line_of(name: str, case: Sequence[Step]) -> str:
    """A case as a line of JSON."""
    return json.dumps({"name": name, "steps": case, "owed": owed(case)}) + "\n"


def kept() -> str:
    """The cases of `corpus/lines.jsonl`."""
    return "".join(_kept())


def _kept() -> Iterator[str]:
    for seed in range(KEPT):
        yield line_of(f"random {seed}", steps(seed))


if __name__ == "__main__":
    FILE.write_text(kept(), encoding="utf-8")
