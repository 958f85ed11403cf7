"""Text that plays no tricks on whoever reads it, and numbers and times in words.

All times are ms since the epoch.
"""

from __future__ import annotations

from datetime import UTC, datetime

_UNSEEN = {
    *(code for code in range(0x20) if chr(code) not in "\n\t"),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
}
"""What a terminal obeys or hides: the control characters of ASCII and of Latin-1 (C0, DEL, C1), and
the marks that change the direction of text (Unicode, UAX 9)."""

_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _UNSEEN}
_SHOWN |= {0x0D: ""}
_SHOWN_IN_JSON = {code: f"\\u{code:04x}" for code in _UNSEEN if chr(code) != "\r"}


def visible(text: str) -> str:
    """`text` with nothing in it that a terminal obeys; lone surrogates become U+FFFD.

    Everything that is printed and that we did not write goes through here.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.translate(_SHOWN)


def visible_json(text: str) -> str:
    """JSON that means the same, with nothing in it that a terminal obeys."""
    return text.translate(_SHOWN_IN_JSON)


def on_one_line(text: str) -> str:
    """`text` for a cell of a table: visible, white space in a row as one space."""
    return visible(" ".join(text.split()))


def size(count: int) -> str:
    """A number of bytes for people: `640 bytes`, `1.5 MiB`."""
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def iso(at: int) -> str:
    """ISO 8601 in UTC, to the millisecond: `2026-01-31T12:00:00.000Z`."""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(at: int) -> str:
    """To the minute, where the reader is: `2026-01-31 13:00`."""
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M")
