"""The layout of a transcript: scenes and programs' output, on a terminal and as plain text.

A program's colour may equal the terminal's background, which cannot be known for sure, and hide the
words. So backgrounds, concealed, dim or blinking text, and black and white are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TextIO, assert_never, overload

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from rich.text import Text

from acp_wire import schema
from acphold.conversation.history.raw_update import string
from acphold.conversation.history.timeline import (
    ContextCompaction,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
    TurnOutcome,
)
from acphold.conversation.presentation import scenes
from acphold.conversation.presentation.blocks import Block, diff_block
from acphold.conversation.presentation.long_output import LongText, shown_parts
from acphold.conversation.presentation.scenes import blocks_of, describe_block, without_fence
from acphold.conversation.presentation.visible_text import on_one_line, quantity, size, visible
from acphold.conversation.reports.transcript import (
    DecidedQuestion,
    ModeChanged,
    Noticed,
    Planned,
    Scene,
    TurnOpen,
)
from acphold.faces.screen import bounds

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

OUTPUT_LINES = 20
"""Lines shown of one tool's output unless all are asked for."""

OUTPUT_CHARACTERS = 20_000
"""Most characters of them: a program may print megabytes without a line end."""

LABELS = {"user": "you", "agent": "agent", "thought": "thought"}
"""Labels of the speakers, in the gutter; also the names of their styles."""

STATUS_STYLES = {"in_progress": "busy", "completed": "good", "failed": "bad"}

ENDING_STYLES: dict[TurnOutcome, str] = {
    "completed": "faint",
    "limited": "busy",
    "refused": "bad",
    "cancelled": "busy",
    "failed": "bad",
    "interrupted": "bad",
    "unanswered": "faint",
}


class Passage(Struct, frozen=True):
    """A label and the lines beside it; with `markdown` the lines are Markdown.

    A part of a long passage has in `around` the text to put before and after its lines so that they
    are laid out correctly; with `goes_on` it continues the passage before.
    """

    label: str
    style: str
    lines: Sequence[Text]
    markdown: bool = False
    around: tuple[str, str] = ("", "")
    goes_on: bool = False

    @property
    def letters(self) -> int:
        """Amount to lay out: characters, and line ends."""
        return sum(len(line) + 1 for line in self.lines)


class _Lines(Sequence[Text]):
    """Lines in one style, each made when it is asked for: a message may have a million."""

    def __init__(self, plain: list[str], style: str) -> None:
        self.plain = plain
        self._style = style

    def __len__(self) -> int:
        return len(self.plain)

    @overload
    def __getitem__(self, place: int) -> Text: ...
    @overload
    def __getitem__(self, place: slice) -> _Lines: ...
    def __getitem__(self, place: int | slice) -> Text | _Lines:
        if isinstance(place, slice):
            return _Lines(self.plain[place], self._style)
        return Text(self.plain[place], self._style)


def _plain(lines: Sequence[Text]) -> Iterable[str]:
    return lines.plain if isinstance(lines, _Lines) else (line.plain for line in lines)


def in_pieces(whole: Passage) -> Iterator[Passage]:
    """Yield a passage in pieces that are quick to lay out; only the first has the label."""
    label, goes_on = whole.label, whole.goes_on
    if whole.markdown:
        text = "\n".join(_plain(whole.lines))
        if len(text) <= bounds.PIECE_LETTERS or any(whole.around):
            yield whole
            return
        from acphold.faces.screen.markdown import pieces_of  # late: few pieces are that long

        for piece in pieces_of(text):
            if piece.text.strip():
                yield replace(
                    whole,
                    label=label,
                    lines=_Lines(piece.text.split("\n"), ""),
                    around=(piece.opening, piece.closing),
                    goes_on=piece.goes_on,
                )
                label = ""
        return
    lines: list[Text] = []
    letters = 0
    for line in whole.lines:
        if letters + len(line) > bounds.PIECE_LETTERS and lines:
            yield replace(whole, lines=lines, label=label, goes_on=goes_on)
            lines, letters, label, goes_on = [], 0, "", True
        lines.append(line)
        letters += len(line) + 1
    yield replace(whole, lines=lines, label=label, goes_on=goes_on)


