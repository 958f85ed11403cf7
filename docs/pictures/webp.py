"""Screenshots as one animated WebP, with the words that it shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageSequence

QUALITY = 80

FINGER = 26
"""Its radius, in pixels of the page."""

FINGER_COLOUR = (80, 110, 190, 115)


class Shot(NamedTuple):
    """A screenshot (PNG) that stays for so long; the finger is at a point of the page, or None."""

    png: bytes
    seconds: float
    finger: tuple[float, float] | None = None


def animated(shots: Sequence[Shot], words: Sequence[str], scale: float) -> bytes:
    """Return the film; `scale` is the pixels of a screenshot for one of its page.

    Its words, one text for each scene, stand in its metadata (XMP) as JSON.
    """
    first, *others = [_frame(shot, scale) for shot in shots]
    film = BytesIO()
    first.save(
        film,
        "WEBP",
        save_all=True,
        append_images=others,
        duration=[round(1000 * shot.seconds) for shot in shots],
        loop=0,
        quality=QUALITY,
        method=6,
        minimize_size=True,
        xmp=json.dumps([*words]).encode(),
    )
    return film.getvalue()


def words_of(film: bytes) -> list[str]:
    """Return the words of each scene of a film."""
    with Image.open(BytesIO(film)) as opened:
        found: list[str] = json.loads(opened.info["xmp"])
    return found


def seconds_of(film: bytes) -> float:
    """Return the length of a film."""
    milliseconds = 0
    with Image.open(BytesIO(film)) as opened:
        for frame in ImageSequence.Iterator(opened):
            frame.load()
            milliseconds += frame.info["duration"]
    return milliseconds / 1000


def _frame(shot: Shot, scale: float) -> Image.Image:
    frame = Image.open(BytesIO(shot.png)).convert("RGB")
    if shot.finger is not None:
        x, y = (scale * at for at in shot.finger)
        ImageDraw.Draw(frame, "RGBA").circle((x, y), scale * FINGER, FINGER_COLOUR)
    return frame
