"""A question of an agent shows everything that it would allow, and each answer's effect."""

from __future__ import annotations

import asyncio
import re
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

import acphold
from tests.page.conftest import OPTIONS, ask, fits, note, opened, steps, typed, violations

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

GIVEN = {
    "command": "make install",
    "dangerouslyDisableSandbox": True,
    "env": {"LD_PRELOAD": "/tmp/evil.so"},
    "cwd": "/etc",
    "stdin": "yes\n",
}
LYING = [
    {"optionId": "all", "name": "No, reject", "kind": "allow_always"},
    {"optionId": "no", "name": "Yes, of course", "kind": "reject_once"},
]


async def shown_in(card: Locator) -> None:
    """Nothing of the call is hidden, and each answer states its effect in our words."""
    names = [" ".join(it.split()) for it in await card.locator(".arguments dt").all_inner_texts()]
    assert names == ["cwd", *(name for name in GIVEN if name not in ("command", "cwd"))]
    await expect(card.locator("pre.command").first).to_have_text("make install")
    for text in ("true", '{"LD_PRELOAD":"/tmp/evil.so"}', "/etc", "yes"):
        await expect(card.locator(".arguments dd", has_text=text).first).to_be_visible()
    buttons = card.locator(".options").get_by_role("button")
    for number, words in enumerate(("allow always: No, reject", "reject: Yes, of")):
        await expect(buttons.nth(number)).to_contain_text(words)


async def test_every_argument_is_open_and_each_answer_says_what_it_does(
    page: Page, session: acphold.RemoteSession
) -> None:
    call = {"toolCallId": "t1", "title": "Install `it`", "rawInput": GIVEN}
    request = {"toolCall": call, "options": LYING}
    turn = session.prompt(steps({"ask": ["session/request_permission", request]}))
    inbox = page.locator(".inbox section.question")
    await expect(inbox).to_contain_text("Install it")
    await expect(inbox.locator(".asks code")).to_have_text("it")
    await shown_in(inbox)
    for width in (360, 1440):
        await page.set_viewport_size({"width": width, "height": 900})
        await opened(page, session.id)
        card = page.locator(".asking section.question")
        await shown_in(card)
        assert await fits(page)
        await page.goto(page.url.partition("#")[0] + "#/")
    await opened(page, session.id)
    await page.locator(".asking").get_by_role("button", name="Yes, of course").click()
    assert '"no"' in (await asyncio.wait_for(turn, 60)).text


def command_of(lines: int) -> str:
    """A command that is longer than a screen of a phone."""
    return " && \\\n".join(f"printf 'step {number} of many'" for number in range(lines))


async def tall(page: Page, card: Locator) -> None:
    """Its answers are on the first screen, and the end of it can be scrolled to; what is cut is
    opened, and until then not allowed."""
    cut = card.get_by_role("button", name=re.compile("more line"))
    await expect(card.locator(".scrolls")).to_contain_text("the last line")
    if await cut.count():
        await expect(cut).to_have_text("… 186 more lines")
        await expect(card.get_by_role("button", name="Go on")).to_be_disabled()
        await expect(card.get_by_role("button", name="Stop it")).to_be_enabled()
        await cut.click()
    await expect(card.get_by_role("button", name="Go on")).to_be_enabled()
    assert await page.evaluate("innerHeight") == 740
    await expect(card.locator(".options button").first).to_be_visible()
    for button in await card.locator(".options button").all():
        await expect(button).to_be_in_viewport(ratio=1)
    more = card.get_by_role("button", name="More below")
    below = "(it) => it.scrollHeight - it.scrollTop - it.clientHeight"
    assert await card.locator(".scrolls").evaluate(below) > 740
    while await more.count():
        await more.click()
        await page.evaluate("() => new Promise(requestAnimationFrame)")
    assert await card.locator(".scrolls").evaluate(below) < 5
    await expect(card.locator(".scrolls")).to_contain_text("the last line")
    await expect(card.get_by_role("button", name="Go on")).to_be_in_viewport(ratio=1)
    assert await fits(page)