def passage(scene: Scene, *, full: bool = False, more: str = "", brief: bool = False) -> Passage:
    """Return a scene as a passage; long output is cut unless `full`, with `more` at the cut.

    `brief` is for a person who looks on: a tool call is one line and the end of a command's output.
    """
    match scene:
        case Message() if scenes.is_told(scene):
            told = Text(f"{scenes.TOLD}:", "faint")
            return Passage("user", "faint", [told, *_lines(block_text(scene.content))])
        case Message():
            label = LABELS[scene.role]
            lines = _lines(block_text(scene.content), "thought" if scene.role == "thought" else "")
            if scene.user:
                return Passage("user", label, [Text(on_one_line(scene.user), "faint"), *lines])
            return Passage(label, label, lines, markdown=scene.role == "agent")
        case ToolCall():
            if brief:
                return Passage("tool", "tool", list(_brief(scene, more)))
            return Passage("tool", "tool", list(_tool(scene, full=full, more=more)))
        case SubAgent():
            return Passage("child", "tool", list(_sub_agent(scene, full=full, more=more)))
        case ContextCompaction():
            kept = _lines(block_text(scene.summary), "faint")
            return Passage("context", "faint", [*_lines(scenes.compaction_text(scene)), *kept])
        case Planned():
            steps: list[Text] = []
            for step in scene.steps:
                style = STATUS_STYLES.get(step.status, "faint")
                mark = f"{scenes.plan_mark(step.status)} "
                steps.append(Text.assemble((mark, style), on_one_line(step.text)))
            return Passage("plan", "plan", steps)
        case Noticed(is_ours=True):
            return Passage("acphold", "acphold", _lines(scenes.notice_text(scene)))
        case Noticed():
            first, *others = _lines(scenes.notice_text(scene)) or [Text()]
            head = Text.assemble(("notice: ", "faint"), first)
            return Passage("agent", "agent", [head, *others])
        case ModeChanged():
            return Passage("mode", "faint", _lines(scene.mode))
        case DecidedQuestion():
            decision = on_one_line(scenes.decision_text(scene))
            line = Text.assemble(
                (f"{decision}: ", "faint"), on_one_line(scenes.question_text(scene))
            )
            if said := scenes.said_more(scene):
                line.append(" → ", "faint").append(on_one_line(said))
            return Passage("asked", "acphold", [line])
        case TurnEnd():
            return Passage(
                "turn", "faint", _lines(scenes.ending_text(scene), ENDING_STYLES[scene.outcome])
            )
        case TurnOpen():
            return Passage("turn", "faint", _lines(scenes.ending_text(scene), "busy"))
        case _:
            assert_never(scene)


def _lines(text: str, style: str = "") -> _Lines:
    return _Lines(visible(text).splitlines(), style)


# -- tool calls -----------------------------------------------------------------------------


COMMAND_LINES = 5
"""Lines shown of a command's output: the last ones say how it went."""

QUIET = ("read", "think")
"""Kinds of tools whose output is for the agent."""


def _brief(call: ToolCall, more: str) -> Iterator[Text]:
    """Yield one line, and below it the interesting part: a diff, the end of a command's output."""
    head, *_ = _tool(ToolCall(call.tool_call_id, {**call.fields, "content": b"[]"}))
    head.no_wrap, head.overflow = True, "ellipsis"
    yield head
    if call.kind in QUIET and call.status != "failed":
        return
    for item in shown_parts(call):
        if isinstance(item, schema.Diff | Block) or (isinstance(item, LongText) and item.whole):
            yield from _produced(item, full=False, more=more)
            continue
        whole = _words(item)
        text = whole.tail or whole.head
        start = _start_of_end(text)
        lines = lines_in_colour(text[start:])
        above = text.count("\n", 0, start) + max(0, len(lines) - COMMAND_LINES)
        if whole.tail:
            above += whole.head.count("\n") + whole.line_ends
        if above:
            yield Text(f"  … {quantity(above, 'line')} above{more}", "faint")
        yield from (Text("  ").append_text(line) for line in lines[-COMMAND_LINES:])


