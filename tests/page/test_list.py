"""The list of sessions: by project, forks below their origin, namesakes told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

import acphold
from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal
from tests.page.conftest import opened, row_of, steps, violations
from tests.web.conftest import Served

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


async def test_a_fork_stands_below_its_origin_and_is_told_from_it(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (folder := tmp_path / "family").mkdir()
    origin = await agent.new_session(cwd=folder)
    await origin.prompt(steps({"say": "Said."}))
    await opened(page, origin.id)
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_text("Continue in a copy").click()
    await page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    await page.wait_for_function("(id) => !location.hash.endsWith(id)", arg=origin.id)
    fork = page.url.rpartition("/")[2]
    await page.get_by_role("textbox", name="Prompt", exact=True).wait_for()
    await page.goto(f"{page.url.partition('#')[0]}#/")
    below = row_of(page, origin).locator("xpath=ancestor::li/following-sibling::li[1]/a")
    await expect(below).to_have_attribute("href", f"#/session/{fork}")
    await expect(below).to_contain_text("fork")
    box, under = await row_of(page, origin).bounding_box(), await below.bounding_box()
    assert box is not None
    assert under is not None
    assert under["x"] > box["x"]
    # It is told from it where it stands apart, too.
    await opened(page, origin.id)
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_text("Pin", exact=True).click()
    await page.goto(f"{page.url.partition('#')[0]}#/")
    await expect(page.locator(f"a.session[href='#/session/{fork}']")).to_contain_text("fork")
    await opened(page, origin.id)
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_text("Unpin", exact=True).click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_sessions_of_one_name_say_what_was_said_last(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, scheme: str
) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    (folder := tmp_path / "twins").mkdir()
    twins = [await agent.new_session(cwd=folder) for _ in range(2)]
    for number, twin in enumerate(twins):
        await twin.prompt(steps({"say": f"**Its** end is `*.{number}` of 2 * 3."}))
    for number, twin in enumerate(twins):
        await expect(row_of(page, twin).locator(".last")).to_have_text(
            f"Its end is *.{number} of 2 * 3."
        )
    assert await violations(page) == []


async def test_a_session_is_pinned_and_tagged_in_its_menu_and_found_by_its_tag(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 1200, "height": 800})
    (folder := tmp_path / "marked").mkdir()
    one, other = [await agent.new_session(cwd=folder) for _ in range(2)]
    for session in (one, other):
        await session.prompt(steps({"say": "Said."}))
    await opened(page, one.id)
    menu = page.locator("#session-menu")
    await page.get_by_label("More").click()
    await menu.get_by_role("button", name="Pin").click()
    await page.get_by_label("More").click()
    await menu.get_by_role("button", name="Tags…").click()
    await page.get_by_label("Tags, with spaces").fill("#Later v1")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(row_of(page, one).locator(".tags")).to_have_text("#later #v1")
    pinned = page.locator("section.project:has(h2[title='Pinned'])")
    await expect(pinned.locator("a.session")).to_have_count(1)
    search = page.get_by_role("searchbox")
    await expect(page.locator(".undo")).to_contain_text("Tagged #later #v1.")
    await search.fill("#later")
    await expect(row_of(page, other)).to_have_count(0)
    await expect(row_of(page, one)).to_be_visible()
    await search.press("Escape")
    await expect(row_of(page, other)).to_be_visible()
    await expect(search).to_be_focused()
    await search.press("/")  # leads here, and is typed behind something
    await expect(search).to_have_value("")
    await search.press_sequentially("a/")
    await expect(search).to_have_value("a/")
    await search.press("Escape")
    await search.press("Escape")
    await expect(search).not_to_be_focused()
    add = page.get_by_label("Add a filter")
    await add.select_option("tag later")
    await expect(row_of(page, other)).to_have_count(0)
    await expect(row_of(page, one)).to_be_visible()
    await add.select_option("tag v1")  # one of several of a kind, and each kind
    await expect(row_of(page, one)).to_be_visible()
    picked = page.get_by_role("group", name="Only")
    await expect(picked.get_by_role("button")).to_contain_text(["#later", "#v1"])
    for tag in ("#later", "#v1"):
        await picked.get_by_role("button", name=f"Not only {tag}").click()
    await expect(row_of(page, other)).to_be_visible()
    await page.get_by_label("More").click()
    await menu.get_by_role("button", name="Unpin").click()
    await expect(pinned).to_have_count(0)


async def test_what_is_undone_takes_nothing_from_what_others_did_meanwhile(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 1200, "height": 800})
    (folder := tmp_path / "shared").mkdir()
    session = await agent.new_session(cwd=folder)
    await session.prompt(steps({"say": "Said."}))
    await opened(page, session.id)
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_role("button", name="Tags…").click()
    await page.get_by_label("Tags, with spaces").fill("mine")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    tags = row_of(page, session).locator(".tags")
    await expect(tags).to_have_text("#mine")
    await agent.call("_acphold/mark", {"sessionId": session.id, "tags": ["mine", "theirs"]})
    await expect(tags).to_have_text("#mine #theirs")
    await page.locator(".undo").get_by_role("button", name="Undo").click()
    await expect(tags).to_have_text("#theirs")


async def test_archived_sessions_are_tagged_and_brought_back_together(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (folder := tmp_path / "away").mkdir()
    sessions = [await agent.new_session(cwd=folder) for _ in range(3)]
    for session in sessions:
        await session.prompt(steps({"say": "Said."}))
    heading = page.get_by_role("heading", name="away", exact=True)
    project = page.locator("section.project", has=heading)
    bar = page.get_by_role("toolbar")
    undo = page.locator(".undo")

    async def choose(number: int) -> None:
        for row in (await project.get_by_role("checkbox").all())[:number]:
            await row.check()

    await expect(project.locator("a.session")).to_have_count(3)
    await page.get_by_role("button", name="Select").click()
    await choose(3)
    assert await violations(page) == []
    await bar.get_by_role("button", name="Tag…").click()
    await page.get_by_label("Tags, with spaces").fill("kept")
    await page.get_by_role("dialog").get_by_role("button", name="Add").click()
    await page.get_by_role("button", name="Select").click()
    await choose(3)
    await bar.get_by_role("button", name="Archive", exact=True).click()
    await expect(project).to_have_count(0)
    await page.get_by_role("button", name="Archived").click()
    # What was chosen is not carried into the archive, where other things are done.
    await page.get_by_role("button", name="Select").click()
    await choose(1)
    await page.locator(".filters button", has_text="All").click()
    await expect(page.get_by_text("0 selected")).to_be_visible()
    await page.reload()  # it knows no more of them than the archive says
    await page.get_by_role("button", name="Archived").click()
    await expect(project.locator("a.session")).to_have_count(3)
    await page.get_by_role("button", name="Select").click()
    await choose(3)
    await bar.get_by_role("button", name="Tag…").click()
    await page.get_by_label("Tags, with spaces").fill("more")
    await page.get_by_role("dialog").get_by_role("button", name="Add").click()
    await expect(undo).to_contain_text("3 sessions are tagged #more.")
    await page.get_by_role("button", name="Select").click()
    await choose(2)
    await expect(bar.get_by_role("button", name="Archive", exact=True)).to_have_count(0)
    await bar.get_by_role("button", name="Unarchive").click()
    await expect(undo).to_contain_text("2 sessions are back in the list.")
    await expect(project.locator("a.session")).to_have_count(1)
    await page.locator(".filters button", has_text="All").click()
    await expect(project.locator(".tags")).to_have_text(["#kept #more", "#kept #more"])


async def test_nothing_of_a_row_is_cut_off_or_leaves_the_list(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (folder := tmp_path / "cut").mkdir()
    sessions = [await agent.new_session(cwd=folder) for _ in range(2)]
    for number in range(2):  # newer than everything the page saw first, so they are news
        for session in sessions:
            await session.prompt(steps({"say": f"Once more: {number}. " + "Words. " * 30}))
            await expect(row_of(page, session)).to_contain_text(f"Once more: {number}")
    about = row_of(page, sessions[0]).locator(".about")
    await expect(about).to_contain_text("done")
    for width in (360, 1440):
        await page.set_viewport_size({"width": width, "height": 800})
        await page.goto(f"{page.url.partition('#')[0]}#/usage" if width > 1000 else page.url)
        assert await about.evaluate("(it) => it.scrollWidth <= it.clientWidth")
        agent_name = about.locator(".agent")  # it is 1 px wide where it is only read out
        assert await agent_name.evaluate(
            "(it) => it.clientWidth === 1 || it.scrollWidth <= it.clientWidth"
        )


async def test_what_stands_around_a_conversation_takes_at_most_a_quarter_of_a_phone(
    page: Page, session: acphold.RemoteSession
) -> None:
    await page.set_viewport_size({"width": 360, "height": 640})
    title = "Why is the test of the parser flaky at night?"
    await session.prompt(
        steps({"update": {"sessionUpdate": "session_info_update", "title": title}})
    )
    await opened(page, session.id)
    await expect(page.get_by_role("heading", name=title)).to_be_visible()
    await expect(page.locator(".asking .choices button")).to_be_visible()
    around = [
        await page.locator(part).evaluate("(it) => it.getBoundingClientRect().height")
        for part in (".conversation > .bar", ".asking")
    ]
    assert sum(around) <= 640 / 4
    # Where there is more room, the title has a second line.
    await page.set_viewport_size({"width": 360, "height": 740})
    height = "(it) => [it.scrollHeight - it.clientHeight, it.getBoundingClientRect().height]"
    hidden, tall = await page.get_by_role("heading", name=title).evaluate(height)
    assert hidden <= 1
    assert tall > 30


async def test_twenty_sessions_of_four_projects_stand_in_900_pixels(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    await page.set_viewport_size({"width": 1440, "height": 900})
    sessions = []
    for number in range(20):
        (folder := tmp_path / f"project-{number % 4}").mkdir(exist_ok=True)
        sessions.append(await agent.new_session(cwd=folder))
        await sessions[-1].prompt(steps({"say": f"What was said last in number {number}."}))
    await opened(page, sessions[-1].id)
    await expect(row_of(page, sessions[0])).to_have_count(1)
    whole = """rows => rows.map(row => row.getBoundingClientRect())
        .filter(row => row.top >= 0 && row.bottom <= innerHeight && row.height >= 24).length"""
    assert await page.locator(".home a.session").evaluate_all(whole) >= 20


async def test_sessions_of_programs_stand_behind_their_number_and_are_found(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    (folder := tmp_path / "nightly").mkdir()
    mine, programs = [await agent.new_session(cwd=folder) for _ in range(2)]
    await mine.prompt(steps({"say": "Mine."}))
    await programs.prompt("Summarise the log of the night")
    journal = open_journal(served.folder / "journal.db")
    await journal.change(programs.id, RowChange(by_program=True))
    await journal.aclose()
    await expect(row_of(page, programs)).to_have_count(0)
    await expect(row_of(page, mine)).to_be_visible()
    search = page.get_by_role("searchbox")
    await search.fill("log of the night")
    await expect(row_of(page, programs)).to_be_visible()
    await search.press("Escape")
    chip = page.get_by_role("button", name="By programs 1")
    await chip.click()
    await expect(row_of(page, programs)).to_be_visible()
    await expect(row_of(page, mine)).to_have_count(0)
    await expect(page.get_by_text("Written by scripts and other programs")).to_be_visible()
    assert await violations(page) == []
    await chip.click()
    await expect(row_of(page, mine)).to_be_visible()


async def test_the_archive_shows_what_others_do_to_it(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    (folder := tmp_path / "followed").mkdir()
    old, new, deleted = [await agent.new_session(cwd=folder) for _ in range(3)]
    journal = open_journal(served.folder / "journal.db")
    for session in (old, new, deleted):
        await session.prompt(steps({"say": "Said."}))
    for session in (old, deleted):
        await journal.change(session.id, RowChange(archived=True))
    await page.reload()  # it has never heard of these
    await page.get_by_role("button", name="Archived").click()
    rows = page.locator("section.project", has_text="followed").locator("a.session")
    await expect(rows).to_have_count(2)
    await journal.change(new.id, RowChange(archived=True))
    await expect(row_of(page, new)).to_be_visible()
    await journal.change(old.id, RowChange(archived=False))
    await expect(row_of(page, old)).to_have_count(0)
    await agent.delete_session(deleted.id)
    await expect(row_of(page, deleted)).to_have_count(0)
    await expect(row_of(page, new)).to_be_visible()
    # What was done while nobody looked is there with the next look.
    await page.evaluate(
        "Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })"
    )
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await journal.change(new.id, RowChange(archived=False))
    await journal.change(old.id, RowChange(archived=True))
    await journal.aclose()
    await page.evaluate("delete document.hidden")
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(row_of(page, old)).to_be_visible()
    await expect(row_of(page, new)).to_have_count(0)


async def test_a_conversation_found_by_its_title_stands_once(
    page: Page, served: Served, session: acphold.RemoteSession
) -> None:
    await session.prompt("Why does the zeppelin drift?")
    search = page.get_by_role("searchbox")
    hits = page.locator(".hits .of-session")
    for width in (360, 1440):
        await page.set_viewport_size({"width": width, "height": 740})
        await search.fill("zeppelin drift")
        await expect(row_of(page, session)).to_be_visible()
        # The agent repeats the words, which is a message as any other.
        await expect(hits.locator("li")).to_have_count(1)
        await expect(hits.locator("li")).to_contain_text("heard:")
        await search.fill("")
    await session.prompt(steps({"say": "Wind from starboard."}))
    await search.fill("starboard")
    await expect(hits.locator("li")).to_have_count(2)  # what was said later is no title
    # A new name is there with the search that stands.
    journal = open_journal(served.folder / "journal.db")
    await journal.change(session.id, RowChange(given="Balloons"))
    await journal.aclose()
    await expect(hits.locator("h3")).to_have_text("Balloons")
    await expect(row_of(page, session)).to_contain_text("Balloons")


async def test_an_archived_session_is_marked_among_what_a_search_finds(
    page: Page, served: Served, session: acphold.RemoteSession
) -> None:
    await session.prompt("The first one.")
    await session.prompt("A whitlow is there.")
    journal = open_journal(served.folder / "journal.db")
    about = page.locator(".hits .of-session .about")
    await page.get_by_role("searchbox").fill("whitlow")
    await expect(about).to_have_count(1)
    await expect(about).not_to_contain_text("archived ·")
    await journal.change(session.id, RowChange(archived=True))
    await expect(about).to_contain_text("archived · ")
    await page.reload()  # it has never heard of it
    await page.get_by_role("searchbox").fill("whitlow")
    await expect(about).to_contain_text("archived · ")
    await journal.change(session.id, RowChange(archived=False))
    await expect(about).not_to_contain_text("archived ·")
    await journal.aclose()


async def test_selecting_is_left_by_its_button_and_by_escape(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    session, other = [await agent.new_session(cwd=tmp_path) for _ in range(2)]
    for each in (session, other):
        await each.prompt(steps({"say": "Said."}))
    bar = page.get_by_role("toolbar", name="Selected sessions")
    select = page.get_by_role("button", name="Select")
    await select.click()
    await bar.get_by_role("button", name="Cancel").click()
    await expect(bar).to_have_count(0)
    await select.click()
    row = page.locator(f"label.session[data-id='{session.id}'] input")
    await row.focus()
    await page.keyboard.press("Space")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(bar).to_have_count(0)
    await expect(row_of(page, session)).to_be_focused()
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await expect(row).to_be_focused()
    await expect(row).to_be_checked()
    await page.keyboard.press("x")
    await expect(page.get_by_text("0 selected")).to_be_visible()
    for key, said in (("t", "1 session is tagged #batch."), ("a", "is archived.")):
        await page.keyboard.press("x")
        await expect(row).to_be_checked()
        await page.keyboard.press(key)
        if key == "t":
            await page.get_by_label("Tags, with spaces").fill("batch")
            await page.keyboard.press("Enter")
        await expect(page.locator(".undo")).to_contain_text(said)
        await page.keyboard.press("u")
        await expect(row_of(page, session)).to_be_focused()
    await select.click()
    await select.focus()
    await page.keyboard.press("Escape")
    await expect(bar).to_have_count(0)


async def test_an_archive_without_what_was_picked_says_so(
    page: Page, agent: acphold.RemoteAgent, served: Served, tmp_path: Path
) -> None:
    (folder := tmp_path / "picked").mkdir()
    tagged, archived = [await agent.new_session(cwd=folder) for _ in range(2)]
    for session in (tagged, archived):
        await session.prompt(steps({"say": "Said."}))
    journal = open_journal(served.folder / "journal.db")
    await journal.change(tagged.id, RowChange(tags=("later",)))
    await journal.change(archived.id, RowChange(archived=True))
    await journal.aclose()
    await expect(row_of(page, archived)).to_have_count(0)
    await page.get_by_label("Add a filter").select_option("tag later")
    await page.get_by_role("button", name="Archived").click()
    await expect(page.get_by_text("No archived session matches the filters")).to_be_visible()


@pytest.mark.parametrize("width", [360, 1280])
async def test_the_list_stays_where_it_is_when_a_row_is_opened_and_left(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path, width: int
) -> None:
    await page.set_viewport_size({"width": width, "height": 320})
    (folder := tmp_path / f"long-{width}").mkdir()
    for number in range(6):
        session = await agent.new_session(cwd=folder)
        await session.prompt(steps({"say": f"Word {number}."}))
    heading = page.get_by_role("heading", name=folder.name, exact=True)
    rows = page.locator("section.project", has=heading).locator("a.session")
    await expect(rows).to_have_count(6)
    scrolled = "document.querySelector('.home .scroll').scrollTop"
    await rows.last.scroll_into_view_if_needed()
    assert (before := await page.evaluate(scrolled)) > 0
    await rows.last.click()
    await page.locator(".said").first.wait_for()
    assert width < 900 or await page.evaluate(scrolled) == before
    await page.go_back()
    await expect(rows.last).to_be_in_viewport()
    assert await page.evaluate(scrolled) == before


async def test_a_click_with_shift_selects_all_from_the_last_one_on(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (folder := tmp_path / "range").mkdir()
    for number in range(4):
        session = await agent.new_session(cwd=folder)
        await session.prompt(steps({"say": f"Word {number}."}))
    heading = page.get_by_role("heading", name="range", exact=True)
    rows = page.locator("section.project", has=heading).locator(".session")
    await expect(rows).to_have_count(4)
    await page.get_by_role("button", name="Select").click()
    await rows.nth(2).click()
    await rows.nth(0).click(modifiers=["Shift"])
    await expect(page.get_by_role("toolbar")).to_contain_text("3 selected")
    assert await page.evaluate("String(getSelection())") == ""
