"""The input and output of `acphold ask`: prompt, stdin; words or JSON on stdout."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from acp_wire.schema import AgentMessageChunk, Notice, TextContent, ToolCallStart
from acphold.client.answers import PermissionAnswer, option_for
from acphold.client.remote_turn import as_update
from acphold.conversation.history.raw_update import (
    encode_object,
    encode_text,
    is_our_notice,
    members,
)
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import Exit, UsageError
from acphold.faces.cli.main import exit_code
from acphold.faces.cli.terminal_text import LINE_TERMINALS, on_one_line, visible, visible_json

if TYPE_CHECKING:
    from acphold.client import PermissionQuestion, RemoteSession
    from acphold.errors import AcpError


FROM_STDIN = "-"
"""As the prompt, this stands for all of stdin."""


def prompt_and_stdin(prompt: str, deadline: float | None) -> list[str]:
    """Return the texts to send: the prompt, then the text on stdin.

    Raises UsageError when both are empty, TimeoutError at the deadline.
    """
    if prompt != FROM_STDIN:
        found = [prompt, _stdin(deadline, waits=False)]
    elif sys.stdin is not None and sys.stdin.isatty():
        raise UsageError(
            "`-` reads the prompt from stdin, but stdin is a terminal; pipe the prompt in"
        )
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
    if (
        not waits
        and not select.select([fd], [], [], _seconds_left(deadline, bounds.FIRST_BYTE_SECONDS))[0]
    ):
        print(
            f"acphold ask: no input on stdin for {bounds.FIRST_BYTE_SECONDS:g} s, sending the "
            "prompt without it; add `< /dev/null` to skip this wait",
            file=sys.stderr,
        )
        return ""
    data = bytearray()
    while select.select([fd], [], [], _seconds_left(deadline, None))[0]:
        piece = os.read(fd, 64 * 1024)
        data += piece
        if not piece and b"\0" in data:
            raise UsageError("stdin is not text; use --file")
        if not piece:
            return data.decode(errors="replace")
        if len(data) > bounds.STDIN_BYTES:
            raise UsageError(f"stdin has more than {bounds.STDIN_BYTES >> 20} MiB; use --file")
    raise TimeoutError


def _seconds_left(deadline: float | None, most: float | None) -> float | None:
    """Return the seconds until the deadline, at most `most`; None for no bound."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return min((it for it in (left, most) if it is not None), default=None)


def print_message(words: str) -> None:
    """Print a message of ours on stderr; on a terminal no text of an agent can look like it."""
    name = "acphold ask:"
    if sys.stderr.isatty() and os.environ.get("TERM") not in LINE_TERMINALS:
        colour = "" if os.environ.get("NO_COLOR") else ";33"
        name = f"\x1b[1{colour}m{name}\x1b[0m"
    print(f"{name} {words}", file=sys.stderr)


class TextOutput:
    """The agent's text as it comes; tool calls are named on stderr if that is a terminal."""

    def __init__(self) -> None:
        # A file gets the agent's text unchanged, even what would control a terminal.
        self._tame = visible if sys.stdout.isatty() else str
        self._last = "\n"
        self._message: str | None = None

    def updates(self, raws: Sequence[bytes]) -> None:
        """Show updates of the agent."""
        for raw in raws:
            match update := as_update(raw):
                case AgentMessageChunk(content=TextContent(text=text), message_id=message):
                    if message != self._message:
                        self._end_line()
                    self._message = message
                    if text:
                        print(self._tame(text), end="")
                        self._last = text[-1]
                case ToolCallStart(title=title, kind=kind):
                    self._end_line()
                    if sys.stderr.isatty():
                        print(on_one_line(f"[{kind}] {title}"), file=sys.stderr)
                case Notice():
                    self.end_line()
                    parts = members(raw)
                    text = on_one_line(". ".join(filter(None, (update.title, update.description))))
                    if is_our_notice(parts):
                        print_message(text)
                    else:
                        print(f"[notice] {text}", file=sys.stderr)
        sys.stdout.flush()

    def end_line(self) -> None:
        """End the line: the next text on the terminal is not ours."""
        if sys.stdout.isatty():
            self._end_line()
            sys.stdout.flush()

    def _end_line(self) -> None:
        """End the line: the next text does not belong to the message so far."""
        if self._last != "\n":
            print()
            self._last = "\n"

    def show_decision(
        self, question: PermissionQuestion, answer: PermissionAnswer, *, by_person: bool
    ) -> None:
        """Show that a permission request was answered, by a person or by the arguments."""
        if answer is False and not by_person:  # the person has just seen it
            what = on_one_line(question.tool_call.title or "a tool call")
            print_message(f"not permitted (see --permission): {what}")

    def show_end(self, stop_reason: str | None, code: Exit) -> None:
        """Show that the turn is over."""
        self._end_line()
        sys.stdout.flush()
        if code:
            how = f"({stop_reason})" if stop_reason else "before the turn ended"
            print_message(visible(f"{code.meaning} {how}"))

    def show_failure(self, error: AcpError) -> None:
        """Show that the turn failed."""
        self._end_line()


class JsonOutput:
    """One JSON object per line, as things happen; otherwise like TextOutput."""

    def __init__(self) -> None:
        self._tame = visible_json if sys.stdout.isatty() else str

    def begins(self, agent: str, session: RemoteSession) -> None:
        """Show that the session is open; `agent` is its agent's name in `acphold list`."""
        self._print("session", sessionId=session.id, agent=agent, cwd=session.cwd)

    def updates(self, raws: Sequence[bytes]) -> None:
        for raw in raws:
            # As the agent wrote it; one on several lines is put on one line.
            line = {"type": b'"update"', "update": raw.replace(b"\n", b" ")}
            print(self._tame(encode_object(line).decode(errors="replace")))
        sys.stdout.flush()

    def end_line(self) -> None:
        return None  # each object has a line of its own

    def show_decision(
        self, question: PermissionQuestion, answer: PermissionAnswer, *, by_person: bool
    ) -> None:
        tool, option = question.tool_call, option_for(answer, question.options)
        self._print(
            "permission",
            toolCallId=tool.tool_call_id,
            title=tool.title,
            optionId=None if option is None else option.option_id,
            byPerson=by_person,
        )

    def show_end(self, stop_reason: str | None, code: Exit) -> None:
        self._print("end", stopReason=stop_reason, exitCode=int(code))

    def show_failure(self, error: AcpError) -> None:
        code = int(exit_code(error))
        self._print("error", message=str(error), code=error.code, exitCode=code)

    def _print(self, kind: str, **facts: object) -> None:
        raws = {name: msgspec.json.encode(value) for name, value in facts.items()}
        print(self._tame(encode_object({"type": encode_text(kind), **raws}).decode()), flush=True)