def call_head(call: ToolCall, title: str) -> Text:
    """Return the first line of a tool call: its mark, this title, its kind and its status."""
    mark, style = scenes.step_mark(call.status), STATUS_STYLES.get(call.status, "faint")
    status = on_one_line(call.status.replace("_", " "))
    kind = f"{'  ' if title else ''}{on_one_line(call.kind)} · "
    return Text.assemble((f"{mark} ", style), title, (kind, "faint"), (status, style))


def _tool(call: ToolCall, *, full: bool = False, more: str = "") -> Iterator[Text]:
    yield call_head(call, on_one_line(call.title or call.tool_call_id))
    for item in call.produced if full else shown_parts(call):
        yield from _produced(item, full=full, more=more)
    raw = call.raw_output
    if (
        full and raw and not call.produced and raw not in (b"null", b"{}")
    ):  # it is shown nowhere else
        text = string(raw)
        yield from _inside(
            _lines(raw.decode(errors="replace") if text is None else text), full=full, more=more
        )


def _produced(
    item: schema.ToolCallContent | LongText | Block, *, full: bool, more: str
) -> Iterator[Text]:
    if isinstance(item, schema.Diff | Block):
        block = item if isinstance(item, Block) else diff_block(item, whole=full)
        lines = list(block_lines([block]))
        yield from _inside(lines, full=full, more=more)
        return
    # Cut before it is laid out: only what is shown is looked at letter by letter.
    whole = _words(item)
    text = whole.head
    end = len(text) if full else _end_of_beginning(text)
    last = whole.tail or text
    left = text.count("\n", end) + whole.line_ends + whole.tail.count("\n")
    left += (end < len(text) or last is not text) and not last.endswith("\n")
    if whole.whole:
        yield from _inside(lines_in_colour(text[:end]), full=full, more=more)
        yield Text(f"  … more lines, in {size(whole.whole)}{more}", "faint")
        return
    yield from _inside(lines_in_colour(text[:end]), full=full, more=more, left=left)


def _end_of_beginning(text: str) -> int:
    """Return the place behind the lines of output that are shown."""
    end = 0
    for _ in range(OUTPUT_LINES):
        end = text.find("\n", end) + 1 or len(text)
    return min(end, OUTPUT_CHARACTERS)


def _start_of_end(text: str) -> int:
    """Return the place of the last lines of a command's output."""
    start = len(text) - text.endswith("\n")
    for _ in range(COMMAND_LINES):
        start = text.rfind("\n", 0, max(0, start))
    return max(start + 1, len(text) - OUTPUT_CHARACTERS)


def _inside(lines: Sequence[Text], *, full: bool, more: str, left: int = 0) -> Iterator[Text]:
    """Yield the lines, or the first; `left` more are not among them."""
    shown = lines if full else lines[:OUTPUT_LINES]
    for line in shown:
        yield Text("  ").append_text(line)
    if left := left + len(lines) - len(shown):
        yield Text(f"  … {quantity(left, 'more line')}{more}", "faint")


def _sub_agent(agent: SubAgent, *, full: bool, more: str) -> Iterator[Text]:
    words, status = scenes.sub_agent_stands(agent)
    style = STATUS_STYLES.get(status, "faint")
    about = f"  sub-agent · {words}" if words else "  sub-agent"
    yield Text.assemble(
        (f"{scenes.step_mark(status)} ", style), on_one_line(agent.name), (about, "faint")
    )
    lines: list[Text] = []
    for item in agent.timeline:
        if isinstance(item, Message):
            first, *rest = _lines(block_text(item.content)) or [Text()]
            label = scenes.speaker_in_child(item).lower()
        else:
            inner = passage(item, full=full, more=more)
            label, (first, *rest) = inner.label, inner.lines or [Text()]
        lines.append(Text.assemble((f"{label}: ", "faint"), first))
        lines += [Text("  ").append_text(line) for line in rest]
    yield from _inside(lines, full=full, more=more)


def _words(
    item: schema.Content | schema.Terminal | schema.UnknownToolContent | LongText,
) -> LongText:
    match item:
        case LongText():
            return item
        case schema.Content(content=block):
            return LongText(without_fence(describe_block(block)))
        case schema.Terminal(terminal_id=terminal):
            return LongText(f"[terminal {terminal}]")
        case schema.UnknownToolContent(kind=kind):
            return LongText(f"[{kind}]")
        case _:
            assert_never(item)


