"""Each face draws the blocks of a hostile question: all of its characters, none that is hidden."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode
from playwright.async_api import Page, expect

import acphold
from acp_wire.visible_text import exact, visible
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.blocks import (
    CHARACTERS,
    HEAD_LINES,
    LINES,
    TAIL_LINES,
    Block,
)
from acphold.conversation.presentation.permissions import Permission, permission
from acphold.faces.screen.panels import call_details
from tests.npm import NODE
from tests.page.cards import CARDS
from tests.page.conftest import OPTIONS, ask, opened, steps

MODEL = Path(acphold.__file__).parent / "web" / "page" / "model"
PARTS = """
import { readFileSync } from "node:fs";
const { mayAllow, partsOf } = await import(process.argv[1]);
const drawn = (parts) => [mayAllow(parts), parts.map(({ block, isOpen, pieces, rows }) =>
  [block.kind, block.name ?? "", isOpen ? "" : block.cut, pieces, rows])];
const cards = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cards.map(({ blocks }) => {
  const parts = partsOf(blocks, []);
  return [drawn(parts), drawn(partsOf(blocks, parts.map(({ id }) => id)))];
})));
"""


def scene(call: dict[str, Any]) -> Permission:
    fields = {name: json.dumps(value).encode() for name, value in call.items()}
    return permission(fields, json.dumps({"toolCall": call, "options": OPTIONS}).encode())


def texts(value: object) -> Iterator[str]:
    """All texts in a value, and the names in it."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from texts(each)
        case dict():
            for name, each in value.items():
                yield from (name, *texts(each))
        case _:
            yield json.dumps(value)


def said_by(call: dict[str, Any]) -> Iterator[str]:
    """Every line of a call that could be read; not those that a diff leaves as they are."""
    yield call.get("title", "")
    yield from (it["path"] for it in call.get("locations", []))
    yield from texts(call.get("rawInput", ""))
    for item in call.get("content", []):
        if item["type"] == "diff":
            old, new = (set((item[it] or "").splitlines()) for it in ("oldText", "newText"))
            yield from (item["path"], *(old ^ new))
        elif item["type"] == "content" and item["content"]["type"] == "text":
            yield item["content"]["text"]
        else:
            yield from (it for it in texts(item) if it not in ("type", "content"))


FOLDED = re.compile(r"^ *(?:#+|-) |\*\*|\s|`|\\+[xn](?:0d|0a)?", re.MULTILINE)
"""Where lines end is drawn, or marked; so are what Markdown says is strong, code, a point."""


def bare(text: str) -> str:
    return FOLDED.sub("", text)


def missing(call: dict[str, Any], shown: str) -> list[str]:
    """The lines of a call that are not in what is shown of it."""
    whole = bare(shown)
    ways = (exact, visible, lambda it: exact(json.dumps(it, ensure_ascii=False)[1:-1]))
    return [
        line
        for text in said_by(call)
        for line in text.splitlines()
        if not any(bare(way(line)).rstrip("…") in whole for way in ways)
    ]


# What the scene says that it does not repeat is shown under the name that it gives.
NAMED = {
    "a folder outside with detours": ["parentDir"],
    "folders outside": ["directories", "patterns", "/etc/*"],
    "a content that the diff has": ["content"],
    "a content of one line": ["content"],
    "a resource": [],
}


def whole(block: Block) -> str:
    lines = (f"{it.sign} {it.text}" for it in block.lines)
    return "\n".join([block.name or block.kind, block.whole, *lines])


def test_all_of_a_call_is_in_its_blocks_and_nothing_in_them_is_hidden() -> None:
    for about in CARDS:
        blocks = scene(CARDS[about]).blocks
        shown = "\n".join(map(whole, blocks))
        known = ("file_path", "filepath", *NAMED.get(about, ()))
        assert [it for it in missing(CARDS[about], shown) if it not in known] == [], about
        given = CARDS[about].get("rawInput", {})
        run = [given[name] for name in ("cmd", "command", "script") if name in given]
        commands = [block.text for block in blocks if block.kind == "command"]
        assert all(exact(it) in commands for it in run if isinstance(it, str)), about
        for block in blocks:
            marked = visible if block.kind in ("text", "diff") else exact
            assert marked(block.whole) == block.whole, about
            assert exact(block.name) == block.name, about
            assert [visible(line.text) for line in block.lines] == [it.text for it in block.lines]
            count = max(len(block.lines), block.whole.count("\n") + 1)
            is_long = count > LINES or len(block.whole) > CHARACTERS
            is_whole = block.kind in ("command", "path") or block.is_prose
            assert bool(block.cut) == (is_long and not is_whole), about
            if block.cut and not block.lines:
                assert re.fullmatch(r"… [\d,]+ more (line|character)s", block.cut)
                assert block.text
                assert block.last
                assert block.rest
                assert block.text.count("\n") <= HEAD_LINES
                assert block.last.count("\n") <= TAIL_LINES


