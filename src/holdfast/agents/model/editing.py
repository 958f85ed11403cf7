"""Exact replacements in a text; without I/O."""

from __future__ import annotations

from holdfast.errors import InvalidParamsError


def replaced(text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """`text` with `new` for `old`, which occurs once, or any number of times if `everywhere`.

    In a text whose lines end with CR LF, `old` and `new` may be written with LF alone. Raises
    InvalidParamsError, which tells a model how to do better.
    """
    if not old:
        raise InvalidParamsError("old_text is empty: give the text to replace, or write the file")
    if old == new:
        raise InvalidParamsError("old_text and new_text are the same")
    if old not in text and "\r\n" in text:
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    count = text.count(old)
    if count == 0:
        raise InvalidParamsError(
            "old_text is not in the file, exactly as given: read the file again, and mind "
            "indentation and line ends"
        )
    if count > 1 and not everywhere:
        lines = ", ".join(str(line) for line in _lines_with(text, old)[:10])
        raise InvalidParamsError(
            f"old_text is in the file {count} times (lines {lines}): give more of what is "
            "around it, or set replace_all"
        )
    return text.replace(old, new)


def first_change(old: str, new: str) -> int:
    """The line, from 1, where two texts begin to differ."""
    lines = zip(old.splitlines(keepends=True), new.splitlines(keepends=True), strict=False)
    same = 0
    for before, after in lines:
        if before != after:
            break
        same += 1
    return same + 1


def _lines_with(text: str, part: str) -> list[int]:
    places: list[int] = []
    at = text.find(part)
    while at >= 0:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(part, at + len(part))
    return places
