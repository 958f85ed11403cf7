"""A person's answers to an agent: permission by key, forms field by field, pages to open."""

# See docs/decisions.md, 6.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace
from rich.text import Text

from acp_wire.schema import ElicitationContentValue
from acp_wire.tasks import TaskSet, end, timeout
from acphold.conversation.history.decisions import Came
from acphold.conversation.history.prompt_queue import PromptQueue
from acphold.conversation.presentation.present_diffs import PresentDiff
from acphold.conversation.presentation.visible_text import exact, on_one_line, visible
from acphold.conversation.reports.transcript import DecidedQuestion
from acphold.errors import AcpError, DeclarationError
from acphold.faces.screen import bounds
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.layout import Passage, passage
from acphold.faces.screen.panels import (
    BY_MODE,
    Field,
    Key,
    KeyChoice,
    call_details,
    field,
    permission,
    standing,
    value_of,
)
from acphold.machine.foreground import ForegroundProgram
from acphold.safety.errors import RuleError

if TYPE_CHECKING:
    from acphold.client import FormQuestion, PageQuestion, PermissionQuestion
    from acphold.client.answers import Filled
    from acphold.conversation.history.timeline import ToolCall
    from acphold.live.reading.rule_offers import RuleOffer

log = logging.getLogger(__name__)

T = TypeVar("T")

REVIEW = (Key("s", "send", "send"), Key("c", "change", "change"), Key("d", "decline", "decline"))
"""The keys below a filled form."""

ENDS = {"send": "accept", "decline": "decline", None: "cancel"}
"""The result of a form, by the key that it was left with."""

Values = dict[str, ElicitationContentValue]


class QuestionFace(Protocol):
    """Shows questions to a person."""

    def refresh(self) -> None:
        """Redraw, because something has changed."""

    async def choose(self, choice: KeyChoice) -> str | None:
        """Ask for a key; None if the person leaves the question."""

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Ask for a line; None if the person leaves the question."""

    async def in_front(self, program: ForegroundProgram) -> int:
        """Run a program on the terminal and wait for it; see `processes.foreground`."""


class Face(QuestionFace, Protocol):
    """The person's side of a chat: a terminal, or nothing in tests."""

    @property
    def asks(self) -> bool:
        """True while a question of the agent is shown."""

    async def read(self, passages: Sequence[Passage]) -> None:
        """Show long passages in the pager."""

    def ring(self) -> None:
        """Ring the bell, because something waits for the person."""

    def insert(self, text: str) -> None:
        """Insert the text into the line of input, at the cursor."""

    def put_back(self, text: str) -> None:
        """Put entered text back into the line of input, to be edited."""

    def show_queue(self, queue: PromptQueue) -> None:
        """Show the queued prompts."""

    def close(self) -> None:
        """End the chat."""


class AskedCalls:
    """The record of the tool calls that a person is asked about; here it has nothing of any. See
    `cli.asked_calls`."""

    async def at_present(self, session_id: str, tool: ToolCall) -> Mapping[int, PresentDiff]:
        """Return the call's diffs against the files as they are, by their places."""
        return {}

    async def offers(self, session_id: str, call: str) -> Sequence[RuleOffer]:
        """Return the rules that a yes to the last question about this call may become; raises
        AcpError."""
        return ()

    async def make(self, session_id: str, call: str, offer: RuleOffer, *, all_agents: bool) -> str:
        """Make one; return the message for the person. Raises AcpError."""
        raise RuleError("no rule was offered")

    async def outcome(self, session_id: str, call: str) -> DecidedQuestion | None:
        """Return the last question about this call, decided; None if unknown. Raises AcpError."""
        return None


class EditMode(NamedTuple):
    """A mode in which the agent accepts edits without a question, and the way to enter it."""

    name: str
    enter: Callable[[], Awaitable[None]]


