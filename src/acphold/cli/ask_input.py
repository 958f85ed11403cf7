"""The input of `acphold ask`: the prompt, and the text on stdin."""

from __future__ import annotations

import os
import select
import sys
import time

from acphold.cli.command_line import UsageError

FROM_STDIN = "-"
"""As the prompt, this stands for all of stdin."""

FIRST_BYTE_SECONDS = 5.0
"""A pipe on stdin has this long to deliver something or to end: some programs pass on a pipe that
stays open for ever. A prompt of `-` waits."""

MOST_STDIN = 16 << 20
"""At most this many bytes of stdin are sent; a model reads a fraction of it."""


def prompt_and_stdin(prompt: str, deadline: float | None) -> list[str]:
    """Return the texts to send: the prompt, then the text on stdin.

    Raises UsageError when both are empty, TimeoutError at the deadline.
    """
    if prompt != FROM_STDIN:
        found = [prompt, _stdin(deadline, waits=False)]
    elif sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("`-` sends what comes on stdin, which is a terminal here")
    else:
        found = [_stdin(deadline, waits=True)]
    texts = [text for text in found if text.strip()]
    if not texts:
        raise UsageError("the prompt is empty")
    return texts


def _stdin(deadline: float | None, *, waits: bool) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    fd = sys.stdin.fileno()
    if not waits and not select.select([fd], [], [], _left(deadline, FIRST_BYTE_SECONDS))[0]:
        print(
            f"acphold ask: nothing has come on stdin for {FIRST_BYTE_SECONDS:g} s, so it is not "
            "sent; `< /dev/null` says at once that there is nothing",
            file=sys.stderr,
        )
        return ""
    data = bytearray()
    while select.select([fd], [], [], _left(deadline, None))[0]:
        piece = os.read(fd, 64 * 1024)
        data += piece
        if not piece and b"\0" in data:
            raise UsageError("stdin is not text; use --file")
        if not piece:
            return data.decode(errors="replace")
        if len(data) > MOST_STDIN:
            raise UsageError(f"more than {MOST_STDIN >> 20} MiB came on stdin; use --file")
    raise TimeoutError


def _left(deadline: float | None, most: float | None) -> float | None:
    """Return the seconds until the deadline, at most `most`; None for no bound."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return min((it for it in (left, most) if it is not None), default=None)