@pytest.mark.parametrize("kind", ["command", "diff"])
async def test_the_answers_to_a_long_question_are_on_the_first_screen_and_all_of_it_can_be_read(
    page: Page, kind: str, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    tool: dict[str, Any]
    if kind == "command":
        tool = {"rawInput": {"command": f"{command_of(80)}\n# the last line"}, "kind": "execute"}
    else:
        text = "".join(f"line {number} of the file\n" for number in range(200))
        diff = {"type": "diff", "path": "/srv/a.txt", "newText": f"{text}the last line\n"}
        tool = {"content": [diff], "kind": "edit"}
    turn = session.prompt(steps(ask(title="Do it", **tool)))
    await tall(page, page.locator(".inbox section.question"))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    await tall(page, card)
    await card.get_by_role("button", name="Go on").click()
    assert '"go"' in (await asyncio.wait_for(turn, 60)).text


TWELVE = """\
set -euo pipefail
find . -type f -name '*.py' -print0 \\
  | xargs -0 grep -l old_name \\
  | while read -r file; do
    sed -i 's/old/new/g' "$file"
  done
rm -rf build/ dist/
python -m build
pytest -q tests
git add -A
git commit -m 'rename'
git push --force origin main"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone_a_command_of_twelve_lines_and_both_answers_are_in_sight_and_uncovered(
    page: Page, scheme: Any, session: acphold.RemoteSession
) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 360, "height": 640})
    given = {"command": TWELVE, "description": "Rename and push", "timeout": 120_000}
    options = [
        *OPTIONS,
        {"optionId": "every", "name": "Always allow find", "kind": "allow_always"},
        {"optionId": "never", "name": "No, and tell it why", "kind": "reject_always"},
    ]
    # Agents cut a long command in the title of its call.
    tool = {"title": f"`{TWELVE[:60]}…`", "kind": "execute", "rawInput": given}
    request = {"toolCall": {"toolCallId": "t1", **tool}, "options": options}
    turn = session.prompt(steps({"ask": ["session/request_permission", request]}))
    await page.goto(f"{page.url.partition('#')[0]}#/session/{session.id}")
    card = page.locator(".asking section.question")
    command = card.locator("pre.command").first
    await expect(command).to_have_text(TWELVE)
    assert "`" not in await card.inner_text()
    for part in (command, *[card.get_by_role("button", name=it) for it in ("Go on", "Stop it")]):
        await expect(part).to_be_in_viewport(ratio=1)
        covered = """(it) => {
          const { left, right, top, bottom } = it.getBoundingClientRect();
          const places = [[left + 3, top + 3], [right - 3, top + 3], [left + 3, bottom - 3],
            [right - 3, bottom - 3], [(left + right) / 2, (top + bottom) / 2]];
          return places.filter(([x, y]) => !it.contains(document.elementFromPoint(x, y)));
        }"""
        assert await part.evaluate(covered) == []
    yes, no = [await card.get_by_role("button", name=it).bounding_box() for it in ("Go on", "Stop")]
    assert yes is not None
    assert no is not None
    assert yes["y"] == no["y"]  # in one row
    assert await violations(page) == []
    await expect(card.get_by_role("button", name="Always allow find")).to_have_count(0)
    await card.get_by_role("button", name="More answers").click()
    await card.get_by_role("button", name="allow always: Always allow find").click()
    assert '"every"' in (await asyncio.wait_for(turn, 60)).text


async def test_a_write_over_a_file_is_shown_as_what_it_changes_in_the_file_as_it_is(
    page: Page, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    (tmp_path / "README.md").write_text("# webapp\nRun `make`.\n")
    new = "# webapp\nRun `uv run webapp`.\n"
    diff = {"type": "diff", "path": str(tmp_path / "README.md"), "newText": new}
    turn = session.prompt(steps(ask(title="Write README.md", kind="edit", content=[diff])))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    await expect(card.locator(".sum")).to_have_text("+1 \N{MINUS SIGN}1")
    await expect(card.locator(".diff tr.removed")).to_contain_text("Run `make`.")
    await expect(card.locator("figcaption")).to_have_text(
        re.compile("README[.]md [+]1 \N{MINUS SIGN}1\\s*$")
    )
    await card.get_by_role("button", name="Go on").click()
    assert '"go"' in (await asyncio.wait_for(turn, 60)).text


@pytest.mark.parametrize("width", [360, 1440])
async def test_an_edit_is_shown_once_and_the_numbers_of_its_lines_stay_whole(
    page: Page, tmp_path: Path, width: int, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": width, "height": 640})
    path = str(tmp_path / "orders.py")
    old = "".join(f"line {number}\n" for number in range(1, 12))
    new = old.replace("line 10\n", "line 10, which is longer than the line of a phone is wide\n")
    (tmp_path / "orders.py").write_text(old)
    hunk = "".join(unified_diff(old.splitlines(True), new.splitlines(True), path, path))
    given: Any = {"filepath": path, "diff": f"Index: {path}\n{'=' * 67}\n{hunk}"}
    diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
    step = ask(title=path, kind="edit", rawInput=given, content=[diff])
    turn = session.prompt(steps(step))
    card = page.locator(".inbox section.question")
    await expect(card.locator(".diff tr.added")).to_contain_text("longer than the line")
    await expect(card.locator(".diff table.two")).to_have_count(0)  # the list is narrow
    await expect(card.get_by_role("button", name="Go on")).to_be_in_viewport(ratio=1)
    text = await card.inner_text()
    assert text.count(path) == 1
    assert "Index:" not in text
    lines = """(it) => {
      const range = document.createRange();
      range.selectNodeContents(it);
      return range.getClientRects().length;
    }"""
    number = card.locator(".diff tr.added .number")
    await expect(number).to_have_text("10")
    assert await number.evaluate(lines) == 1
    await card.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)


async def test_a_folder_outside_of_its_own_is_asked_for_in_words_and_so_is_the_decision_told(
    page: Page, session: acphold.RemoteSession
) -> None:
    folder = "/home/ada/code/infra"
    given = {"filepath": f"{folder}/a.tf", "parentDir": folder}
    turn = session.prompt(steps(ask(title=folder, kind="other", rawInput=given)))
    card = page.locator(".inbox section.question")
    await expect(card.locator("h2")).to_have_text("scripted wants to work outside its folder")
    await expect(card.locator("pre.command").first).to_have_text(folder)
    assert "parentDir" not in await card.inner_text()
    await card.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    await page.get_by_role("link", name="Decisions").click()
    told = page.locator(".decisions .title").filter(has_text=folder)
    await expect(told).to_have_text(f"Allowed once work outside its folder: {folder}")


async def test_a_question_of_a_stopped_turn_was_not_answered_and_the_list_and_conversation_say_so(
    page: Page, session: acphold.RemoteSession
) -> None:
    session.prompt(steps(ask(title="Edit hello.py", kind="edit")))
    await opened(page, session.id)
    await expect(page.locator(".asking section.question")).to_be_visible()
    session.cancel()
    await expect(page.locator(".asking section.question")).to_have_count(0)
    decision = page.locator(".sheet .decision")
    await expect(decision).to_have_text(
        re.compile(r"^Not answered(: +Edit hello.py| +)\(stopped\)\s*$")
    )
    await page.goto(f"{page.url.partition('#')[0]}#/decisions")
    told = page.locator(".decisions .title").filter(has_text="hello.py")
    await expect(told).to_have_text("Not answered: Edit hello.py (stopped)")


async def test_markdown_of_a_question_is_drawn_and_our_words_stand_for_names_that_say_no_more(
    page: Page, session: acphold.RemoteSession
) -> None:
    plan = {"type": "text", "text": "# The plan\n\n1. Rename **all** of `it`\n"}
    tool = {"title": "Ready to code?", "content": [{"type": "content", "content": plan}]}
    options = [
        {"optionId": "y", "name": "Yes, proceed", "kind": "allow_once"},
        {"optionId": "n", "name": "No", "kind": "reject_once"},
    ]
    request = {"toolCall": {"toolCallId": "t1", **tool}, "options": options}
    turn = session.prompt(steps({"ask": ["session/request_permission", request]}))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    await expect(card.locator("strong")).to_have_text("all")
    await expect(card.locator("li code")).to_have_text("it")
    assert await card.locator(".options .row button b").all_inner_texts() == [
        "Allow once",
        "Reject",
    ]
    assert "proceed" not in await card.inner_text()
    await card.get_by_role("button", name="allow once").click()
    assert '"y"' in (await asyncio.wait_for(turn, 60)).text


async def test_a_question_whose_session_is_being_opened_says_so_and_not_that_one_is_offline(
    page: Page, session: acphold.RemoteSession
) -> None:
    await note(page, ".inbox [role=status]")
    turn = session.prompt(steps(ask(title="Open it")))
    await page.locator(".inbox").get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    told = await page.evaluate("noted")
    assert "Opening the session…" in told
    assert not [text for text in told if "offline" in text]


async def test_answers_never_stand_over_what_they_are_about(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    turns = []
    for number in range(2):
        session = await agent.new_session(cwd=tmp_path)
        title, command = f"Run {number}", command_of(20)
        step = ask(title=title, rawInput={"command": command}, kind="execute")
        turns.append(session.prompt(steps(step)))
    cards = page.locator(".inbox section.question")
    await expect(cards).to_have_count(2)
    await page.locator(".scroll").evaluate(
        "(it) => it.scrollTop += it.querySelectorAll('.inbox .question')[1]"
        ".getBoundingClientRect().top - innerHeight + 150"
    )
    await expect(cards.nth(1).locator("h2")).to_be_in_viewport()
    await expect(cards.nth(1).get_by_role("button", name="Go on")).not_to_be_in_viewport()
    for left in (1, 0):
        await cards.nth(left).get_by_role("button", name="Go on").click()
        await expect(cards).to_have_count(left)
    await asyncio.wait_for(asyncio.gather(*turns), 60)


async def test_a_command_stands_on_the_screen_once_in_letters_of_one_width_and_breaks_at_words(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    command = "rsync --archive --delete-after --exclude=a-b photographs/ backup:/srv/"
    words = [{"type": "content", "content": {"type": "text", "text": "Keep a copy"}}]
    tool: dict[str, Any] = {
        "title": f"`{command}`",
        "kind": "execute",
        "rawInput": {"command": command, "description": "Keep a copy"},
        "content": words,
    }
    began = {"sessionUpdate": "tool_call", "toolCallId": "t1", "status": "pending", **tool}
    turn = session.prompt(steps({"update": began}, ask(**tool)))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    await expect(card).to_be_visible()
    conversation = page.locator("main.conversation")
    shown = await conversation.inner_text()
    own = shown.partition("You\n")[0] + shown.partition("wants to run\n")[2]
    for text in (command, "Keep a copy"):
        assert own.count(text) == 1, shown
    box = card.locator("pre.command", has_text="rsync")
    font = await box.evaluate("(it) => getComputedStyle(it).fontFamily")
    assert "monospace" in font
    lines = await box.evaluate(
        """(it) => {
          const lines = [];
          const words = document.createTreeWalker(it, NodeFilter.SHOW_TEXT);
          while (words.nextNode()) {
            const text = words.currentNode;
            for (let at = 0; at < text.length; at++) {
              const range = document.createRange();
              range.setStart(text, at);
              range.setEnd(text, at + 1);
              const { top } = range.getBoundingClientRect();
              if (Math.abs((lines.at(-1)?.top ?? -99) - top) > 5) lines.push({ top, text: "" });
              lines.at(-1).text += text.data[at];
            }
          }
          return lines.map((it) => it.text);
        }"""
    )
    assert "".join(lines) == command
    assert len(lines) > 1
    assert all(line.endswith(" ") for line in lines[:-1]), lines
    await card.get_by_role("button", name="Stop it").click()
    await asyncio.wait_for(turn, 60)


SEEN = """() => {
  globalThis.seen = [];
  const note = (card) => seen.push([
    card.querySelector(".asks")?.textContent,
    [...card.querySelectorAll(".options button:not(.others)")].map((button) => button.disabled),
  ].join(" "));
  const added = (changes) => changes.flatMap((change) => [...change.addedNodes]);
  new MutationObserver((changes) => added(changes).forEach((node) => {
    if (node.matches?.("section.question")) note(node);
    else node.querySelectorAll?.("section.question").forEach(note);
  })).observe(document.body, { childList: true, subtree: true });
}"""
"""Notes of each question that comes whether it could be answered at that moment."""


async def test_a_question_that_has_just_come_cannot_be_answered_by_a_tap_for_another(
    page: Page, session: acphold.RemoteSession
) -> None:
    await opened(page, session.id)
    await page.evaluate(SEEN)
    turn = session.prompt(steps(ask("one", title="First"), ask("two", title="Second")))
    cards = page.locator(".asking section.question")
    for title in ("First", "Second"):
        card = cards.filter(has_text=title)
        await card.get_by_role("button", name="Go on").click()
        await expect(card).to_have_count(0)
    await asyncio.wait_for(turn, 60)
    assert await page.evaluate("seen") == ["First true,true", "Second true,true"]


async def test_a_decision_that_is_read_later_names_the_client_that_made_it(
    page: Page, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps(ask(title="Install it")))
    await opened(page, session.id)
    await page.locator(".asking").get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    await page.reload()
    await expect(page.locator("p.decision")).to_contain_text("on the page")


async def test_a_question_is_read_and_answered_on_a_phone_at_twice_the_size(
    page: Page, session: acphold.RemoteSession
) -> None:
    given = {"command": f"{command_of(20)}\n# the last line", "cwd": "/srv/" + "photographs/" * 5}
    turn = session.prompt(steps(ask(title="Do `it`", kind="execute", rawInput=given)))
    await page.set_viewport_size({"width": 180, "height": 370})
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    go_on = card.get_by_role("button", name="Go on")
    await expect(card.get_by_role("heading")).to_be_in_viewport(ratio=1)
    await go_on.scroll_into_view_if_needed()
    await expect(go_on).to_be_in_viewport(ratio=1)
    assert await fits(page)
    box = card.locator(".scrolls")
    assert await box.evaluate("(it) => it.scrollWidth - it.clientWidth") <= 0
    assert await box.evaluate("(it) => it.clientHeight") > 100
    await go_on.click()
    assert '"go"' in (await asyncio.wait_for(turn, 60)).text


async def test_a_long_refusal_leaves_room_for_what_allows_and_all_else_is_under_more(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "all", "name": "Yes, and do not ask again for make", "kind": "allow_always"},
        {"optionId": "no", "name": "No, tell the agent to do otherwise", "kind": "reject_once"},
    ]
    call = {"toolCallId": "t1", "title": "Run `make test`", "kind": "execute"}
    request = {"toolCall": call, "options": options}
    turn = session.prompt(steps({"ask": ["session/request_permission", request]}))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    answers = card.locator(".options .row > button:not(.others)")
    await expect(answers).to_have_count(2)
    allow, refuse = await answers.evaluate_all(
        "(all) => all.map((it) => [it.offsetWidth, it.offsetHeight])"
    )
    assert allow == refuse
    await expect(card.get_by_role("button", name="do not ask again")).to_have_count(0)
    await card.get_by_role("button", name="More answers").click()
    await expect(card.get_by_role("button", name="do not ask again")).to_be_visible()
    await page.set_viewport_size({"width": 360, "height": 740})
    (above, height), (below, _) = await answers.evaluate_all(
        "(all) => all.map((it) => [it.offsetTop, it.offsetHeight])"
    )
    assert above + height < below
    widths = "(all) => [...new Set(all.map((it) => it.offsetWidth))].length"
    assert await card.locator(".rest button").evaluate_all(widths) == 1
    # The title's backticks are code, before and after; the decision stands below the command.
    await card.get_by_role("button", name="allow once", exact=True).click()
    assert '"yes"' in (await asyncio.wait_for(turn, 60)).text
    code = page.locator(".sheet .tool .title code")
    await expect(code).to_have_text("make test")
    await expect(code.locator(".word")).to_have_text(["make", "test"])
    await expect(page.locator(".of-tool > .decision")).to_have_text(
        re.compile(r"^Allowed once\s*$")
    )
    await page.goto(f"{page.url.partition('#')[0]}#/decisions")
    await expect(page.locator(".decisions .title code").first).to_have_text("make test")


async def test_on_a_desktop_a_question_stands_in_the_main_pane_and_beside_what_is_open_a_link_to_it(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    turn = session.prompt(steps(ask(title="Sweep the hall")))
    await expect(page.locator(".news section.question")).to_contain_text("Sweep the hall")
    await expect(page.locator(".home section.question")).to_have_count(0)
    await page.goto(page.url.partition("#")[0] + "#/usage")
    link = page.locator(".home .inbox .brief a", has_text="Sweep the hall")
    await link.click()
    await expect(link).to_have_count(0)
    card = page.locator(".asking section.question")
    await card.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)


@pytest.mark.parametrize("width", [360, 1440])
async def test_what_is_written_under_a_question_is_said_in_place_of_a_yes(
    page: Page, width: int, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    turn = session.prompt(steps(ask(title="Run it"), {"say": "Then not."}))
    await opened(page, session.id)
    area = page.get_by_placeholder("Reject, and tell it what to do")
    await expect(area).to_be_in_viewport(ratio=1)
    await expect(page.locator(".asking").get_by_role("button", name="Go on")).to_be_in_viewport(
        ratio=1
    )
    send = page.get_by_title("Reject, and send")
    await area.fill("Yes")
    await send.click()
    await expect(page.get_by_role("alert")).to_have_text(
        "This is no answer. Use the buttons above."
    )
    await expect(page.locator(".asking section.question")).to_be_visible()
    await area.fill("Use make")
    await expect(send).to_be_in_viewport(ratio=1)
    assert (await area.bounding_box() or {"width": 0})["width"] > width / 2
    assert await violations(page) == []
    await send.click()
    await expect(page.locator("section.question")).to_have_count(0)
    await expect(page.locator(".decision")).to_contain_text("Rejected")
    await asyncio.wait_for(turn, 60)
    await expect(page.locator(".said", has_text="heard: ")).to_contain_text("Use make")


async def test_words_that_were_begun_before_a_question_answer_nothing(
    page: Page, tmp_path: Path, session: acphold.RemoteSession
) -> None:
    turn = session.prompt(steps({"until": str(tmp_path / "go")}, ask(title="Run it")))
    await opened(page, session.id)
    area = page.get_by_role("textbox", name="Prompt", exact=True)
    await area.fill("And then")
    (tmp_path / "go").touch()
    await expect(page.locator(".asking section.question")).to_be_visible()
    await page.get_by_title("Send after this turn").click()
    await expect(page.locator(".queue ol")).to_contain_text("And then")
    await expect(page.locator(".asking section.question")).to_be_visible()
    for width, height in ((1280, 800), (360, 760)):
        await page.set_viewport_size({"width": width, "height": height})
        shown = await page.locator(".reading").bounding_box()
        assert shown is not None
        assert shown["height"] >= height // 3
        await expect(page.get_by_role("button", name="Go on")).to_be_in_viewport(ratio=1)
        await expect(area).to_be_in_viewport(ratio=1)
    await page.locator(".asking").get_by_role("button", name="Go on").focus()
    places = [""]
    while places[-1] != "queue" and len(places) < 40:  # Tab goes in the order that is seen
        await page.keyboard.press("Tab")
        places.append(
            await page.evaluate("""document.activeElement
            .closest(".asking > .question, .asking > .composer, .asking > .queue")
            ?.classList[0]""")
        )
    assert places.index("composer") < places.index("queue")
    await page.locator(".asking").get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    await expect(page.locator(".said", has_text="heard: ")).to_contain_text("And then")


async def test_the_words_in_place_of_a_yes_come_behind_what_is_asked_next_also_after_a_reload(
    page: Page, session: acphold.RemoteSession
) -> None:
    asks = [ask(f"t{number}", title=f"Run {number}") for number in (1, 2)]
    turn = session.prompt(steps(asks[0], {"say": "Then not."}, asks[1], {"say": "Both asked."}))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    await expect(card).to_contain_text("Run 1")
    await page.get_by_placeholder("Reject, and tell it what to do").fill("Use make")
    await page.get_by_title("Reject, and send").click()
    await expect(page.locator(".decision")).to_contain_text("Rejected")
    # Nothing but the first was answered: the next one stays, and the words wait behind the turn.
    await expect(card).to_contain_text("Run 2")
    waiting = page.get_by_role("list", name="Prompts being sent")
    await expect(waiting).to_contain_text("Use make")
    await page.reload()
    await expect(card).to_contain_text("Run 2")
    await expect(waiting).to_contain_text("Use make")
    await page.get_by_role("textbox", name="Prompt", exact=True).fill("And test it")
    await page.get_by_title("Reject, and send").click()
    await expect(page.locator(".decision")).to_have_count(2)
    await asyncio.wait_for(turn, 60)
    heard = page.locator(".said", has_text="heard: ")
    await expect(heard).to_have_count(2)
    await expect(card).to_have_count(0)
    drawn = page.locator("article.prompt, .said, .decision")
    clock = re.compile(r"\d\d:\d\d\s[AP]M| on the page| in acphold")
    before = [clock.sub("", it).split() for it in await drawn.all_text_contents()]
    answers = [words for it in before if "heard:" in (words := " ".join(it))]
    assert ["Use make" in it for it in answers] == [True, False]
    await page.reload()
    await expect(heard).to_have_count(2)
    assert [clock.sub("", it).split() for it in await drawn.all_text_contents()] == before


async def test_words_under_one_of_two_questions_reject_the_first_and_the_other_stays(
    page: Page, session: acphold.RemoteSession
) -> None:
    [request] = ask(title="Run it").values()
    turn = session.prompt(steps({"ask many": [2, *request]}, {"say": "Both asked."}))
    await opened(page, session.id)
    card = page.locator(".asking section.question")
    await expect(card).to_have_count(2)
    await page.get_by_placeholder("Reject, and tell it what to do").fill("Use make")
    await page.get_by_title("Reject, and send").click()
    await expect(card).to_have_count(1)
    await expect(page.locator(".decision")).to_have_count(1)
    await expect(page.get_by_role("list", name="Prompts being sent")).to_contain_text("Use make")
    await card.get_by_role("button", name="Go on").click()
    await asyncio.wait_for(turn, 60)
    await expect(page.locator(".said", has_text="heard: ")).to_contain_text("Use make")


async def test_words_under_a_form_answer_nothing(
    page: Page, session: acphold.RemoteSession
) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    form = {"mode": "form", "message": "Who?", "requestedSchema": schema}
    await opened(page, session.id)
    await typed(page, steps({"ask": ["elicitation/create", form]}, {"say": "Done."}))
    card = page.locator(".asking section.question")
    await expect(card).to_be_visible()
    await page.get_by_placeholder("Next prompt, after this turn").fill("Never mind")
    await page.get_by_title("Send after this turn").click()
    queue = page.locator(".queue")
    await expect(queue.locator("ol")).to_contain_text("Never mind")
    await expect(card).to_be_visible()
    await page.reload()
    await expect(card).to_be_visible()
    await expect(queue.locator("ol")).to_contain_text("Never mind")
    await page.get_by_title("Stop the running turn").click()
    await expect(card).to_have_count(0)
    await expect(queue.get_by_role("status")).to_have_text("paused: stopped")
    await expect(queue.locator("ol")).to_contain_text("Never mind")
