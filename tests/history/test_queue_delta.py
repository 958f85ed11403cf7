"""What is sent of a queue that has changed: little, and all that a client needs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from acp_wire.schema import encode
from acphold.record.history.prompt_queue import (
    NO_QUEUE,
    EndedPrompt,
    PromptQueue,
    QueueDelta,
    WaitingPrompt,
    after_entry,
    apply_delta,
    difference,
)
from tests.npm import NODE

PAGE = Path(__file__).parents[1] / "page" / "model" / "queue.mjs"


def states(seed: int) -> list[PromptQueue]:
    """States that follow each other in the life of a queue, or are far apart."""
    random, queue, found = Random(seed), NO_QUEUE, [NO_QUEUE]
    for seq in range(1, 40):
        ids = [it.id for it in queue.waiting] or ["none"]
        one, other = random.choice(ids), random.choice(["", *ids])
        do = random.choice(["add", "add", "edit", "move", "drop", "begin", "hold", "go", "set"])
        change: dict[str, object] = {
            "do": do,
            "id": str(seq) if do == "add" else one,
            "before": other,
        }
        if do in ("add", "edit"):
            change["prompt"] = [{"type": "text", "text": f"prompt {seq}"}]
        queue = after_entry(queue, encode(change), seq, seq)
        if queue.begun is not None and random.random() < 0.5:
            begun = EndedPrompt(queue.begun.id, queue.begun.words, "done", seq)
            queue = replace(queue, begun=None, ended=(*queue.ended, begun)[-3:])
        if random.random() < 0.1:
            mixed = random.sample(queue.waiting, len(queue.waiting))
            queue = replace(queue, waiting=tuple(mixed))
        if random.random() < 0.8:
            found.append(queue)
    return found


def test_a_client_that_applies_each_difference_has_the_state_here_and_on_the_page(
    tmp_path: Path,
) -> None:
    lines = []
    for seed in range(200):
        for before, after in zip(found := states(seed), found[1:], strict=False):
            sent = encode(difference(before, after))
            delta = msgspec.json.decode(sent, type=QueueDelta)
            assert apply_delta(before, delta) == after, (before, after)
            lines.append(encode({"before": before, "delta": delta, "after": after}))
    file = tmp_path / "deltas.jsonl"
    file.write_bytes(b"\n".join(lines))
    done = subprocess.run(
        [NODE, str(PAGE), str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"applied": len(lines), "wrong": []}


def test_what_one_change_sends_does_not_grow_with_the_queue() -> None:
    waiting = tuple(WaitingPrompt(f"{n:08x}", n, f"prompt {n}") for n in range(1000))
    full = PromptQueue(waiting=waiting)
    first, *rest = waiting
    for after in (
        (*waiting, WaitingPrompt("new", 1000, "the last one")),
        (*rest, first),
        (waiting[-1], *waiting[:-1]),
        (*waiting[:500], *waiting[501:]),
        (*waiting[:500], replace(waiting[500], words="else"), *waiting[501:]),
    ):
        assert len(encode(difference(full, replace(full, waiting=after)))) < 250