def block_lines(blocks: Sequence[Block]) -> Iterator[Text]:
    """Yield the lines of the parts of a question, each of them whole."""
    for block in blocks:
        if block.kind == "diff":
            head = Text(block.name, "heading")
            yield head.append(f"  {block.text}", "faint") if block.text else head
            for sign, text in ((line.sign, line.text) for line in block.lines):
                style = {"+": "added", "-": "removed", "@": "faint"}.get(sign, "")
                yield Text(text if sign == "@" else f"{sign} {text}", style)
            continue
        name = block.name or ("command" if block.kind == "command" else "")
        for place, text in enumerate(block.whole.split("\n")):
            yield Text(text if not name else f"  {text}" if place else f"{name}: {text}")


# -- content --------------------------------------------------------------------------------


def block_text(content: Sequence[bytes]) -> str:
    """Return the text of raw content blocks; each other block is named on its own line."""
    text = ""
    for block in blocks_of(content):
        if not isinstance(block, schema.TextContent) and text and not text.endswith("\n"):
            text += "\n"
        text += describe_block(block)
        if not isinstance(block, schema.TextContent):
            text += "\n"
    return text.strip("\n")


# -- a program's colours ---------------------------------------------------------------------

SGR = re.compile(r"\x1b\[([0-9;:]*)m")
"""Select Graphic Rendition (ECMA-48, 8.3.117)."""

KEPT = {
    *("", "0", "1", "3", "4", "9", "22", "23", "24", "29", "39"),
    *(str(code) for code in (*range(31, 37), *range(90, 97))),
}
INSTEAD = {"30": "90", "37": "39", "97": "39"}
"""Replacements for black and white: grey, and the default colour."""

EXTREME = {*map(str, (0, 7, 15, 16, 231, *range(232, 238), *range(250, 256)))}
"""The near-black and near-white ones of the 256 colours."""


def lines_in_colour(text: str) -> list[Text]:
    """Return the lines, neutralised except for their colours."""
    if "\x1b[" not in text:
        return [Text(line) for line in visible(text).splitlines()]
    pieces = SGR.split(text)
    shown = [
        f"\x1b[{';'.join(_harmless(piece))}m" if place % 2 else visible(piece)
        for place, piece in enumerate(pieces)
    ]
    from rich.ansi import AnsiDecoder

    decoder = AnsiDecoder()
    return [decoder.decode_line(line) for line in "".join(shown).splitlines()]


def _harmless(codes: str) -> Iterator[str]:
    """Yield the codes of one sequence that colour the text and hide nothing."""
    left = iter(codes.replace(":", ";").split(";"))
    for code in left:
        if code in ("38", "48"):
            form = next(left, "")
            colour = [next(left, "") for _ in range({"5": 1, "2": 3}.get(form, 0))]
            levels = [int(level) for level in colour if level.isdecimal() and len(level) < 4]
            hides = colour[0] in EXTREME if form == "5" else not 60 < sum(levels) / 3 < 190
            if code == "38" and colour and not hides and len(levels) == len(colour):
                yield ";".join([code, form, *colour])
        elif code in KEPT or code in INSTEAD:
            yield INSTEAD.get(code, code)


# -- drawing --------------------------------------------------------------------------------

GUTTER = 9
"""Columns for the labels, of which the longest is `thought`."""

HANGS_BEHIND = re.compile(r"\s*(?:[○◐●✓✗+-] )?\s*")
"""The part of a wrapped line that its continuation aligns behind: indent, mark, or diff sign."""

MARK = "▸"
"""Marks the requested passage."""

NARROWEST = 4
"""Minimum columns of text beside a label: a terminal of a dozen has no more."""

MAX_WIDTH = 110
"""Columns of a line of prose beyond which the eye loses its place."""


OWN_LABEL = re.compile(
    r"(▸ )?(you|user|agent|thought|tool|child|context|plan|acphold|mode|asks|asked|turn|stderr)▸?:"
)
"""The start of a passage in plain text.

An agent's line that looks like one is indented, which is the same in Markdown.
"""

