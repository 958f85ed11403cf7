"""Lines are cut out of bytes wherever the pieces of a file fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acphold.errors import NotTextError
from acphold.workspace.text import LineWindow, decoded, has_crlf, refuse_binary, with_crlf

TEXT = st.text("ab\n\r\u00e9", max_size=30).map(str.encode)


def window(data: bytes, size: int, first: int, limit: int | None) -> bytes:
    cut = LineWindow(first, limit)
    for start in range(0, len(data), size):
        if cut.complete:
            break
        cut.feed(data[start : start + size])
    assert cut.size == len(cut.lines())
    return cut.lines()


@given(TEXT, st.integers(1, 9), st.integers(1, 8), st.none() | st.integers(0, 8))
def test_a_window_is_that_many_lines_from_there_on(
    data: bytes, size: int, first: int, limit: int | None
) -> None:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    last = None if limit is None else first - 1 + limit
    assert window(data, size, first, limit) == b"".join(lines[first - 1 : last])


@given(TEXT, st.integers(1, 9), st.integers(1, 4))
def test_pages_in_a_row_are_the_file(data: bytes, size: int, limit: int) -> None:
    pages = [window(data, size, line, limit) for line in range(1, 40, limit)]
    assert b"".join(pages) == data


@given(TEXT)
def test_crlf_is_given_once_to_every_line(data: bytes) -> None:
    changed = with_crlf(data)
    assert has_crlf(changed) == (b"\n" in data)
    assert changed.replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")
    assert with_crlf(changed) == changed


@pytest.mark.parametrize("text", [b"", b"a", b"a\r\nb\n", b"a\nb\n", b"\r"])
def test_a_text_with_other_line_ends_too_has_none_to_keep(text: bytes) -> None:
    assert not has_crlf(text)


def test_a_byte_that_is_no_utf8_is_told_with_its_line() -> None:
    with pytest.raises(NotTextError, match=r"'f' is not text in UTF-8: byte 0xff in line 12"):
        decoded(b"a\nb\n\xff", 10, "f")


@pytest.mark.parametrize("data", [b"\x7fELF\0", "hi".encode("utf-16"), b"\xfe\xff\0a"])
def test_binary_files_are_told_from_text(data: bytes) -> None:
    with pytest.raises(NotTextError):
        refuse_binary(data, "f")
    refuse_binary(b"a" * 8000 + b"\0", "f")
