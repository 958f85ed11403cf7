"""The state of a session, computed from its entries: a pure function.

The same code folds live entries, replays, and the updates that our own clients receive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import Plan, PlanEntry, decode
from acphold.conversation.history import children
from acphold.conversation.history.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    fold_settings,
    fold_update,
)
from acphold.conversation.history.entries import (
    ANSWER,
    BACK,
    CHILD,
    CLEARED,
    HANDED_OVER,
    PARAMS,
    PROMPT,
    QUESTION,
    QUEUE,
    SETTINGS,
    TERMINAL,
    TURN_END,
    UPDATE,
    Entry,
)
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue, after_entry, after_turn
from acphold.conversation.history.raw_update import (
    MESSAGES,
    ROLES,
    Role,
    items,
    members,
    plain_chunk,
    string,
    update_kind,
)
from acphold.conversation.history.timeline import (
    CompactionDraft,
    ContextCompaction,
    Item,
    Message,
    MessageDraft,
    SubAgent,
    ToolCall,
    ToolDraft,
    TurnEnd,
    left_by,
    opens_tool,
    turn_end,
)

TurnStatus = Literal["idle", "running", "interrupted"]
"""Ended, running, or cut off by a crash."""


Doubt = Literal["", "cut", "cleared"]
"""What may have put the agent's memory out of step since its last answer: a turn that was cut off,
or a conversation that was handed over and not answered; a clearing, or turns that were left."""


class Summary(Struct, frozen=True, rename={"attributes": "standing"}):  # as journals have it
    """The state of a session without its conversation.

    `open_tools` are the ids, in alphabetical order, of tool calls that are neither completed nor
    failed; `open_compactions` those of running compactions; `open_questions` those of unanswered
    questions to people; `open_children` are the sub-agents of which more is expected; `queue` are
    the queued prompts. `doubt` is about the agent's memory.
    """

    attributes: Attributes = NO_ATTRIBUTES
    turn: TurnStatus = "idle"
    open_tools: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    open_compactions: tuple[str, ...] = ()
    open_children: tuple[children.OpenChild, ...] = ()
    queue: PromptQueue = NO_QUEUE
    doubt: Doubt = ""


class SessionState(Summary, frozen=True):
    """The whole state of a session.

    `turns` counts prompts.
    """

    timeline: tuple[Item, ...] = ()
    turns: int = 0

    @property
    def plan(self) -> tuple[PlanEntry, ...]:
        """The newest plan; raw in `attributes.plan`."""
        try:
            return decode(Plan, b'{"entries":%b}' % (self.attributes.plan or b"[]")).value.entries
        except InvalidParamsError:
            return ()

    def summary(self) -> Summary:
        """Return this state without its conversation."""
        return Summary(**{name: getattr(self, name) for name in Summary.__struct_fields__})


EMPTY: Final = SessionState()

Draft: TypeAlias = "MessageDraft | ToolDraft | CompactionDraft | ChildDraft"
"""An item of the timeline that may still change."""


def prompt_message_id(seq: int) -> str:
    """Return the id of the user message in a replay of the prompt with this `seq`."""
    return f"{MESSAGES}{seq}"


def fold(entries: Iterable[Entry], state: SessionState = EMPTY) -> SessionState:
    """Return the state after `entries`.

    Chunks with one message id are one message. Chunks without ids are one message if they have one
    role and nothing else comes between them on the timeline. Updates of unknown kinds, and
    unreadable bytes, change nothing.
    """
    folding = Fold(state)
    for entry in entries:
        folding.add(entry)
    return folding.state()


class Fold:
    """A fold that can go on: its cost grows with the entries, not with the state before them."""

    def __init__(self, state: SessionState = EMPTY, within: ChildDraft | None = None) -> None:
        self._within = within
        # One for the whole tree: an update names a child wherever it lies.
        self._children: dict[str, ChildDraft] = {} if within is None else within.tree
        self._between: dict[str, tuple[ChildDraft, Role, str]] = {}
        self._attributes = state.attributes
        self._turn: TurnStatus = state.turn
        self._turns = state.turns
        self._queue = state.queue
        self._doubt: Doubt = state.doubt
        self._open_tools = {*state.open_tools}
        self._open_questions = {*state.open_questions}
        self._open_compactions = {*state.open_compactions}
        self._timeline: list[Item | Draft] = [*state.timeline]
        for known in state.open_children:  # nothing else is known of them
            self._children[known.session_id] = child = ChildDraft(known.session_id, self)
            child.spelling, child.depth, child.parent = known.spelling, known.depth, known.parent
            child.fields = {"status": "running"} if known.is_at_work else {}
            left = SessionState(
                open_tools=known.open_tools, open_compactions=known.open_compactions
            )
            child.folding = Fold(left, child)
        for index, item in enumerate(state.timeline):
            if isinstance(item, SubAgent):
                left_open = self._children.get(item.session_id)
                child = ChildDraft(item.session_id, self)
                self._children[item.session_id] = self._timeline[index] = child
                if left_open is not None:
                    child.spelling = left_open.spelling
                child.resume(item, left_open)
        self._note_places()

    def _note_places(self) -> None:
        """Note where on the timeline the items are that an update names."""
        self._messages: dict[tuple[Role, str], int] = {}
        self._tools: dict[str, int] = {}
        self._compactions: dict[str, int] = {}
        for index, item in enumerate(self._timeline):
            if isinstance(item, Message | MessageDraft):
                if item.message_id is not None:
                    self._messages[item.role, item.message_id] = index
            elif isinstance(item, ToolCall | ToolDraft):
                self._tools[item.tool_call_id] = index
            elif isinstance(item, ContextCompaction | CompactionDraft):
                self._compactions[item.compaction_id] = index

    def add(self, entry: Entry) -> None:
        """Fold one more entry."""
        if entry.kind in (UPDATE, TERMINAL):
            self._update(entry.raw)
        elif entry.kind == PARAMS:
            self._update(members(entry.raw).get("update", b""))
        elif entry.kind == CHILD:
            told = children.child_update(entry.raw)
            lane = self
            if told.child:
                is_known = told.child in self._children
                if not is_known and update_kind(told.update) not in children.LASTING:
                    return
                child = self._child(told.child)
                child.touch()
                lane = child.folding  # a child has a fold of its own
            lane._update(told.update)
            if children.is_opencodes(entry.raw) and (
                child_id := children.opencode_child(members(entry.raw).get("params", b""))
            ):
                self._child(child_id).spelling = "opencode"
        elif entry.kind == PROMPT:
            self._turn = "running"
            self._turns += 1
            for block in items(entry.raw):
                self._message("user", prompt_message_id(entry.seq)).add_block(block)
        elif entry.kind == TURN_END:
            self._timeline.append(end := turn_end(entry.raw, entry.at))
            self._turn = "interrupted" if end.outcome == "interrupted" else "idle"
            self._queue = after_turn(self._queue, entry.raw, entry.at)
            if self._doubt != "cleared":
                self._doubt = "cut" if end.outcome in ("interrupted", "failed") else ""
        elif entry.kind == SETTINGS:
            self._attributes = fold_settings(self._attributes, entry.raw)
        elif entry.kind == QUESTION:
            self._open_questions.add(string(members(entry.raw).get("id")) or "")
        elif entry.kind == ANSWER:
            self._open_questions.discard(string(members(entry.raw).get("question")) or "")
        elif entry.kind == QUEUE:
            self._queue = after_entry(self._queue, entry.raw, entry.seq, entry.at)
        elif entry.kind == BACK:
            self._go_back(left_by(entry.raw))
            self._doubt = "cleared"
        elif entry.kind == CLEARED:
            self._doubt = "cleared"
        elif entry.kind == HANDED_OVER:
            self._doubt = "cut"  # until it is answered

    def _go_back(self, left: Sequence[tuple[int, int]]) -> None:
        """Drop the turns whose prompts have one of these numbers, each up to the next prompt."""
        kept: list[Item | Draft] = []
        is_left = False
        for item in self._timeline:
            if isinstance(item, Message | MessageDraft) and item.role == "user":
                number = (item.message_id or "").removeprefix(MESSAGES)
                if number != item.message_id and number.isdecimal():
                    is_left = any(first <= int(number) <= last for first, last in left)
                    self._turns -= is_left
            if not is_left:
                kept.append(item)
        self._timeline = kept
        self._note_places()
        self._open_tools &= self._tools.keys()
        self._open_compactions &= self._compactions.keys()

    def __len__(self) -> int:
        """Return the number of items on the timeline: the cost of making the state."""
        return len(self._timeline)

    def state(self) -> SessionState:
        """Return the state after the entries so far."""
        known = asdict(self.summary())
        return SessionState(**known, timeline=self.timeline(), turns=self._turns)

    def summary(self) -> Summary:
        """The same without the conversation, which costs most."""
        return Summary(
            self._attributes,
            self._turn,
            tuple(sorted(self._open_tools)),
            tuple(sorted(self._open_questions)),
            tuple(sorted(self._open_compactions)),
            tuple(
                parts
                for _, child in sorted(self._children.items())
                if (parts := child.open_parts()) is not None
            ),
            self._queue,
            self._doubt,
        )

    def timeline(self) -> tuple[Item, ...]:
        """Return the conversation so far."""
        made: list[Item] = []
        for item in self._timeline:
            match item:
                case ChildDraft():
                    made.append(item.sub_agent())
                case CompactionDraft():
                    made.append(item.compaction())
                case MessageDraft():
                    made.append(item.message())
                case ToolDraft():
                    made.append(item.tool_call())
                case _:
                    made.append(item)
        return tuple(made)

    def _update(self, raw: bytes) -> None:
        if (chunk := plain_chunk(raw)) is not None:  # as most are
            if (role := ROLES.get(chunk.kind)) is not None:
                self._message(role, chunk.messageId).add_text(chunk.content.text)
            elif chunk.compactionId:
                self._compaction(chunk.compactionId).summary.add_text(chunk.content.text)
            return
        kind = update_kind(raw)
        if kind in ROLES:
            parts = members(raw)
            if block := parts.get("content"):
                self._message(ROLES[kind], string(parts.get("messageId"))).add_block(block)
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(kind, members(raw))
        elif kind in ("compaction_update", "compaction_summary_chunk"):
            parts = members(raw)
            if not (compaction_id := string(parts.get("compactionId"))):
                return
            draft = self._compaction(compaction_id)
            if kind == "compaction_update":
                draft.patch(parts)
                if draft.status != "in_progress":
                    self._open_compactions.discard(compaction_id)
                else:
                    self._open_compactions.add(compaction_id)
            elif block := parts.get("content"):
                draft.summary.add_block(block)
        elif kind in children.SPEAKS_OF_CHILDREN:
            parts = members(raw)
            if (change := children.child_change(kind, parts)) is not None:
                child = self._child(change.child)
                child.spelling, child.caller = change.spelling, change.caller or child.caller
                child.fields.update(change.changes)
                child.touch()
            elif kind == "session_message":
                self._message_between(parts)
            elif place := self._between.get(string(parts.get("messageId")) or ""):
                child, role, message_id = place
                if block := parts.get("content"):
                    child.folding._message(role, message_id).add_block(block)
                    child.touch()
        else:
            self._attributes = fold_update(self._attributes, kind, raw)

    def _message(self, role: Role, message_id: str | None) -> MessageDraft:
        """Return the message that a chunk belongs to."""
        index = len(self._timeline) - 1
        if message_id is not None:
            index = self._messages.get((role, message_id), -1)
        else:  # a chunk after the end of its turn still belongs to its message
            while index >= 0 and isinstance(self._timeline[index], TurnEnd):
                index -= 1
        item = self._timeline[index] if index >= 0 else None
        if isinstance(item, MessageDraft) and (item.role, item.message_id) == (role, message_id):
            return item
        if isinstance(item, Message) and (item.role, item.message_id) == (role, message_id):
            self._timeline[index] = draft = MessageDraft.of(item)
            return draft
        if message_id is not None:
            self._messages[role, message_id] = len(self._timeline)
        draft = MessageDraft(role, message_id)
        self._timeline.append(draft)
        return draft

    def _tool(self, kind: str, parts: dict[str, bytes]) -> None:
        tool_call_id = string(parts.get("toolCallId"))
        if not tool_call_id:
            return
        index = self._tools.setdefault(tool_call_id, len(self._timeline))
        if index == len(self._timeline):
            self._timeline.append(ToolDraft(tool_call_id))
        item = self._timeline[index]
        if isinstance(item, ToolCall):
            self._timeline[index] = item = ToolDraft.of(item)
        assert isinstance(item, ToolDraft)
        item.patch(kind, parts)
        opens = opens_tool(kind, string(parts.get("status")))
        if opens:
            self._open_tools.add(tool_call_id)
        elif opens is not None:
            self._open_tools.discard(tool_call_id)

    def _compaction(self, compaction_id: str) -> CompactionDraft:
        """Return the compaction with this id; an unknown one starts as running (v1 schema)."""
        index = self._compactions.setdefault(compaction_id, len(self._timeline))
        if index == len(self._timeline):
            self._timeline.append(CompactionDraft(compaction_id))
            self._open_compactions.add(compaction_id)
        item = self._timeline[index]
        if isinstance(item, ContextCompaction):
            self._timeline[index] = item = CompactionDraft.of(item)
        assert isinstance(item, CompactionDraft)
        return item

    # -- sub-agents -----------------------------------------------------------------------

    def _message_between(self, parts: dict[str, bytes]) -> None:
        """Put a message between sessions into the child that receives it, as from its user.

        A message from a child is kept only if that child itself reports it.
        """
        if not (message_id := string(parts.get("messageId"))):
            return
        role: Role = "user"
        own_id = message_id
        child = self._children.get(string(parts.get("recipientSessionId")) or "")
        if child is not None and child is not self._within:
            own_id = string(parts.get("recipientMessageId")) or message_id
        elif (child := self._within) is None:
            return
        elif string(parts.get("senderSessionId")) == child.session_id:
            role = "agent"
        self._between[message_id] = (child, role, own_id)
        if (content := parts.get("content", b"")).startswith(b"["):
            draft, folding = MessageDraft(role, own_id), child.folding
            index = folding._messages.setdefault((role, own_id), len(folding._timeline))
            folding._timeline[index : index + 1] = [draft]
            for block in items(content):
                draft.add_block(block)
        child.touch()

    def _child(self, session_id: str) -> ChildDraft:
        """Return the child with this id. A new one is placed here, unless that is too deep."""
        if (known := self._children.get(session_id)) is not None:
            return known
        lane = self
        while lane._within is not None and lane._within.depth >= children.DEEPEST:
            lane = lane._within.lies_in
        self._children[session_id] = child = ChildDraft(session_id, lane)
        lane._timeline.append(child)
        return child


class ChildDraft:
    """A sub-agent that may still change, with a fold of its own updates.

    It lies in the fold of its parent; `tree` has all children of the session by their ids.
    """

    def __init__(self, session_id: str, lies_in: Fold) -> None:
        self.session_id = session_id
        self.lies_in = lies_in
        self.tree: dict[str, ChildDraft] = lies_in._children
        parent = lies_in._within
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.parent = "" if parent is None else parent.session_id
        self.spelling: children.Spelling = "update"
        self.caller: str | None = None
        self.fields: dict[str, str | None] = {}
        self._made: SubAgent | None = None
        self.folding: Fold = Fold(within=self)

    def resume(self, item: SubAgent, left_open: ChildDraft | None) -> None:
        """Continue from a known sub-agent, with its open tool calls and compactions, if any."""
        self.caller = item.caller
        self.fields = {name: getattr(item, name) for name in _CHILD_FIELDS}
        state = SessionState(timeline=item.timeline)
        if left_open is not None:
            state = replace(
                state,
                open_tools=(*left_open.folding._open_tools,),
                open_compactions=(*left_open.folding._open_compactions,),
            )
        self.folding = Fold(state, self)

    def touch(self) -> None:
        """Drop the cached value of this child and of its parents: it has changed."""
        child: ChildDraft | None = self
        while child is not None:
            child._made = None
            child = child.lies_in._within

    def sub_agent(self) -> SubAgent:
        """Return the sub-agent so far."""
        if self._made is None:
            self._made = SubAgent(
                self.session_id,
                caller=self.caller,
                timeline=self.folding.timeline(),
                **self.fields,
            )
        return self._made

    def open_parts(self) -> children.OpenChild | None:
        """Return what this child still has open; None if nothing."""
        folding, is_at_work = self.folding, self.fields.get("status") in children.AT_WORK
        if not (is_at_work or folding._open_tools or folding._open_compactions):
            return None
        return children.OpenChild(
            self.session_id,
            self.parent,
            self.depth,
            self.spelling,
            is_at_work,
            tuple(sorted(folding._open_tools)),
            tuple(sorted(folding._open_compactions)),
        )


_CHILD_FIELDS: Final = ("title", "description", "status", "stop_reason")
"""The fields of a SubAgent that an announcement may change."""