def test_the_terminal_draws_all_of_these_blocks() -> None:
    for about in CARDS:
        fields = {name: json.dumps(value).encode() for name, value in CARDS[about].items()}
        drawn = "\n".join(line.plain for line in call_details(ToolCall("t1", fields)).lines)
        for block in scene(CARDS[about]).blocks:
            for line in (block.name, *block.whole.split("\n"), *(it.text for it in block.lines)):
                assert line in drawn, about


def test_the_page_draws_these_blocks_and_a_yes_waits_until_all_could_be_read() -> None:
    scenes = [scene(call) for call in CARDS.values()]
    command = [NODE, "--input-type=module", "--eval", PARTS, (MODEL / "questions.js").as_uri()]
    done = subprocess.run(
        command, input=encode(scenes), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for each, (cut, whole_) in zip(scenes, json.loads(done.stdout), strict=True):
        assert cut[0] == (not any(block.cut for block in each.blocks))
        assert whole_[0]
        for block, (kind, name, words, pieces, rows) in zip(each.blocks, cut[1], strict=True):
            assert (kind, name, words) == (block.kind, block.name, block.cut)
            if block.kind == "command":
                assert "".join(pieces) == block.text
            if block.cut and block.lines:
                assert [len(it) for it in rows] == [HEAD_LINES, 0, TAIL_LINES]
            elif block.cut:
                assert pieces == [block.text, "", block.last]
        for block, (*_, words, pieces, rows) in zip(each.blocks, whole_[1], strict=True):
            assert words == ""
            assert "".join(pieces) == block.whole
            assert [row[1] for some in rows for row in some] == [it.text for it in block.lines]


CLIPPED = """(card) => [...card.querySelectorAll(".scrolls *")].filter((it) => {
  const { overflowX, display, visibility, opacity, color } = getComputedStyle(it);
  const isClipped = overflowX !== "visible" && it.scrollWidth > it.clientWidth + 1;
  const isUnseen = display === "none" || visibility !== "visible" || opacity !== "1";
  return isClipped || isUnseen || (it.textContent.trim() && color.endsWith(", 0)"));
}).map((it) => it.outerHTML.slice(0, 200))"""
"""Elements of a card some of whose text cannot be seen."""

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
WIDTHS = ((360, 640), (1280, 800))
ROUNDS = 6


@pytest.mark.interop
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_in_a_browser_a_card_shows_all_of_its_call_before_it_can_be_allowed(
    page: Page, round_: int, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    for number, about in enumerate([*CARDS][round_::ROUNDS]):
        call = CARDS[about]
        turn = session.prompt(steps(ask(f"t{number}", **call)))
        cuts = [block for block in scene(call).blocks if block.cut]
        scrolls, cut = card.locator(".scrolls"), card.locator("button.cut")
        allow = card.get_by_role("button", name="Go on")
        for width, height in WIDTHS:
            await page.set_viewport_size({"width": width, "height": height})
            await expect(card.get_by_role("button", name="Stop it")).to_be_enabled()
            assert await page.evaluate(WIDER) <= 0, about
        assert await cut.all_inner_texts() == [block.cut for block in cuts], about
        shown = bare(await scrolls.text_content() or "")
        for block in scene(call).blocks:
            if not block.is_prose:
                assert bare(block.text) in shown, about
                assert bare(block.last) in shown, about
        for block in cuts:
            await expect(allow).to_be_disabled()
            await cut.filter(has_text=block.cut).first.click()
        await expect(allow).to_be_enabled()
        shown = await scrolls.text_content() or ""
        known = ("file_path", "filepath", "command", *NAMED.get(about, ()))
        for width, height in reversed(WIDTHS):
            await page.set_viewport_size({"width": width, "height": height})
            assert [it for it in missing(call, shown) if it not in known] == [], about
            assert await card.evaluate(CLIPPED) == [], about
            assert await page.evaluate(WIDER) <= 0, about
        await card.get_by_role("button", name="Stop it").click()
        await asyncio.wait_for(turn, 60)