BESIDE = re.compile(r"[^\W\d_]|[\"'(*`]\w")
"""The start of a paragraph that can stand beside a label and still be read as Markdown."""


class LabelledText:
    """`label: text`, further lines indented.

    An agent's message is its own Markdown without an indent, beside its label or below it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._before_title = ""

    def head(self, title: str, facts: Sequence[str]) -> None:
        if title:
            title, self._before_title = f"{self._before_title}{title}", "\n"
        self._stream.write("\n".join(filter(None, [title, *facts])) + "\n")

    def put(self, passage: Passage, *, marked: bool = False) -> None:
        label = f"{MARK} {passage.label}" if marked else passage.label
        lines = (line.rstrip() for line in _plain(passage.lines))
        if passage.markdown:
            lines = (f"  {line}" if OWN_LABEL.match(line) else line for line in lines)
            head = next(lines, "")
            if label:
                head = f"{label}: {head}" if BESIDE.match(head) else f"{label}:\n\n{head}"
        else:
            head = (f"{label}: " if label else "  ") + next(lines, "")  # without a label it goes on
            head = head.rstrip()
            lines = (f"  {line}".rstrip() for line in lines)
        self._stream.write("\n" * (not passage.goes_on))
        self._stream.writelines(f"{line}\n" for line in chain([head], lines))

    def gap(self, words: str) -> None:
        self._stream.write(f"\n{words}\n")


class Gutter:
    """Labels on the left, in colour; text beside them, wrapped."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._before_title = ""

    def head(self, title: str, facts: Sequence[str]) -> None:
        if title:
            self._console.print(Text(f"{self._before_title}{title}", "heading"))
            self._before_title = "\n"
        for fact in facts:
            self._console.print(Text(fact, "faint"))

    def put(self, passage: Passage, *, marked: bool = False) -> None:
        for piece in in_pieces(passage):
            if not piece.goes_on:
                self._console.print()
            self._console.print(Beside(piece.label, piece.style, body(piece), marked=marked))

    def gap(self, words: str) -> None:
        self._console.print()
        self._console.print(Beside("", "faint", Text(words, "faint")))


def body(passage: Passage) -> RenderableType:
    """Return the part beside the label: prose is laid out, everything else stays as it is."""
    if passage.markdown:
        from acphold.faces.screen.markdown import Prose  # late: plain text does without it

        before, behind = passage.around
        return Prose(before + "\n".join(line.plain for line in passage.lines) + behind)
    return Hanging(passage.lines)


class Hanging(Struct, frozen=True):
    """Unchanged lines; long ones wrap and align behind their indent and mark."""

    lines: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            width = options.max_width
            if line.cell_len <= width or line.no_wrap:
                yield line
                continue
            found = HANGS_BEHIND.match(line.plain)
            indent = min(found.end() if found else 0, width // 2)
            wrapped = line[indent:].wrap(console, width - indent)
            yield line[:indent].append_text(wrapped[0])
            yield from (Text(" " * indent).append_text(piece) for piece in wrapped[1:])


class Beside(Struct, frozen=True):
    """A label in the gutter with something beside it."""

    label: str
    style: str
    body: RenderableType
    gutter: int = GUTTER
    marked: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from acphold.faces.screen.markdown import without_margins  # late, too

        width = max(NARROWEST, min(options.max_width, MAX_WIDTH) - self.gutter)
        lines = console.render_lines(self.body, options.update(width=width), pad=False)
        label = self.label
        for line in without_margins(lines):
            mark = Segment(f"{MARK} ", console.get_style("found")) if self.marked else Segment("  ")
            head = Segment(f"{label:>{self.gutter - 2}}", console.get_style(self.style))
            kept = [head, mark, *line]
            # Somebody who copies a line does not want the spaces at its end. If a terminal draws a
            # character wider than rich counts it (an emoji with a skin tone), they would spill over
            # into an empty line.
            while kept and not kept[-1].text.rstrip():
                kept.pop()
            if kept:
                kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
            yield from kept
            yield Segment.line()
            label = ""
