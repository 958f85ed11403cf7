"""The pictures of the README show the output of a real run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from docs.pictures.terminal_svg import read

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PHONE = FOLDER / "phone.webp"
PICTURES = sorted(FOLDER.glob("*.svg"))


def masked(text: str) -> str:
    """Without the ids of sessions and the numbers of entries, which are other ones in each run,
    the day of an hour, the seconds of a start, and the keys that the line below the prompt reminds
    of."""
    text = re.sub(r"\b(?=\w*\d)[0-9a-f]{6,}\b|@\d+", "#", text)
    text = re.sub(r"\d{4}-\d\d-\d\d (?=\d\d:\d\d)", "", text)
    text = re.sub(r"… \d+ s\b", "…", text)
    return re.sub(r"ready · .*", "ready", text)


@pytest.mark.interop  # it takes as long as the film does
def test_what_the_pictures_show_is_what_a_run_gives() -> None:
    from docs.pictures.__main__ import pictures

    made, keys = pictures()
    assert {*made} == {picture.name for picture in PICTURES}
    shown = [
        masked(text) for name in made for text in read((FOLDER / name).read_text(encoding="utf-8"))
    ]
    missing = [key.text for key in keys if masked(key.text) not in shown]
    assert not missing, f"run `make pictures`; this is not in them:\n{missing[0]}"


@pytest.mark.interop  # it has a browser
def test_the_film_of_the_phone_has_the_words_of_a_run() -> None:
    from docs.pictures.phone import filmed
    from docs.pictures.webp import words_of

    kept = words_of(PHONE.read_bytes())
    _, words, _ = filmed()
    told = "run `make pictures`: these are not the words of its scenes"
    assert [of_any_run(text) for text in kept] == [of_any_run(text) for text in words], told


def of_any_run(text: str) -> str:
    """Without the names of the machine and of the scene's folder, and times."""
    return re.sub(r"you@\S+|\btmp\w+(?=/)|\b\d\d:\d\d\b|\bnow\b|\b\d+ min\b", "#", text)


def test_the_film_of_the_phone_is_short_and_small() -> None:
    from docs.pictures.webp import seconds_of  # late: it brings a library for pictures

    film = PHONE.read_bytes()
    assert 6 < seconds_of(film) < 20
    assert len(film) < 400_000


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_runs_nothing_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    names = {element.tag.rpartition("}")[2] for element in fromstring(text).iter()}
    assert names <= {"svg", "style", "rect", "circle", "g", "text", "use"}
    assert re.findall(r'href="(?!#)|url\(|@import|\bon\w+=', text) == []


def test_the_story_takes_about_a_quarter_of_a_minute() -> None:
    text = (FOLDER / "story.svg").read_text(encoding="utf-8")
    [seconds] = re.findall(r"animation:film ([\d.]+)s", text)
    assert 10 < float(seconds) < 22
    assert len(text) < 150_000
