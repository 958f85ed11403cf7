"""A conversation built from its updates: finished passages, and those that may still change.

Finished passages are printed once and stay on the terminal, in the order in which they finish,
which is not always the order in which they began. The others are redrawn.

| | finished |
|---|---|
| a message of the agent | paragraph by paragraph |
| a thought, a message of a user | when something else follows, or the turn ends |
| a tool call | when it is completed or failed, or the turn ends |
| a compaction of the agent's context | when it is over, or the turn ends |
| a sub-agent | when its work has ended, however many turns that takes |
| the plan | when the turn ends |
| a mode, a notice | at once |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from rich.text import Text

from acphold.conversation.history.children import MOST_CHILDREN, SPEAKS_OF_CHILDREN, child_of_update
from acphold.conversation.history.entries import CHILD, UPDATE, Entry
from acphold.conversation.history.fold import Fold
from acphold.conversation.history.raw_update import (
    ATTRIBUTE_KINDS,
    MESSAGES,
    METHOD,
    ROLES,
    Role,
    encode_text,
    is_our_notice,
    is_same_json,
    items,
    members,
    string,
    text_block,
    update_kind,
)
from acphold.conversation.history.replay import CLIENT_MARK, turn_end_in
from acphold.conversation.history.timeline import (
    FINAL_STATUSES,
    CompactionDraft,
    Message,
    MessageDraft,
    SubAgent,
    ToolCall,
    ToolDraft,
    TurnEnd,
)
from acphold.conversation.presentation.scenes import PAGE
from acphold.conversation.presentation.visible_text import on_one_line, quantity
from acphold.conversation.reports.transcript import ModeChanged, Noticed, Planned, PlanStep
from acphold.faces.screen import bounds
from acphold.faces.screen.layout import Passage, in_pieces, passage

if TYPE_CHECKING:
    from acphold.faces.screen.markdown import ParagraphPiece

Thoughts = Literal["folded", "whole"]

LIVE_OUTPUT = 4
"""Lines of output shown of a running tool."""


class _OpenMessage(MessageDraft):
    """A message that may go on; `by` names its user and their program, as `Client.info` does."""

    def __init__(self, role: Role, message_id: str | None, by: Mapping[str, bytes]) -> None:
        super().__init__(role, message_id)
        self.by = by
        from acphold.faces.screen.markdown import Paragraphs  # late: it takes 40 ms

        self.paragraphs = Paragraphs()
        self.lines = 0
        """Number of lines that are not empty."""
        self.is_begun = False
        self._is_in_line = False

    def add_block(self, block: bytes) -> None:
        super().add_block(block)
        text = string(members(block).get("text"))
        if text is None:  # an image, a link: named on its own line
            named = passage(Message("agent", None, (block,))).lines
            text = "\n\n" + "\n".join(line.plain for line in named) + "\n\n"
        self.paragraphs.feed(text)
        for place, line in enumerate(text.split("\n")):
            was_in_line = self._is_in_line and not place
            self._is_in_line = was_in_line or bool(line.strip())
            self.lines += self._is_in_line and not was_in_line

    @property
    def end(self) -> Message:
        """The end of the message so far, short enough to be laid out repeatedly."""
        text = self.paragraphs.live.text[-bounds.LIVE_LETTERS :]
        return Message(self.role, self.message_id, (text_block(text),))


class Flow:
    """The conversation; see the module.

    `thoughts` says how thoughts are shown from now on; `brief` is for a person who looks on, and
    can open a tool call.
    """

    def __init__(self, *, thoughts: Thoughts = "folded", brief: bool = False) -> None:
        self.thoughts: Thoughts = thoughts
        self._brief = brief
        self._calls: deque[ToolCall] = deque()
        self._shown_contents: dict[str, bytes] = {}
        self.attributes_changed = True
        self.in_question = ""
        """The tool call of an open question, which shows all of it."""
        self.said_instead = ""
        """The prompt that rejected the last question."""
        self.is_open = False
        """True if an update came since the last end of a turn."""
        self.transcript = "acphold show"
        """The command that shows the whole conversation; with its session once that is known."""
        # Laid out only when taken: most of a long history never is.
        self._done: deque[Iterator[Passage]] = deque()
        self._message: _OpenMessage | None = None
        self._tools: dict[str, ToolDraft] = {}
        self._running_tools: dict[str, Passage] = {}  # cached layouts: comparing files takes long
        self._finished_tools: set[str] = set()
        self._compactions: dict[str, CompactionDraft] = {}
        self._children = Fold()
        self._names: dict[str, str] = {}
        self._printed_children: set[str] = set()
        self._plan: bytes | None = None
        self._folded: list[Message] = []

    # -- updates -----------------------------------------------------------------------------

    def add_update(self, raw: bytes) -> None:
        """Add an update, as JSON; unknown kinds are skipped."""
        kind = update_kind(raw)
        if kind in ATTRIBUTE_KINDS:
            self.attributes_changed = True
        parts = members(raw)
        match kind:
            case _ if kind in ROLES:
                self._chunk(ROLES[kind], parts)
            case "tool_call" | "tool_call_update":
                tool_call_id = string(parts.get("toolCallId"))
                is_over = kind != "tool_call" and tool_call_id in self._finished_tools
                if not tool_call_id or is_over:
                    return
                if tool_call_id not in self._tools:
                    self._close()
                self.is_open = True
                draft = self._tools.setdefault(tool_call_id, ToolDraft(tool_call_id))
                draft.patch(kind, parts)
                self._running_tools.pop(tool_call_id, None)
                if string(draft.fields.get("status")) in FINAL_STATUSES:
                    self._put_tool(self._tools.pop(tool_call_id).tool_call())
                    self._finished_tools.add(tool_call_id)
            case "compaction_update" | "compaction_summary_chunk":
                its_id = string(parts.get("compactionId")) or ""
                compaction = self._compactions.setdefault(its_id, CompactionDraft(its_id))
                self.is_open = True
                if kind == "compaction_summary_chunk":
                    compaction.summary.add_block(parts.get("content", b"{}"))
                    return
                compaction.patch(parts)
                if compaction.status != "in_progress":
                    del self._compactions[its_id]
                    self._put(partial(passage, compaction.compaction()))
            case _ if kind in SPEAKS_OF_CHILDREN:
                self._about_children(Entry(0, UPDATE, 0, raw))
            case "plan":
                self.is_open = True
                self._plan = parts.get("entries", b"[]")
            case "notice":
                title, words = (string(parts.get(name)) or "" for name in ("title", "description"))
                self._put(partial(passage, Noticed("info", title, words, is_our_notice(parts))))
            case "current_mode_update":
                mode = string(parts.get("currentModeId")) or ""
                self._put(partial(passage, ModeChanged(mode)))
            case "session_info_update" if (end := turn_end_in(raw)) and self.is_open:
                self.turn_over(end)  # another client's turn, which was not completed

    def knows_child(self, child: str) -> bool:
        """Return True for a sub-agent that was announced."""
        return child in self._names

    def add_child_update(self, entry: bytes) -> None:
        """Add a sub-agent's update, as a `child` entry."""
        self._about_children(Entry(0, CHILD, 0, entry))

    def _about_children(self, entry: Entry) -> None:
        """Print the sub-agents that this entry ends."""
        self._children.add(entry)
        if not (child := child_of_update(update_kind(entry.update), entry.update)):
            return
        if len(self._names) < MOST_CHILDREN:
            self._names.setdefault(child, "")
        self._put_idle(lambda agent: agent.status == "idle")

    def _put_idle(self, is_over: Callable[[SubAgent], bool]) -> None:
        """Print each finished sub-agent once; forget them when none is running."""
        state = self._children.state()
        at_work = {child.session_id for child in state.open_children}
        for agent in state.timeline:
            if not isinstance(agent, SubAgent):
                continue
            if agent.title:
                self._names[agent.session_id] = agent.title
            if agent.session_id in at_work:
                self._printed_children.discard(agent.session_id)
            elif agent.session_id not in self._printed_children and is_over(agent):
                self._printed_children.add(agent.session_id)
                more = f"; `{self.transcript} --full` shows them"
                self._put(partial(passage, self._with_name(agent), more=more))
        if not at_work and self._printed_children:
            self._children = Fold()
            self._printed_children.clear()

    def _with_name(self, agent: SubAgent) -> SubAgent:
        """Return the sub-agent with the name it had when it was running."""
        title = agent.title or self._names.get(agent.session_id) or None
        return replace(agent, title=title)

    def add_prompt(self, blocks: bytes) -> None:
        """Add a prompt of ours: a raw array of content blocks."""
        self._close()
        self.is_open = True
        self._folded.clear()
        self._finish(partial(passage, Message("user", MESSAGES, tuple(items(blocks)))))

    def turn_over(self, end: TurnEnd | None = None) -> None:
        """End the turn; `end` is its result, if known."""
        self._close()
        status = encode_text("cancelled") if end and end.outcome == "cancelled" else None
        for draft in self._tools.values():
            if status is not None:
                draft.patch("tool_call_update", {"status": status})
            self._put_tool(draft.tool_call())
        self._tools.clear()
        self._running_tools.clear()
        self._finished_tools.clear()
        for compaction in self._compactions.values():
            self._put(partial(passage, compaction.compaction()))
        self._compactions.clear()
        if self._names:
            self._put_idle(lambda _: True)  # those that do not report their state
        if self._plan is not None:
            self._finish(partial(_plan_passage, self._plan))
            self._plan = None
        if end is not None and end.outcome != "completed":
            self._finish(partial(passage, end))
        self.is_open = False

    def tell(self, words: str) -> None:
        """Print a line of our own."""
        self._put(partial(passage, Noticed("info", "", words, is_ours=True)))

    def put(self, shown: Passage) -> None:
        """Print a question or its answer, after what the agent has said so far."""
        self._close()
        self._finish(lambda: shown)

    def shorten(self, most: int) -> None:
        """Keep only the last `most` finished passages, and a line that counts the others."""
        self._put_finished_parts()
        if (left_out := len(self._done) - most) > 0:
            notice = f"{quantity(left_out, 'earlier passage')}: `{self.transcript}` shows them"
            for _ in range(left_out):
                self._done.popleft()
            self._done.appendleft(iter([passage(Noticed("info", "", notice, is_ours=True))]))

    def asks_about(self, call: ToolCall) -> None:
        """Note that the whole tool call was shown for permission: do not repeat its changes."""
        self._shown_contents[call.tool_call_id] = call.fields.get("content", b"")

    def whole_calls(self) -> list[Passage]:
        """Return the kept tool calls, untruncated, the last one first."""
        at_work = [draft.tool_call() for draft in self._tools.values()]
        return [passage(call, full=True) for call in (*at_work, *reversed(self._calls))]

    def unfold(self) -> None:
        """Show thoughts whole from now on, including this turn's; or fold them again."""
        self.thoughts = "folded" if self.thoughts == "whole" else "whole"
        if self.thoughts == "whole":
            for message in self._folded:
                self._finish(partial(passage, message))
            self._folded = []

    # -- output ------------------------------------------------------------------------------

    def tool_title(self, tool_call_id: str) -> str | None:
        """Return the title of a running tool call; None if the agent gave none."""
        draft = self._tools.get(tool_call_id)
        return None if draft is None else string(draft.fields.get("title"))

    def take(self, most: int | None = None) -> list[Passage]:
        """Return the passages finished since the last call, to be printed in this order.

        With `most`, stop at so many characters, after the passage that exceeds them; there may be
        more.
        """
        taken: list[Passage] = []
        letters = 0
        while most is None or letters < most:
            if self._done:
                if (shown := next(self._done[0], None)) is None:
                    self._done.popleft()
                    continue
            elif (shown := self._next_finished_part()) is None:
                break
            taken.append(shown)
            letters += shown.letters
        return taken

    def live(self) -> list[Passage]:
        """Return the passages that may still change."""
        shown = []
        if self._plan is not None:
            shown.append(_plan_passage(self._plan))
        at_work = [id_ for id_ in self._tools if id_ != self.in_question]
        for tool_call_id in at_work[-bounds.LIVE_TOOLS :]:
            if tool_call_id not in self._running_tools:
                call = self._tools[tool_call_id].tool_call()
                if self._brief and tool_call_id in self._shown_contents:
                    call = ToolCall(tool_call_id, {**call.fields, "content": b"[]"})
                whole = passage(call, full=True)
                head, *output = whole.lines
                lines = [head, *_last(output[-LIVE_OUTPUT:])]  # its line, and the output's end
                self._running_tools[tool_call_id] = replace(whole, lines=lines)
            shown.append(self._running_tools[tool_call_id])
        for going in self._compactions.values():  # maybe too long to lay out
            compaction = passage(going.compaction())
            shown.append(replace(compaction, lines=_last(compaction.lines)))
        for agent in self._children.timeline()[-bounds.LIVE_TOOLS :]:
            if isinstance(agent, SubAgent) and agent.session_id not in self._printed_children:
                head, *inside = passage(self._with_name(agent), full=True).lines
                shown.append(Passage("child", "tool", [head, *_last(inside[-LIVE_OUTPUT:])]))
        if (message := self._message) is not None:
            if message.role == "agent" and message.paragraphs.live.text.strip():
                piece = message.paragraphs.live
                if len(piece.text) <= bounds.LIVE_LETTERS:
                    shown.append(_piece_passage(piece, begun=message.is_begun))
                else:  # not laid out as Markdown: its beginning, which says what it is, is missing
                    end = replace(piece, text=piece.text[-bounds.LIVE_LETTERS :], opening="")
                    shown.append(replace(_piece_passage(end, begun=True), markdown=False))
            elif message.role == "thought":
                shown.append(_thought_passage(message.end, self.thoughts, so_far=message.lines))
            elif message.role == "user":
                shown.append(_by(message.end, message.by))
        return shown

    # -- messages -------------------------------------------------------------------------

    def _chunk(self, role: Role, parts: Mapping[str, bytes]) -> None:
        block = parts.get("content")
        if not block:
            return
        message_id, message = string(parts.get("messageId")), self._message
        meta = members(parts.get("_meta", b"{}"))
        if message is None or (message.role, message.message_id) != (role, message_id):
            self._close()
            if role == "user" and METHOD not in meta:
                # A prompt begins a turn, so the one before has ended: a replay does not say so.
                self.turn_over()
                self._folded.clear()
            by = members(meta.get(CLIENT_MARK, b"{}"))
            message = self._message = _OpenMessage(role, message_id, by)
        message.add_block(block)
        self.is_open = True

    def _close(self) -> None:
        """Finish the open message, because something else follows."""
        message, self._message = self._message, None
        if message is None:
            return
        if message.role == "agent":
            self._done.append(_message_passages(message, iter(message.paragraphs.rest, None)))
        elif message.role == "user":
            self._finish(partial(_by, message.message(), message.by))
        elif (thought := message.message()).text.strip():
            self._finish(partial(_thought_passage, thought, self.thoughts))
            if self.thoughts == "folded":
                self._folded.append(thought)

    def _next_finished_part(self) -> Passage | None:
        """Return the next finished part of the agent's open message, or None."""
        if self._message is None or self._message.role != "agent":
            return None
        pieces = iter(self._message.paragraphs.next_piece, None)
        return next(_message_passages(self._message, pieces), None)

    def _put_finished_parts(self) -> None:
        """Print the finished parts of the open message before what follows."""
        self._done.extend(iter([shown]) for shown in iter(self._next_finished_part, None))

    def _finish(self, lay_out: Callable[[], Passage]) -> None:
        """Print this after what is finished already; long passages in pieces."""
        self._done.append(_pieces(lay_out))

    # -- tool calls and other asides -----------------------------------------------------------

    def _put_tool(self, call: ToolCall) -> None:
        if not self._brief:
            self._put(partial(passage, call, more=f"; `{self.transcript} --full` shows them"))
            return
        self._calls.append(call)
        while sum(map(_size, self._calls)) > bounds.KEPT_CALLS_BYTES and len(self._calls) > 1:
            self._calls.popleft()
        asked = self._shown_contents.pop(call.tool_call_id, None)
        if asked is not None and is_same_json(asked, call.fields.get("content", b"")):
            call = ToolCall(call.tool_call_id, {**call.fields, "content": b"[]"})
        self._put(partial(passage, call, more=" (Ctrl-O)", brief=True))

    def _put(self, shown: Callable[[], Passage]) -> None:
        """Print this now: after what a user said, within what the agent says, which continues after
        it with its label again."""
        self._put_finished_parts()
        if self._message is not None and self._message.role == "user":
            self._close()
        if self._message is not None:
            self._message.is_begun = False
        self._finish(shown)


