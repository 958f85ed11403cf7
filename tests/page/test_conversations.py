"""A conversation as it is read: actions, their authors, and finding one's way."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

import acphold
from acphold.imports.claude import READER as CLAUDE
from acphold.journal.rows import NewSession
from acphold.journal.stores import open_journal
from tests.editor import Refused, introduced, scripted_agent
from tests.imports.claude_home import CWD, Transcript, thinking, use
from tests.imports.told import Story
from tests.owners import lone_command
from tests.page.conftest import (
    ask,
    choose,
    choose_mode,
    did,
    opened,
    options_of,
    seen,
    steps,
    typed,
    violations,
)
from tests.raw_entries import ended, prompt
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


def picture(width: int, height: int) -> str:
    """A PNG of one colour."""
    rows = b"".join(b"\0" + b"\x20\x60\xa0" * width for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def call(id_: str, title: str, kind: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    """A step: a tool call."""
    told = {"toolCallId": id_, "title": title, "kind": kind, "status": status, **more}
    return {"update": {"sessionUpdate": "tool_call", **told}}


def text(words: str) -> dict[str, Any]:
    """Text produced by a tool call."""
    return {"type": "content", "content": {"type": "text", "text": words}}


TERMINAL = (
    "one\ntwo\n10%\r50%\r100%\n\x1b[31mFAILED\x1b[0m test_zone\n"
    "\x1b[38;5;208morange\x1b[0m\n\x1b[1m20 passed\x1b[0m, 1 failed"
)
PLAN = [
    {"content": "Read it", "status": "completed", "priority": "high"},
    {"content": "Mend it", "status": "in_progress", "priority": "high"},
]
DIFF = {"type": "diff", "path": "/w/a.py", "oldText": "one\ntwo\n", "newText": "one\n2\n3\n"}
CHILD = {"title": "Explorer", "description": "Find all readers.", "state": "running"}
SAID_IN_IT = {"type": "text", "text": "There are **more** of them."}
ALL_THAT_IT_DOES = (
    {"think": "I should look first."},
    {"update": {"sessionUpdate": "plan", "entries": PLAN}},
    call("r", "Read a.py", "read", locations=[{"path": "/w/src/a.py", "line": 7}]),
    call("e", "Edit a.py", "edit", content=[DIFF]),
    call(
        "x",
        "Run the tests",
        "execute",
        "failed",
        content=[text(TERMINAL)],
        rawInput={"command": "pytest -q tests/zone"},
    ),
    call("s", "Look elsewhere", "think", "in_progress"),
    {
        "update": {
            "sessionUpdate": "subagent_update",
            "sessionId": "child",
            "_meta": {"own": {"parentToolUseId": "s"}},
            **CHILD,
        }
    },
    {
        "line": json.dumps(
            {
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {
                    "sessionId": "child",
                    "update": {"sessionUpdate": "agent_message_chunk", "content": SAID_IN_IT},
                },
            }
        )
    },
    {
        "update": {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "image", "mimeType": "image/png", "data": picture(40, 20)},
        }
    },
    {"say": "See `src/a.py` and [the rest](https://example.org/docs)."},
)


@pytest.mark.parametrize("kind", ["allow_once", "reject_once"])
async def test_an_edit_that_was_allowed_keeps_its_diff_when_the_agent_says_only_that_it_is_done(
    page: Page, kind: str, session: acphold.RemoteSession
) -> None:
    diff = {"type": "diff", "path": "/a.py", "oldText": "1\n", "newText": "2\n3\n"}
    text = {"type": "content", "content": {"type": "text", "text": "Wrote the file."}}
    done = {"toolCallId": "t1", "status": "completed", "content": [text]}
    turn = session.prompt(
        steps(
            {"update": {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Edit a.py"}},
            ask("t1", kind="edit", content=[diff]),
            {"update": {"sessionUpdate": "tool_call_update", **done}},
        )
    )
    await opened(page, session.id)
    name = "Go on" if kind == "allow_once" else "Stop it"
    await page.locator(".asking").get_by_role("button", name=name).click()
    await asyncio.wait_for(turn, 60)
    tool = page.locator("details.tool")
    for _ in range(2):  # again as it is read from the journal
        await expect(tool).to_have_class("tool completed")
        changed = ["+2 \N{MINUS SIGN}1"] if kind == "allow_once" else []
        await expect(tool.locator("summary .sum")).to_have_text(changed)
        await tool.locator("summary").click()
        await expect(tool.get_by_text("Wrote the file.")).to_be_visible()
        await expect(tool.locator(".diff")).to_have_count(len(changed))
        await page.reload()


async def test_a_write_that_changes_nothing_says_so_and_has_no_empty_lines(
    page: Page, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    (path := tmp_path / "a.py").write_bytes(b"one\r\ntwo\r\n")
    same = {"type": "diff", "path": str(path), "oldText": "one\r\ntwo\r\n"}
    diffs = [{**same, "newText": same["oldText"]}, {**same, "newText": "one\ntwo\n"}]
    diffs.append({"type": "diff", "path": str(tmp_path / "none.py"), "newText": ""})
    turn = session.prompt(
        steps(
            call("t1", "Edit a.py", "edit", content=diffs),
            ask("t2", title="Write a.py", kind="edit", content=diffs[:1]),
        )
    )
    await opened(page, session.id)
    words = ["no change", "only line ends change", "empty"]
    tool = page.locator(".conversation details.tool").first
    await expect(tool.locator("summary .sum")).to_have_text(words)
    await tool.locator("summary").click()
    card = page.locator(".asking section.question")
    for where, told in ((tool, words), (card, words[:1])):
        await expect(where.locator("figcaption .sum")).to_have_text(told)
        await expect(where.locator("figcaption")).to_have_count(len(told))
        await expect(where.locator("figure .lines")).to_have_count(0)
    await card.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)


async def test_a_command_stands_in_letters_of_one_width_and_once_whatever_the_agent_calls_it(
    page: Page, session: acphold.RemoteSession
) -> None:
    given = {"command": "rm -rf build/all"}
    await did(
        page,
        session,
        call("t1", "rm -rf build", "execute"),
        call("t2", "rm -rf build/all", "execute", rawInput=given),
        call("t3", "rm -rf bu…", "execute", rawInput=given),
        call("t4", "Clean", "execute", rawInput=given),
    )
    titles = page.locator(".conversation .tool .title")
    words = ["rm -rf build", "rm -rf build/all", "rm -rf build/all", "Clean rm -rf build/all"]
    await expect(titles).to_have_text(words)
    await expect(titles.locator("code")).to_have_text([it.removeprefix("Clean ") for it in words])


async def test_commands_in_a_notice_are_drawn_as_code(
    page: Page, session: acphold.RemoteSession
) -> None:
    told = {"severity": "info", "description": "`acphold diff -` shows <it>."}
    notices = [{"sessionUpdate": "notice", "title": it, **told} for it in ("Kept", "Kept!", "")]
    await did(page, session, *({"update": it} for it in notices))
    notes = page.locator(".note")
    shown = "acphold diff - shows <it>."
    await expect(notes).to_have_text([f"Kept. {shown}", f"Kept! {shown}", shown])
    await expect(notes.first.locator("code")).to_have_text("acphold diff -")


async def test_words_that_run_from_right_to_left_begin_at_the_right_and_struck_ones_are_struck(
    page: Page, session: acphold.RemoteSession
) -> None:
    words = "\u0645\u0631\u062d\u0628\u0627"
    quoted = f"> {words} `a.py`\n>\n> ```\n> f(x)\n> ```"
    said = f"{words} `main.py`\n\n- {words}\n\n{quoted}\n\nnot ~~left~~ right"
    await did(page, session, {"say": said})
    places = """() => [...document.querySelectorAll(".said p, .said li")].map((it) => {
      const range = new Range();
      range.selectNodeContents(it);
      const [box, said] = [it.getBoundingClientRect(), range.getBoundingClientRect()];
      return box.right - said.right < said.left - box.left ? "right" : "left";
    })"""
    await expect(page.locator(".said del")).to_have_css("text-decoration-line", "line-through")
    assert await page.evaluate(places) == ["right", "right", "right", "left"]
    directions = "(all) => all.map((it) => getComputedStyle(it).direction)"
    assert await page.locator(".said code").evaluate_all(directions) == ["ltr", "ltr", "ltr"]


async def test_all_that_an_agent_does_is_there_in_a_line_that_opens(
    page: Page, session: acphold.RemoteSession
) -> None:
    await did(page, session, *ALL_THAT_IT_DOES)
    sheet = page.locator(".sheet")
    # Thoughts are folded, the plan is not while there is something to do.
    thought = sheet.locator("details.thought")
    await expect(thought.locator(".prose")).to_have_count(0)
    await thought.locator("summary").click()
    await expect(thought.locator(".prose")).to_have_text("I should look first.")
    await expect(sheet.locator("details.plan[open]")).to_contain_text("1 of 2")
    await expect(sheet.locator("details.plan li.in_progress")).to_have_text("Mend it")
    # A command shows its last lines; opened, all of them, in their colours.
    run = sheet.locator("details.tool", has_text="the tests")
    await expect(run.locator("pre.last")).to_have_text(
        "FAILED test_zone\norange\n20 passed, 1 failed"
    )
    await expect(run.locator("summary code")).to_have_text("pytest -q tests/zone")
    await expect(run.get_by_role("img", name="failed")).to_be_visible()
    await run.locator("summary").first.click()
    shown = run.locator(".output pre")
    await expect(shown).to_have_text(
        "one\ntwo\n100%\nFAILED test_zone\norange\n20 passed, 1 failed"
    )
    colours = "(of) => of.map((it) => getComputedStyle(it).color)"
    red, orange, plain = [
        (await run.locator(".output span", has_text=word).evaluate_all(colours))[0]
        for word in ("FAILED", "orange", "one")
    ]
    assert len({red, orange, plain}) == 3
    # A file is text, an address tells where it leads.
    await sheet.locator("details.tool", has_text="Read").locator("summary").click()
    await expect(sheet.locator(".places .path")).to_have_text("src/a.py:7")
    await expect(sheet.locator(".prose", has_text="the rest")).to_contain_text("(example.org)")
    # A picture is shown from its own bytes.
    image = sheet.locator("img")
    await expect(image).to_have_attribute("src", re.compile("^blob:"))
    await image.evaluate("(it) => it.decode()")
    assert await image.evaluate("(it) => [it.naturalWidth, it.naturalHeight]") == [40, 20]
    # A sub-agent is under the call that made it.
    maker = sheet.locator("details.tool", has_text="Look elsewhere")
    await expect(maker.locator("details.child")).to_have_count(1)
    await maker.locator("summary").first.click()
    await maker.locator("details.child > summary").click()
    await expect(maker.locator("details.child .prose strong")).to_have_text("more")
    await expect(sheet.locator("details.child")).to_have_count(1)
    # An edit: two columns where there is room for them.
    edit = sheet.locator("details.tool", has_text="Edit")
    await expect(edit.locator(".sum").first).to_have_text(re.compile(r"\+2\s+.1"))
    await edit.locator("summary").click()
    await expect(edit.locator("tr.removed td").last).to_have_text("two")
    await expect(edit.locator("table.two")).to_have_count(0)
    await page.set_viewport_size({"width": 1440, "height": 900})
    await expect(edit.locator("table.two .half.added").first).to_have_text("2")
    # Both at once: the layout above may change between two measurements, and moves them.
    before, after = await edit.locator("table.two").evaluate(
        "(it) => ['removed', 'added']"
        ".map((which) => it.querySelector(`.half.${which}`).getBoundingClientRect().toJSON())"
    )
    assert before["right"] <= after["x"]
    assert before["y"] == after["y"]


def read(number: int) -> dict[str, Any]:
    """A step: the agent reads a file."""
    return call(f"r{number}", f"Read {number}.py", "read", locations=[{"path": f"/w/{number}.py"}])


async def test_calls_that_only_look_are_one_line_that_opens_by_itself_for_what_is_sought(
    page: Page, session: acphold.RemoteSession
) -> None:
    found = call("s", "grep needle", "search", content=[text("needle")])
    await did(page, session, *map(read, range(4)), found, {"say": "Read."}, read(5))
    looks = page.locator(".sheet .looks")
    await expect(looks.locator(".number")).to_have_text("4 files, 1 search")
    await expect(looks.locator(".names")).to_contain_text("0.py, 1.py, 2.py, 3.py, grep needle")
    await expect(looks.locator(".entry").first).to_be_hidden()
    await looks.locator("> summary").click()
    await expect(looks.locator(".entry")).to_have_count(5)
    await looks.locator(".entry summary").last.click()
    await expect(looks.locator(".output")).to_have_text("needle")
    await looks.locator("> summary").click()
    await choose(page, "Find")
    await page.get_by_label("Find in this session").fill("needle")
    await expect(looks.locator(".entry.found")).to_be_visible()


async def test_a_call_that_failed_says_why(page: Page, session: acphold.RemoteSession) -> None:
    missing = call("r", "Read a.py", "read", "failed", content=[text("No such file: a.py")])
    refused = call("f", "Fetch it", "fetch", "failed", rawOutput={"error": "The host is down"})
    silent = call("e", "Edit b.py", "edit", "failed")
    await did(page, session, read(1), missing, refused, silent)
    why = page.locator(".tool.failed .why")
    await expect(why).to_have_text(
        ["No such file: a.py", "The host is down", "The agent gave no reason."]
    )


async def test_of_very_long_output_the_beginning_comes_and_the_rest_for_who_wants_it(
    page: Page, served: Served
) -> None:
    lines = "".join(f"line {number}\n" for number in range(60_000))
    change = {"type": "diff", "path": "/w/a.py", "oldText": lines, "newText": f"{lines}more\n"}
    long = call("x", "make", "execute", content=[text(f"```\n{lines}```")], rawOutput=lines)
    steps = [long, call("e", "Edit", "edit", content=[change])]
    journal = open_journal(served.env["ACPHOLD_JOURNAL"])
    lease = await journal.create(NewSession("long", "scripted", str(served.folder)))
    for kind, raw in (
        prompt("x"),
        *(("update", json.dumps(step["update"]).encode()) for step in steps),
        ended(),
    ):
        await journal.append(lease, [(kind, [raw])])
    await journal.settle(lease, lease.next_seq - 1)
    await journal.release(lease)
    await journal.aclose()
    async with page.expect_response(lambda it: "/entries" in it.url) as answer:
        await page.goto(f"{served.url}/#/session/long")
    assert len(await (await answer.value).body()) < len(lines)
    command, edit = (page.locator("details.tool").nth(place) for place in (0, 1))
    await command.locator("summary").click()
    output = command.locator(".output pre")
    await expect(output).to_contain_text("line 17\n")
    assert "```" not in await output.inner_text()
    assert "line 59999" not in await output.inner_text()
    await command.get_by_role("button", name="Show all of it; 1.4 MB").click()
    await expect(output).to_contain_text("line 59999\n")
    assert await edit.locator("summary ins").count() == 0
    await edit.locator("summary").click()
    await edit.get_by_role("button", name="Show all of it; 1.4 MB").click()
    await expect(edit.locator("table")).to_contain_text("more")


async def test_it_says_who_prompted_and_how_each_turn_ended(
    page: Page, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": "Well."}))
    await session.prompt(steps({"say": "Too much."}, {"stop": "max_tokens"}))
    with pytest.raises(acphold.AcpError):
        await session.prompt(steps({"error": {"code": -32000, "message": "no quota left"}}))
    await opened(page, session.id)
    prompts = page.locator("article.prompt header")
    await expect(prompts).to_have_count(3)
    await expect(prompts.first).to_contain_text("in acphold")
    await typed(page, steps({"say": "Said here."}))
    await expect(prompts).to_have_count(4)
    await expect(prompts.last).to_contain_text("You")
    await expect(page.locator("hr.end")).to_have_count(2)
    await expect(page.locator(".ending.limited")).to_have_text("Stopped at a limit")
    await expect(page.locator(".ending.failed")).to_contain_text("no quota left")


async def test_it_says_when_the_vendors_limit_resets(page: Page, served: Served) -> None:
    window = {"_claude/rateLimit": {"status": "rejected", "resetsAt": int(time.time()) + 3600}}
    told = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "_meta": window}
    error = {"code": -32603, "message": "You've hit your 5-hour limit: no more today"}
    claude = scripted_agent(info={"name": "@agentclientprotocol/claude-agent-acp", "version": "1"})
    journal = served.env["ACPHOLD_JOURNAL"]
    async with introduced(lone_command(claude), journal=journal, env=served.env) as editor:
        session = await editor.new()
        with pytest.raises(Refused):
            await editor.prompt(session, {"say": "a"}, {"update": told}, {"error": error})
    await opened(page, session)
    limit = re.compile(r"Stopped at a limit, resets at .*no more today")
    await expect(page.locator(".ending.limited")).to_have_text(limit)


async def test_one_finds_the_last_prompt_words_and_places_and_takes_them_along(
    page: Page, device: BrowserContext, served: Served, session: acphold.RemoteSession
) -> None:
    await device.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
    for number in range(3):
        words = "\n\n".join(f"Line {line} of {number}." for line in range(60))
        await session.prompt(steps({"say": f"A needle, number {number}.\n\n{words}\n\n"}))
    await session.prompt(steps({"say": "```py\nprint('taken')\n```"}))
    await opened(page, session.id)
    # The prompt before, and the one before that.
    prompts = page.locator("article.prompt")
    await expect(prompts.last).to_be_in_viewport()
    await page.get_by_label("Previous prompt").click()
    await expect(page.locator("article.prompt", has_text="number 2")).to_be_in_viewport()
    await page.get_by_label("Jump to the end").click()
    await expect(prompts.last).to_be_in_viewport()
    # Writing also scrolls to the end.
    await page.get_by_label("Previous prompt").click()
    await expect(prompts.last).not_to_be_in_viewport()
    await typed(page, steps({"say": "Seen as it came."}))
    await expect(page.locator(".said", has_text="Seen as it came.")).to_be_in_viewport()
    # Words as they are typed, from the end to the beginning and around.
    await page.get_by_label("More").click()
    await page.get_by_role("button", name="Find", exact=True).click()
    field = page.get_by_label("Find in this session")
    await expect(field).to_be_focused()
    await field.fill("a needle, number")
    found, place = page.locator(".entry.found"), page.locator("search.find output")
    above, below = (page.get_by_label(f"{it} match") for it in ("Previous", "Next"))
    await expect(place).to_have_text("6 of 6")
    ways = (
        (above, 5, 2),
        (above, 4, 1),
        (below, 5, 2),
        (below, 6, 2),
        (below, 1, 0),
        (above, 6, 2),
    )
    for button, number, turn in ways:
        await button.click()
        await expect(place).to_have_text(f"{number} of 6")
        await expect(found).to_contain_text(f"number {turn}")
        await expect(found).to_be_in_viewport()
    await page.evaluate(seen("() => CSS.highlights.get('found')?.size === 1"))
    await field.press_sequentially(" 9")
    await expect(place).to_have_text("No matches")
    await expect(found).to_have_count(0)
    await page.evaluate(seen("() => !CSS.highlights.has('found')"))
    await page.keyboard.press("Escape")
    await expect(field).to_have_count(0)
    # A link to a place, in another tab.
    second = "article.prompt:has-text('number 1')"
    link = await page.locator(second).locator("a.when").get_attribute("href")
    assert link is not None
    assert re.search(r"@\d+$", link)
    other = await device.new_page()
    await other.goto(f"{served.url}/{link}")
    await expect(other.locator(second)).to_be_in_viewport()
    await other.close()
    # Copying.
    await page.get_by_label("Jump to the end").click()
    copied = "navigator.clipboard.readText().then((it) => it"
    await page.locator(".code .copy").click()
    await page.evaluate(seen(f"""() => {copied} === "print('taken')\\n")"""))
    await page.get_by_label("More").click()
    await page.get_by_role("button", name="Copy link").click()
    await page.evaluate(seen(f"() => {copied}.endsWith('{session.id}'))"))


async def test_two_devices_agree_on_what_is_asked_answered_chosen_and_said(
    page: Page, device: BrowserContext, served: Served, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps(ask(title="Run it"), {"say": "Both saw it."}))
    other = await device.new_page()
    for each in (page, other):
        await each.goto(f"{served.url}/#/session/{session.id}")
        await each.locator(".asking section.question").wait_for()
    await other.set_viewport_size({"width": 1000, "height": 800})  # there is room for both
    await choose_mode(other, "code")
    await expect(page.locator(".choices button")).to_have_text("Write")
    await page.get_by_role("button", name="Go on").click()
    for each in (page, other):
        await expect(each.locator("section.question")).to_have_count(0)
        await expect(each.locator(".said", has_text="Both saw it.")).to_be_visible()
        await expect(each.locator(".decision")).to_contain_text("Allowed")
    await asyncio.wait_for(turn, 30)
    await typed(other, steps({"say": "Said in the other."}))
    await expect(page.locator("main").get_by_text("Said in the other.", exact=True)).to_be_visible()
    for each in (page, other):
        await expect(each.locator("article.prompt")).to_have_count(2)
        await expect(each.locator("hr.end")).to_have_count(2)


def kept(home: Path) -> Story:
    """A conversation as Claude Code keeps it: a thought, a read, an edit, a plan, and a command."""
    told = Transcript("Change the answer to **43** — 你好 🌍.")
    told.assistant(thinking("Only one line has to change."), "I read the notes first.")
    told.assistant(use("t1", "Read", file_path=f"{CWD}/notes.txt"))
    told.result("t1", "1\tthe answer is 42")
    todos = [
        {"content": "Change the number", "status": "completed", "activeForm": "Changing it"},
        {"content": "Look at the folder", "status": "pending", "activeForm": "Looking"},
    ]
    told.assistant(use("t2", "TodoWrite", todos=todos))
    told.result("t2", "Todos have been modified.")
    lines = ["-the answer is 42", "+the answer is 43"]
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": lines}
    change = {"old_string": "answer is 42", "new_string": "answer is 43"}
    told.assistant(use("t3", "Edit", file_path=f"{CWD}/notes.txt", **change))
    edited = {"filePath": f"{CWD}/notes.txt", "structuredPatch": [hunk]}
    told.result("t3", "Updated.", toolUseResult=edited)
    told.assistant(use("t4", "Bash", command="ls -a /nowhere"))
    told.result("t4", "ls: cannot access '/nowhere'", failed=True)
    told.assistant("The number is now 43 (四十三).")
    told.user("Thank you.")
    told.assistant("Gladly.")
    told.write(home)
    return Story.of(CLAUDE, home)


async def test_a_conversation_that_was_held_elsewhere_is_read_whole_on_every_screen(
    page: Page, served: Served, tmp_path: Path
) -> None:
    story = kept(tmp_path)
    complaints: list[str] = []
    page.on("console", lambda it: complaints.append(it.text) if it.type == "error" else None)
    served.run_as_process("import", "--from", str(tmp_path))
    # Where its agent is not served, nothing can be written.
    await page.goto(f"{page.url.partition('#')[0]}#/session/{story.facts.session_id}")
    sheet = page.locator(".sheet")
    for width in (360, 1440):
        await page.set_viewport_size({"width": width, "height": 900})
        for role, words in story.said():
            plain = re.sub(r"[*`]", "", words)
            match role:
                case "user":
                    found = sheet.locator("article.prompt", has_text=words)
                case "agent":
                    found = sheet.locator("article.said", has_text=plain)
                case "thought":
                    found = sheet.locator("details.thought", has_text=plain)
                case _:
                    title = re.compile(r"\s*".join(map(re.escape, plain.split(" ", 1))))
                    found = sheet.locator("details.tool", has_text=title)
            await expect(found).to_have_count(1)
        for call in await sheet.locator("details.tool:not([open])").element_handles():
            await call.evaluate("(it) => { it.open = true; }")
        await expect(sheet.locator("details.plan li.completed")).to_have_text("Change the number")
        columns = "table.two td.half" if width == 1440 else "tr"
        await expect(sheet.locator(f".diff {columns}.added")).to_contain_text("answer is 43")
        failed = sheet.locator("details.tool.failed .output")
        await expect(failed).to_contain_text("cannot access")
        assert await violations(page) == []
    assert complaints == []


async def test_two_devices_agree_on_the_options_of_an_agent(
    page: Page, device: BrowserContext, tmp_path: Path
) -> None:
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_label("Agent").select_option("other")
    await page.get_by_label("Folder on the server").fill(str(tmp_path))
    await page.get_by_role("button", name="Start").click()
    await page.wait_for_url(re.compile("#/session/"))
    await typed(page, steps({"say": "At your service."}))
    await expect(page.locator(".said")).to_have_text("At your service.")
    other = await device.new_page()
    await other.goto(page.url)
    button = page.locator(".choices button")
    await expect(button).to_have_text("Small one")
    ours, theirs = [await options_of(each) for each in (page, other)]
    for each in (ours, theirs):
        await expect(each.get_by_label("Model")).to_have_value("small")
        await expect(each.get_by_label("Thorough")).not_to_be_checked()
    await ours.get_by_label("Model").select_option(label="Large one")
    await expect(theirs.get_by_label("Model")).to_have_value("large")
    await theirs.get_by_label("Thorough").click()
    await expect(ours.get_by_label("Thorough")).to_be_checked()
    await page.keyboard.press("Escape")
    await expect(button).to_be_focused()
    await page.reload()
    await expect(button).to_have_text("Large one")
    assert await violations(page) == []
    ours = await options_of(page)
    await expect(ours.get_by_label("Thorough")).to_be_checked()
    assert await violations(page) == []
    await other.close()


async def test_the_prompt_of_another_user_has_their_name_and_is_not_yours(
    page: Page, served: Served, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    await session.prompt(steps({"say": "one"}))
    served.run("access", "share", session.id, "--with", "bert", "--prompt")
    async with acphold.connect(served.url, token=served.token("--user", "bert")) as guest:
        joined = await guest.load_session(session.id, cwd=tmp_path)
        await joined.prompt(steps({"say": "two"}))
        await opened(page, session.id)
        await expect(page.locator("article.prompt h2")).to_have_text(["You", "bert"])
        await joined.prompt(steps({"say": "three"}))
        await expect(page.locator("article.prompt h2")).to_have_text(["You", "bert", "bert"])
