"""A session whose files were kept goes on from a copy with its files."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.async_api import Page, expect

import acphold
from tests.editor import scripted_agent
from tests.page.conftest import choose, opened, steps, violations
from tests.snapshots.conftest import Project
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    settings = folder / "settings.toml"
    command = json.dumps([*scripted_agent()])
    settings.write_text(
        f"[agents.scripted]\ncommand = {command}\n"
        '[agents.broken]\ncommand = ["sh", "-c", "exit 3"]\n'
    )
    with serving(folder, agent=(), variables={"ACPHOLD_SETTINGS": str(settings)}) as found:
        yield found


async def test_a_session_continues_in_a_copy_with_its_files_from_its_menu(
    page: Page, served: Served, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write("a.txt", "then")
    session = await agent.new_session(cwd=project.top)
    # The list does not have the files yet.
    await page.route(re.compile("/sessions/feed"), lambda route: route.abort())
    await page.reload()
    await session.prompt(steps({"say": "Done."}))
    await until_kept(served, session.id, 1)
    await opened(page, session.id)
    original = page.url
    await choose(page, "Continue in a copy…")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("checkbox")).to_be_checked()
    await dialog.get_by_role("button", name="Continue").click()
    await dialog.get_by_role("button", name="Open the new session").click()
    await page.wait_for_url(lambda url: "#/session/" in url and url != original)
    await expect(page.locator(".said", has_text="Done.")).to_be_visible()
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("project-fork"))
    assert (project.top.with_name("project-fork") / "a.txt").read_text() == "then"


async def test_a_session_begins_in_a_copy_of_the_repository(
    page: Page, served: Served, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write("a.txt", "then")
    project.write(".gitignore", ".env\n")
    project.write(".worktreeinclude", ".env\n")
    project.commit()
    project.write(".env", "TOKEN=x")
    there = project.top.with_name("project-work")
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_label("Folder on the server").fill(str(tmp_path))
    await page.get_by_label("First prompt").fill(steps({"say": "Begun."}))
    await page.get_by_role("checkbox", name="In a copy of the repository").check()
    assert await violations(page) == []
    await page.get_by_role("button", name="Start and send").click()
    await expect(page.get_by_role("alert")).to_contain_text("is in no git repository")
    await page.get_by_label("Folder on the server").fill(str(project.top))
    await page.get_by_role("checkbox", name="With the ignored files").check()
    await page.get_by_role("button", name="Start and send").click()
    await expect(page.locator(".said", has_text="Begun.")).to_be_visible()
    await expect(page.locator(".bar .name p")).to_contain_text("project-work")
    assert (there / ".env").read_text() == "TOKEN=x"
    assert project.git("branch", "--show-current", at=there) == "acphold/work\n"


async def test_no_copy_is_left_of_a_session_whose_agent_does_not_start(
    page: Page, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.commit()
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_label("Folder on the server").fill(str(project.top))
    await page.get_by_role("combobox", name="Agent").select_option("broken")
    await page.get_by_role("checkbox", name="In a copy of the repository").check()
    await page.get_by_role("button", name="Start", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("could not be started")
    assert not project.top.with_name("project-work").exists()
    assert project.git("branch", "--format=x") == "x\n"


async def until_kept(served: Served, session_id: str, ends: int) -> None:
    """Wait until the files were kept at so many ends of turns."""
    address = f"{served.url}/sessions/{session_id}/kept"
    asking = Request(address, headers={"Authorization": f"Bearer {served.token()}"})

    def look() -> None:
        deadline = time.monotonic() + 60
        found = -1
        while found < ends:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
            with urlopen(asking, timeout=30) as answer:
                found = sum(it["before"] + it["after"] for it in json.load(answer)["turns"])

    await asyncio.to_thread(look)


async def test_a_conversation_continues_from_a_prompt_with_the_files_of_then(
    page: Page, served: Served, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write(".gitignore", "seen*\n")
    project.write(".worktreeinclude", "seen*\n")
    project.write("a.txt", "one")
    session = await agent.new_session(cwd=project.top)
    await session.prompt(steps({"say": "First."}))
    edit = f"cd {project.top} && printf two >a.txt && touch seen"
    allowed, seen = tmp_path / "allowed", project.top / "seen"
    work = steps({"until": str(allowed)}, {"spawn": edit}, {"until": str(seen)}, {"say": "Second."})
    turn = session.prompt(work)
    await until_kept(served, session.id, 3)
    allowed.touch()
    await turn
    await until_kept(served, session.id, 4)
    await opened(page, session.id)
    first, second = (page.locator(".of-prompt").nth(at) for at in (0, 1))
    offer = second.get_by_role("button", name="Continue from here")
    for before, name, words in (
        (True, "Before this prompt", "one"),
        (False, "After this turn", "two"),
    ):
        await page.set_viewport_size({"width": 360 if before else 1280, "height": 760})
        await offer.focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("(not what .gitignore names)")
        if before:
            await dialog.get_by_role("checkbox", name="Also copy the ignored").press("Space")
        assert await violations(page) == []
        await dialog.get_by_role("button", name=name).press("Enter")
        left = "Files in .gitignore, if any, were not copied."
        included = (
            "1 ignored file was copied as it is now. "
            "Other files in .gitignore, if any, were not copied."
        )
        await expect(dialog).to_contain_text(included if before else left)
        assert await violations(page) == []
        copy = Path(await dialog.locator("code").inner_text())
        assert copy.parent == project.top.parent
        assert ((copy / "a.txt").read_text(), (copy / "seen").exists()) == (words, before)
        await expect(dialog.get_by_role("button")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.wait_for_url(lambda url: session.id not in url)
        await expect(page.locator(".bar .name p")).to_contain_text(copy.name)
        await expect(page.locator(".said", has_text="First.")).to_be_visible()
        await expect(page.locator(".said", has_text="Second.")).to_have_count(0 if before else 1)
        await expect(page.locator(".composer textarea")).to_have_value(work if before else "")
        await opened(page, session.id)
    # Without the files; and Back leaves no copy unseen that is being made.
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("project$"))
    await offer.click()
    await dialog.get_by_role("checkbox", name="Also copy the files").uncheck()
    await page.evaluate(
        """() => {
          const send = WebSocket.prototype.send;
          WebSocket.prototype.send = function (it) {
            if (!it.includes("_acphold/fork")) return send.call(this, it);
            WebSocket.prototype.send = send;
            globalThis.release = () => send.call(this, it);
          };
        }"""
    )
    await dialog.get_by_role("button", name="Before this prompt").click()
    await expect(dialog).to_have_attribute("aria-busy", "true")
    await page.evaluate(
        """() => new Promise((resolve) => {
          addEventListener("hashchange", () => resolve(), { once: true });
          location.hash = "#/";
        })"""
    )
    await page.evaluate("release()")
    await page.wait_for_url(re.compile("#/session/"))
    assert session.id not in page.url
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("project$"))
    await expect(page.locator(".said", has_text="First.")).to_be_visible()
    await opened(page, session.id)
    await expect(second).to_be_visible()
    # Before the first prompt there is no conversation, and by Escape nothing is made.
    await first.get_by_role("button", name="Continue from here").click()
    await expect(dialog.get_by_role("button")).to_have_text([re.compile("^After"), "Cancel"])
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert (project.top / "a.txt").read_text() == "two"


async def test_a_device_without_the_scope_for_files_is_offered_none(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    session = await agent.new_session(cwd=project.top)
    await session.prompt(steps({"say": "Done."}))
    await opened(page, session.id)
    await expect(page.get_by_role("button", name="Continue from here")).to_have_count(1)
    # Asked again after a connection, the server would say what this device may.
    await page.context.route("**/browser", lambda route: route.abort())
    await page.evaluate(
        """() => {
          const known = JSON.parse(localStorage["acphold device"]);
          known.scopes = known.scopes.filter((it) => it !== "files");
          localStorage["acphold device"] = JSON.stringify(known);
        }"""
    )
    await page.reload()
    await expect(page.locator(".said", has_text="Done.")).to_be_visible()
    await page.get_by_label("More").click()
    await page.locator("#session-menu").get_by_text("Continue in a copy").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await expect(page.get_by_role("dialog").get_by_role("checkbox")).to_have_count(0)
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Continue from here").click()
    await expect(page.get_by_role("dialog").get_by_role("button")).to_have_count(2)
    await expect(page.get_by_role("dialog").get_by_role("checkbox")).to_have_count(0)