def _message_passages(message: _OpenMessage, pieces: Iterable[ParagraphPiece]) -> Iterator[Passage]:
    """Yield passages of an agent's message; only the first has the label."""
    for piece in pieces:
        if piece.text.strip():
            begun, message.is_begun = message.is_begun, True
            yield _piece_passage(piece, begun=begun)


def _piece_passage(piece: ParagraphPiece, *, begun: bool) -> Passage:
    shown = passage(Message("agent", None, (text_block(piece.text),)))
    label = "" if begun else shown.label
    around = (piece.opening, piece.closing)
    return replace(shown, label=label, around=around, goes_on=begun and piece.goes_on)


def _pieces(lay_out: Callable[[], Passage]) -> Iterator[Passage]:
    yield from in_pieces(lay_out())


def _last(lines: Sequence[Text]) -> list[Text]:
    """Return the last lines, at most `bounds.LIVE_LETTERS` long."""
    room, kept = bounds.LIVE_LETTERS, []
    for line in reversed(lines):
        kept.append(line if len(line) <= room else line[-room:])
        room -= len(line) + 1
        if room <= 0:
            break
    return kept[::-1]


def _thought_passage(message: Message, thoughts: Thoughts, *, so_far: int | None = None) -> Passage:
    """Return a thought; folded, only its first line.

    While it goes on, return its end, or the last line of that: `so_far` is its number of lines.
    """
    shown = passage(message)
    lines = [line for line in shown.lines if line.plain.strip()]
    count = len(lines) if so_far is None else so_far
    if thoughts == "whole" or count < 2 or not lines:
        return shown
    line = Text.assemble(
        (f"{quantity(count, 'line')} (Ctrl-T)  ", "faint"),
        lines[0 if so_far is None else -1][: bounds.LIVE_LETTERS // 2],
    )
    line.no_wrap, line.overflow = True, "ellipsis"
    return Passage(shown.label, shown.style, [line])


def _by(message: Message, by: Mapping[str, bytes]) -> Passage:
    """Return a user's message with their name, if they have one, and the program it was written in,
    unless that is acphold."""
    shown = passage(replace(message, user=string(by.get("user")) or ""))
    client = string(by.get("title")) or string(by.get("name"))
    if client in (None, "acphold"):
        return shown
    place = "on the page" if client == PAGE else f"in {on_one_line(client or '')}"
    where = Text(place, "faint")
    return replace(shown, lines=[*shown.lines, where])


def _plan_passage(entries: bytes) -> Passage:
    steps = [members(entry) for entry in items(entries)]
    told = ((string(step.get("status")), string(step.get("content"))) for step in steps)
    return passage(Planned(tuple(PlanStep(status or "", text or "") for status, text in told)))


def _size(call: ToolCall) -> int:
    printed = sum(len(each.kept) for each in call.terminals.values())
    return printed + sum(map(len, call.fields.values()))
