"""The page of an export in a real browser: read, folded and searched with the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exports.sessions import HEAD, HOSTILE, exported
from tests.interop.browser import Page, browser
from tests.raw_entries import CONVERSATION, ended, prompt, said, update

pytestmark = pytest.mark.interop

LONG = [{"type": "content", "content": {"type": "text", "text": "line\n" * 90 + "the needle\n"}}]
IMAGE = {
    "type": "image",
    "mimeType": "image/gif",
    "data": "R0lGODlhAQABAIAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==",
}
TURNS = (
    *CONVERSATION,
    prompt("Where is the needle?"),
    said("Let me see.", "agent_thought_chunk"),
    update("tool_call", toolCallId="t2", title="Read hay", status="completed", content=LONG),
    update("agent_message_chunk", content=IMAGE),
    said("In the hay: <b>there</b>. ![x](https://elsewhere.example/x.png)"),
    ended(),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A page of a conversation."""
    made = tmp_path / "page.html"
    made.write_text(exported("html", *TURNS))
    return made


def count(page: Page) -> object:
    return page.run("document.getElementById('count').textContent")


def test_a_page_loads_nothing_from_elsewhere_and_nothing_is_refused(page: Page, path: Path) -> None:
    page.open(path)
    assert {url for url in page.loaded() if not url.startswith("data:")} == {path.as_uri()}
    assert page.complaints() == []
    assert page.run("[...document.images].every((image) => image.naturalWidth === 1)")


def test_a_search_opens_the_fold_that_has_the_words(page: Page, path: Path) -> None:
    page.open(path)
    assert not page.run("document.querySelectorAll('details.tool')[1].open")
    page.press("/", text="/")
    assert page.run("document.activeElement.id") == "words"
    page.type("the needle")
    page.press("Enter", text="\r")
    assert count(page) == "1 of 2"
    page.press("Enter", text="\r")
    assert count(page) == "2 of 2"
    assert page.run("document.querySelectorAll('details.tool')[1].open")
    assert page.run("CSS.highlights.get('now').size") == 1
    assert page.run(
        "(() => { const place = document.querySelector('.now pre').getBoundingClientRect();"
        " return place.top < innerHeight && place.bottom > 0; })()"
    )
    page.press("Enter", shift=True, text="\r")
    assert count(page) == "1 of 2"
    page.press("Escape")
    assert (count(page), page.run("document.querySelectorAll('.hit').length")) == ("", 0)


def test_words_that_are_not_there_are_said_not_to_be(page: Page, path: Path) -> None:
    page.open(path)
    page.press("/", text="/")
    page.type("haystack")
    page.wait("document.getElementById('count').textContent === 'no hits'")


def test_all_folds_open_and_close_with_one_key(page: Page, path: Path) -> None:
    page.open(path)
    page.run("document.getElementById('folds').focus()")
    page.press(" ", text=" ")
    assert page.run("[...document.querySelectorAll('details')].every((fold) => fold.open)")
    page.press(" ", text=" ")
    assert page.run("[...document.querySelectorAll('details')].every((fold) => !fold.open)")


def test_a_page_is_as_dark_as_the_browser(page: Page, path: Path) -> None:
    colours = []
    for dark in (False, True):
        page.open(path, dark=dark)
        colours.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(253, 253, 252)", "rgb(25, 26, 28)"]


def test_nothing_stands_beside_a_narrow_page(page: Page, path: Path) -> None:
    page.open(path, width=320)
    page.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
    root = "document.documentElement"
    assert page.run(f"{root}.scrollWidth === {root}.clientWidth")


def test_what_somebody_wrote_does_nothing(page: Page, tmp_path: Path) -> None:
    diff = {"type": "diff", "path": HOSTILE, "oldText": HOSTILE, "newText": f"{HOSTILE}\n"}
    made = tmp_path / "hostile.html"
    made.write_text(
        exported(
            "html",
            prompt(HOSTILE),
            said(f"{HOSTILE} [x](javascript:alert(1)) `{HOSTILE}`\n\n# {HOSTILE}"),
            said(HOSTILE, "agent_thought_chunk"),
            update(
                "tool_call",
                toolCallId="t",
                title=HOSTILE,
                rawInput={HOSTILE: HOSTILE},
                content=[diff],
            ),
            ended(error={"code": 1, "message": HOSTILE}),
            head=HEAD.__class__(HOSTILE, HOSTILE, HOSTILE, 0, 0, HOSTILE),
        )
    )
    page.open(made)
    assert not [told for told in page.heard if told["method"] == "Page.javascriptDialogOpening"]
    assert page.run("document.scripts.length") == 1
    assert page.run("document.querySelectorAll('img, iframe, object, form').length") == 0
    assert page.run("document.body.lastElementChild.tagName") == "SCRIPT"
    assert page.complaints() == []


def test_ten_thousand_updates_are_searched_at_once(page: Page, tmp_path: Path) -> None:
    turns = [
        raw
        for number in range(500)
        for raw in (prompt(f"Question {number}"), *[said(f"word {number} ")] * 18, ended())
    ]
    made = tmp_path / "long.html"
    made.write_text(exported("html", *turns))
    page.open(made)
    page.press("/", text="/")
    page.type("question 499")
    page.press("Enter", text="\r")
    assert count(page) == "1 of 1"