class PersonAnswers:
    """Asks on a face and shows the results in a flow; the callbacks of `acphold.connect`.

    With `reads_only`, questions are shown but never answered from here. A question that is
    withdrawn, because another client answered it or the turn was cancelled, disappears. A question
    that is pending when a session is joined arrives before there is a face, and waits for it. The
    text that belongs to a question is shown when it is asked, not above the question before.

    By `calls`, a change is shown against the file as it is, and a yes can become a rule: that is
    offered until the next line or question; and a question that another client answered says which
    one, and how. `edit_mode` returns the agent's mode that accepts edits, once a session is open.
    """

    edit_mode: Callable[[], EditMode | None] = staticmethod(lambda: None)

    def __init__(self, flow: Flow, calls: AskedCalls, *, reads_only: bool = False) -> None:
        self._face: QuestionFace | None = None
        self._has_face = asyncio.Event()
        self._flow = flow
        self._reads_only = reads_only
        self._asking = asyncio.Lock()
        self._calls = calls
        self._offering: asyncio.Task[None] | None = None
        self._making = TaskSet()

    @property
    def face(self) -> QuestionFace:
        """The person's face, once there is one."""
        assert self._face is not None
        return self._face

    @face.setter
    def face(self, face: QuestionFace) -> None:
        self._face = face
        self._has_face.set()

    async def on_permission(self, question: PermissionQuestion) -> str | None:
        """Ask for permission for a tool; return the id of an option."""
        async with self._turn_to_ask():
            tool = question.tool_call
            present = await self._calls.at_present(question.session_id, tool)
            self._show(call_details(tool, present))
            self._flow.asks_about(tool)
            mode = self.edit_mode()
            named = "" if mode is None else mode.name
            choice = permission(tool, question.options, present, named)
            self._flow.in_question, self._flow.said_instead = tool.tool_call_id, ""
            try:
                answer = await self._choose(choice, question)
            finally:
                self._flow.in_question = ""
            if answer is None:
                return None
            is_by_mode = answer == BY_MODE
            chosen = next(
                option
                for option in question.options
                if (option.kind == "allow_once" if is_by_mode else option.option_id == answer)
            )
            if said := self._flow.said_instead:
                self._flow.tell(f"Rejected; said to the agent: {on_one_line(said)}")
                self.face.refresh()
            else:
                decided = DecidedQuestion(_title_of(question), Came(chosen.kind, chosen.name))
                self._show(passage(decided))
            if is_by_mode and mode is not None:
                self._making.start(self._enter(mode), "mode")
            elif chosen.kind == "allow_once":
                self._offering = asyncio.create_task(self._offer(question), name="offer of a rule")
            return chosen.option_id

    async def _enter(self, mode: EditMode) -> None:
        try:
            await mode.enter()
            self._flow.tell(f"The agent accepts edits from now on, in its mode {mode.name}.")
        except AcpError as error:
            self._flow.tell(f"The mode was not changed: {error}")
        self.face.refresh()

    async def _offer(self, question: PermissionQuestion) -> None:
        """Offer to make a rule of a yes; the question itself has been answered already."""
        session_id, call = question.session_id, question.tool_call.tool_call_id
        try:
            offers = await self._calls.offers(session_id, call)
        except AcpError as error:
            log.info("cannot offer a rule: %s", error)  # no message: nobody asked for a rule
            return
        answer = await self.face.choose(standing(offers)) if offers else None
        if answer is None:
            return
        offer = offers[int(answer.removesuffix("*"))]
        made = self._calls.make(session_id, call, offer, all_agents=answer.endswith("*"))
        # The rule is chosen: from now on, the next question no longer dismisses the offer.
        await asyncio.shield(self._making.start(self._make(made), "rule"))

    async def _make(self, made: Awaitable[str]) -> None:
        try:
            self._flow.tell(await made)
        except AcpError as error:
            self._flow.tell(f"The rule was not added: {error}")
        self.face.refresh()

    @property
    def is_offering(self) -> bool:
        """True until the person has accepted or dismissed an offer that is shown."""
        return self._offering is not None and not self._offering.done()

    async def wait_for_offer(self) -> None:
        """Wait until the person has accepted or dismissed an offer that is shown."""
        if self._offering is not None:
            await asyncio.wait([self._offering])

    async def aclose(self) -> None:
        """Dismiss an offer that is shown; finish making a chosen rule, unless it takes long.

        Questions that are still open wait for the next face.
        """
        self._has_face.clear()
        try:
            await end(self._offering)
            await self._making.finish(bounds.RULE_SECONDS)
        finally:
            await end(*self._making)

    async def on_page(self, question: PageQuestion) -> bool | None:
        """Ask the person to open a page, showing its whole address."""
        async with self._turn_to_ask():
            self._show(_request(f"{visible(question.message)}\n{exact(question.url)}"))
            keys = (Key("y", "yes, open it", "yes"), Key("n", "no", "no"))
            answer = await self._choose(KeyChoice("Open this page?", keys))
            return None if answer is None else answer == "yes"

    async def on_form(self, question: FormQuestion) -> Filled:
        """Ask for the fields one after the other; show all of them before they are sent."""
        async with self._turn_to_ask():
            self._show(_request(question.message))
            # Fields take typed text, so the person first confirms that they begin.
            if fields := question.form.properties:
                titles = [getattr(form, "title", None) or name for name, form in fields.items()]
                asked = f"The agent asks for: {', '.join(map(on_one_line, titles))}"
                keys = (Key("f", "fill it in", "fill"), Key("d", "decline", "decline"))
                if await self._choose(KeyChoice(asked, keys)) != "fill":
                    self._show(passage(DecidedQuestion(question.message, Came("decline"))))
                    return None
            while True:
                if (values := await self._fill_in(question)) is None:
                    return "dismissed"
                words: dict[object, str] = {True: "yes", False: "no"}
                filled = ", ".join(
                    f"{name}: {words[value] if isinstance(value, bool) else value}"
                    for name, value in values.items()
                )
                answer = await self._choose(KeyChoice(f"Send this? {on_one_line(filled)}", REVIEW))
                if answer != "change":
                    self._show(passage(DecidedQuestion(question.message, Came(ENDS[answer]))))
                    return values if answer == "send" else None

    @asynccontextmanager
    async def _turn_to_ask(self) -> AsyncIterator[None]:
        """Make this the question being asked, for the block; others wait."""
        await self._has_face.wait()
        async with self._asking:
            await end(self._offering)
            yield

    async def _fill_in(self, question: FormQuestion) -> Values | None:
        """Ask for each field; None if the person leaves the form."""
        values: Values = {}
        for name, form in question.form.properties.items():
            required = name in (question.form.required or ())
            shown, wrong = field(name, form, required=required), ""
            while True:
                line = await self._answer_here(self.face.enter(shown, wrong), shown.title)
                if line is None:
                    return None
                try:
                    value = value_of(line, form, required=required)
                except DeclarationError as error:
                    wrong = str(error)
                else:
                    break
            if value is not None:
                values[name] = value
        return values

    async def _choose(
        self, choice: KeyChoice, asked: PermissionQuestion | None = None
    ) -> str | None:
        if self._reads_only:
            aside = "(cannot be answered here)"
            short = f"{choice.short} {aside}" if choice.short else ""
            choice = KeyChoice(f"{choice.title} {aside}", (), short=short)
        return await self._answer_here(self.face.choose(choice), choice.title, asked)

    async def _answer_here(
        self, answer: Awaitable[T], title: str, asked: PermissionQuestion | None = None
    ) -> T:
        try:
            return await answer
        except asyncio.CancelledError:
            if not self._has_face.is_set():
                pass  # the person has left: it stays open
            elif asked is None:
                self._show(passage(DecidedQuestion(title, Came("elsewhere"))))
            else:
                self._making.start(self._tell_outcome(asked), "outcome")
            raise

    async def _tell_outcome(self, asked: PermissionQuestion) -> None:
        call, decided = asked.tool_call.tool_call_id, None
        try:
            async with timeout(bounds.OUTCOME_SECONDS):
                while True:
                    if decided := await self._calls.outcome(asked.session_id, call):
                        break
                    # A turn that was cancelled here closes its question a moment later.
                    await asyncio.sleep(bounds.OUTCOME_AGAIN_SECONDS)
        except (AcpError, TimeoutError) as error:
            log.info("cannot tell how a question was answered: %s", error)
        told = decided or DecidedQuestion("", Came("elsewhere"))
        self._show(passage(replace(told, question=_title_of(asked))))

    def _show(self, shown: Passage) -> None:
        self._flow.put(shown)
        self.face.refresh()


def _title_of(question: PermissionQuestion) -> str:
    return question.tool_call.title or question.tool_call.tool_call_id


def _request(words: str) -> Passage:
    return Passage("asks", "acphold", [Text(line) for line in visible(words).splitlines()])
