"""Web Push notices: which browsers are notified of what waits and of what is done, and when.

    GET /notices             {"key", "isOn", "words", "sessions"}: the key to subscribe with; if
                             this token has; and its wishes, as below
    POST /notices            {"endpoint", "keys": {"p256dh", "auth"}}: notify this browser
    DELETE /notices          stop notifying it
    POST /notices/wishes     {"words": true}: tell the last words of a turn that is done, too
                             {"sessionId": ID, "tell": true}: tell when its turn is done
    POST /notices/attended   {"secondsAgo"}: the page is visible, and somebody typed so long ago;
                             without `secondsAgo`, it is only visible
    DELETE /notices/attended it is neither

A question that has been open for NOTICE_HOLD_SECONDS is sent to every browser whose token may see
it, unless a client of the same person was attended within ATTENDED_SECONDS: the page reports that
while it has the focus and gets input, and when it loses it. An open window alone reports nothing,
and neither does anything broken, so a failure leads to a notice rather than to none. No question is
sent twice; several pending ones share one notice, which is replaced when one of them is answered.
With the last one it is replaced by one that says so, as a push service ends the subscription of a
browser that shows nothing; a page that is visible takes it away itself instead. Also that happens
if somebody is there or the server was restarted. A notice opens a question. That of a single one,
which rejects once if whoever has the browser may answer it, offers that: then the page rejects the
question of that id, with the access that it has; nothing here answers, and no notice is a yes.

Held prompts count like a question, from when they are held until they continue;
`reading.listed_sessions.is_held` says which.

The end of a turn is sent to every browser whose token may see the session and that was not visible
within VISIBLE_SECONDS: if the turn took as long as the settings say, or the person asked for it
there. Of turns that a program of others began, an editor, only those are told that were asked for.
Such a message has a topic and a notice of its own, for each session, and waits for an hour at most:
it never takes the place of a question. One that is not accepted is sent again until then.

Pending questions and turns are checked every second, when something happens in this process, and
when a question has been open long enough. A slow push service delays only its own browsers.

A message holds a few words, readable only by the browser. A browser whose token is revoked or
expired gets no more messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

from msgspec import UNSET, Meta, MsgspecError, Struct, UnsetType, field
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from acp_wire.schema import LIST_SESSIONS
from acp_wire.tasks import TaskSet, end, timeout
from acphold.conversation.history.decisions import rejecting_option
from acphold.conversation.history.prompt_queue import describe_queue
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.errors import JournalError, UnknownSessionError
from acphold.journal.access import AccessToken
from acphold.journal.journal import Journal
from acphold.journal.rows import SessionRow
from acphold.live.hub.alerts import Activity
from acphold.live.reading.inbox import Whose, open_questions
from acphold.live.reading.json_facts import question_line
from acphold.live.reading.local_reader import LocalReader, sessions_on_hold
from acphold.live.reading.processes import Live
from acphold.live.server.methods import Asked
from acphold.safety.errors import RedactionError
from acphold.web import bounds, push
from acphold.web.ended_turns import EndedTurn, RunningTurns, ended_turn, is_kept
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted, Gate, principal_of
from acphold.web.journal_pages import JournalReader

log = logging.getLogger(__name__)

NOTICES: Final = "/notices"
ATTENDED: Final = "/notices/attended"
WISHES: Final = "/notices/wishes"

GONE: Final = (404, 410)
"""Statuses of a push service for a browser that is no longer subscribed (RFC 8030, 7.3)."""

TOO_MANY: Final = (406, 429)
"""Statuses for messages that come too fast: Microsoft's, and that of RFC 6585, 4."""


class _Attended(Struct):
    secondsAgo: Annotated[float, Meta(ge=0)] | UnsetType = UNSET


class _Wish(Struct):
    words: bool | UnsetType = UNSET
    sessionId: Annotated[str, Meta(max_length=1000)] = ""
    tell: bool = True


Send = Callable[[push.Order], Awaitable[push.PushOutcome]]
"""Sends one message; never raises for errors of others."""


class WaitingMatter(Struct, frozen=True):
    """Something that waits for a person in a session: a question, whose entry is `seq`, or prompts
    that are held. `id` tells it from all others; `words` say what it is. One that `rejects` can be
    rejected once."""

    id: str
    row: SessionRow
    words: str
    seq: int = 0
    rejects: bool = False


class _BrowserState(Struct):
    """The ids of the matters that a browser shows, and when the next message may be sent to it.
    Only one end of a turn is on its way to it."""

    shown: frozenset[str] = frozenset()
    next_at: float = 0.0
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Sight(NamedTuple):
    """The time a page was visible last, and if it still is, as far as is known."""

    at: float
    is_open: bool


class Notices:
    """The notices; an async context manager. `subject` is the contact for what is sent, and
    `turn_seconds` returns the length of turns whose end is told."""

    def __init__(
        self,
        reader: JournalReader,
        gate: Gate,
        send: Send,
        kept: push.KeptSubscriptions,
        subject: str,
        activity: Activity,
        turn_seconds: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._gate = gate
        self._send = send
        self._kept = kept
        self._subject = subject
        self._activity = activity
        self._turn_seconds = turn_seconds
        # First find the questions that were pending before the start, so that none of them is
        # withdrawn and sent again.
        earliest = self._now() + bounds.NOTICE_HOLD_SECONDS + bounds.NOTICE_CHECK_SECONDS
        self._states = {
            token: _BrowserState(shown, earliest) for token, shown in kept.questions.items()
        }
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._seen_at: dict[str, float] = {}
        self._attended: dict[tuple[str | None, str], float] = {}
        self._visible: dict[str, _Sight] = {}
        self._turns = RunningTurns()
        self._telling = TaskSet()
        self._room = asyncio.Semaphore(bounds.DONE_PUSHES_AT_ONCE)
        self._watching: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    async def __aenter__(self) -> Notices:
        if self._kept.browsers:
            self._subscribed.set()
        self._watching = asyncio.create_task(self._watch(), name="notices")
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self._watching, *self._sending.values(), *self._telling)

    # -- the addresses --------------------------------------------------------------------

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request to an address below NOTICES; raises RefusedError and
        ForbiddenError."""
        who = admitted.principal
        who.check(Asked.read(LIST_SESSIONS.name))
        match exchange.method, exchange.path:
            case "POST", path if path == ATTENDED:
                body = await exchange.body(bounds.REQUEST_BYTES) or b"{}"
                try:
                    ago = Decoder(_Attended).decode(body).secondsAgo
                except (MsgspecError, UnicodeDecodeError, RecursionError):
                    raise RefusedError(400, 'expected {"secondsAgo": 0}') from None
                self._visible[admitted.token] = _Sight(self._now(), is_open=True)
                # Somebody who cannot answer, or sees one session, does not count as present.
                if ago is not UNSET and "answer" in who.scopes and who.session_id is None:
                    self._attended[who.tenant, admitted.token] = self._now() - ago
                await exchange.answer(200, {})
            case "DELETE", path if path == ATTENDED:
                self._attended.pop((who.tenant, admitted.token), None)
                if admitted.token in self._visible:
                    self._visible[admitted.token] = _Sight(self._now(), is_open=False)
                await exchange.answer(200, {})
            case "POST", path if path == WISHES:
                wanted = 'expected {"words": true} or {"sessionId": "…", "tell": true}'
                wish = await exchange.read_json(_Wish, wanted)
                self._note_wish(admitted.token, wish)
                await exchange.answer(200, {})
            case _, path if path != NOTICES:
                raise RefusedError(404, "there is nothing at this address")
            case "GET", _:
                is_on = admitted.token in self._kept.browsers
                try:
                    key = push.public_key(self._kept.key)
                except OSError as exc:
                    reason = f"the key for notifications cannot be stored: {exc.strerror}"
                    raise RefusedError(503, reason) from None
                wishes = self._kept.wishes(admitted.token)
                facts = {"words": wishes.words, "sessions": sorted(wishes.sessions)}
                await exchange.answer(200, {"key": key, "isOn": is_on, **facts})
            case "POST", _:
                wanted = "expected a subscription as the browser returns it"
                subscription = push.validate(await exchange.read_json(push.Subscription, wanted))
                if len(browsers := self._kept.browsers) >= bounds.NOTIFIED_BROWSERS:
                    for it in (await self._gate.tokens_among(browsers)).values():
                        if it.is_over(self._gate.now_ms()):
                            self._forget(it.id)
                try:
                    self._kept.put(admitted.token, subscription)
                except OSError as exc:
                    raise RefusedError(503, f"the subscription cannot be stored: {exc}") from None
                self._states.pop(admitted.token, None)
                self._subscribed.set()
                await exchange.answer(200, {})
            case "DELETE", _:
                self._forget(admitted.token)
                await exchange.answer(200, {})
            case _:
                raise RefusedError(405, "use GET, POST or DELETE")

    def _note_wish(self, token: str, wish: _Wish) -> None:
        """Note a wish of a browser; raises RefusedError."""
        if token not in self._kept.browsers:
            raise RefusedError(409, "this browser is not notified of anything yet")
        wishes = self._kept.wishes(token)
        if wish.words is not UNSET:
            wishes = replace(wishes, words=wish.words)
        if wish.sessionId:
            others = wishes.sessions - {wish.sessionId}
            if wish.tell and len(others) >= bounds.WANTED_SESSIONS:
                raise RefusedError(409, "this browser waits for the end of too many turns")
            found = others | ({wish.sessionId} if wish.tell else frozenset())
            wishes = replace(wishes, sessions=found)
        try:
            self._kept.wish(token, wishes)
        except OSError as exc:
            raise RefusedError(503, f"the wish cannot be stored: {exc}") from None

    def _forget(self, token: str) -> None:
        self._states.pop(token, None)
        try:
            self._kept.remove(token)
        except OSError as exc:
            log.warning("cannot remove a browser from the list of those to notify: %s", exc)

    # -- sending ---------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        """Check pending questions while there is a browser to notify."""
        with self._activity.listen() as activity:
            while True:
                if not self._kept.browsers:
                    self._subscribed.clear()
                    await self._subscribed.wait()
                activity.clear()
                began = self._now()
                try:
                    await self._check()
                except JournalError as exc:
                    log.warning("cannot read what is waiting for a person: %s", exc)
                except Exception:  # nobody awaits this task, and people rely on its notices
                    log.exception("sending notifications failed; trying again")
                opens = [at + bounds.NOTICE_HOLD_SECONDS for at in self._seen_at.values()]
                due = [at for at in opens if at > began]
                with suppress(TimeoutError):
                    until = min([*due, began + bounds.NOTICE_CHECK_SECONDS])
                    async with timeout(until - self._now()):
                        await activity.wait()
                soonest = min(bounds.STIRRED_SECONDS, bounds.NOTICE_CHECK_SECONDS)
                await asyncio.sleep(began + soonest - self._now())

    async def _check(self) -> None:
        """Start a message to each browser that has to show something else now."""
        live = await self._reader.live_now()
        await self._look_at_turns(live)
        matters = await self._reader.ask(lambda journal: _waiting(journal, live))
        now = self._now()
        self._seen_at = {it.id: self._seen_at.get(it.id, now) for it in matters}
        due = [it for it in matters if now >= self._seen_at[it.id] + bounds.NOTICE_HOLD_SECONDS]
        due.sort(key=lambda it: self._seen_at[it.id])
        browsers = self._kept.browsers
        known = await self._gate.tokens_among(browsers)
        now = self._now()
        since = now - bounds.ATTENDED_SECONDS
        self._attended = {key: at for key, at in self._attended.items() if at > since}
        since = now - bounds.VISIBLE_SECONDS
        self._visible = {key: it for key, it in self._visible.items() if it.at > since}
        attended = {tenant for tenant, _ in self._attended}
        for id_, browser in browsers.items():
            if (token := known.get(id_)) is None or token.revoked_at is not None:
                self._forget(id_)
                continue
            # It may be again: held until now, or a wrong clock.
            if not token.is_good(self._gate.now_ms()):
                continue
            state = self._states.setdefault(id_, _BrowserState())
            if id_ in self._sending or now < state.next_at:
                continue
            whose = Whose(token.tenant, token.session_id)
            shown = [it for it in due if whose.has(it.row)]
            if token.tenant in attended:
                # They see new questions themselves; those still open once they leave are sent then.
                shown = [it for it in shown if it.id in state.shown]
            ids = frozenset(it.id for it in shown)
            sight = self._visible.get(id_)
            if not ids and state.shown and sight is not None and sight.is_open:
                self._note_shown(id_, state, ids)  # its page takes the notice away
            elif ids != state.shown:
                may_reject = len(shown) == 1 and "answer" in principal_of(token).scopes_in(
                    shown[0].row
                )
                told = notice(shown, is_news=not ids <= state.shown, may_reject=may_reject)
                message = encode(told).decode()
                order = push.Order(browser, message, self._kept.key, self._subject)
                sending = self._notify(id_, order, state, ids)
                self._sending[id_] = asyncio.create_task(sending, name="notice")

    async def _notify(
        self, token: str, order: push.Order, state: _BrowserState, ids: frozenset[str]
    ) -> None:
        began = self._now()
        try:
            outcome = await self._send(order)
        finally:
            del self._sending[token]
        if self._states.get(token) is not state:
            return  # it has subscribed again or unsubscribed meanwhile
        if outcome.status in GONE:
            self._forget(token)
        elif 200 <= outcome.status < 300:
            state.next_at = began + bounds.NOTICE_APART_SECONDS
            self._note_shown(token, state, ids)
        else:
            state.next_at = began + outcome.pause
            log.warning("a notification was not accepted: %s", outcome.reason)

    def _note_shown(self, token: str, state: _BrowserState, ids: frozenset[str]) -> None:
        state.shown = ids
        try:
            self._kept.note(token, ids)
        except OSError as exc:
            log.warning("cannot store which questions a browser shows: %s", exc)

    # -- the ends of turns -----------------------------------------------------------------

    async def _look_at_turns(self, live: Live) -> None:
        """Start a message to each browser that has to be told of a turn that has ended."""
        for turn in self._turns.over(live, self._now()):
            browsers = self._kept.browsers
            with_words = any(self._kept.wishes(token).words for token in browsers)
            try:
                ended = await self._reader.ask(
                    partial(ended_turn, turn=turn, with_words=with_words)
                )
            except (UnknownSessionError, RedactionError, RefusedError) as exc:
                log.info("session %s: the end of a turn is not told: %s", turn[0], exc)
                self._turns.forget(turn)
                continue
            if ended is None:
                self._turns.look_later(turn)
                continue
            self._turns.forget(turn)
            if not ended.words:
                continue
            known = await self._gate.tokens_among(browsers)
            for id_, browser in browsers.items():
                if (token := known.get(id_)) is not None and token.is_good(self._gate.now_ms()):
                    self._tell_end(id_, browser, token, ended)

    def _tell_end(
        self, id_: str, browser: push.Subscription, token: AccessToken, ended: EndedTurn
    ) -> None:
        """Start a message about a turn to a browser, if it has to be told."""
        row, wishes = ended.row, self._kept.wishes(id_)
        if not Whose(token.tenant, token.session_id).has(row):
            return
        is_wanted = row.session_id in wishes.sessions
        if is_wanted:
            try:
                others = wishes.sessions - {row.session_id}
                self._kept.wish(id_, replace(wishes, sessions=others))
            except OSError as exc:
                log.warning("cannot store the wishes of a browser: %s", exc)
        is_long = ended.seconds >= self._turn_seconds() and not ended.of_editor
        sight = self._visible.get(id_)
        if sight is not None and sight.at > self._now() - bounds.VISIBLE_SECONDS:
            return  # the person has seen it, or was there a moment ago
        if (is_wanted or is_long) and len(self._telling) < bounds.NOTIFIED_BROWSERS:
            message = encode(done_notice(ended, with_words=wishes.words)).decode()
            order = push.Order(browser, message, self._kept.key, self._subject)
            self._telling.start(self._deliver_end(id_, order, ended), "done notice")

    async def _deliver_end(self, token: str, order: push.Order, ended: EndedTurn) -> None:
        """Send the end of a turn until it is accepted, or is of interest no more, or forgotten."""
        topic = f"done-{blake2b(ended.row.session_id.encode(), digest_size=10).hexdigest()}"
        until = self._now() + bounds.DONE_SECONDS
        state = self._states.setdefault(token, _BrowserState())
        while (left := until - self._now()) > 0 and self._kept.browsers.get(token) == order.to:
            delivery = push.Delivery(topic, math.ceil(left), "normal")
            async with state.one_at_a_time, self._room:
                outcome = await self._send(replace(order, delivery=delivery))
            if outcome.status in GONE:
                self._forget(token)
            if 200 <= outcome.status < 300:
                return
            log.warning("the end of a turn was not accepted: %s", outcome.reason)
            if 300 <= outcome.status < 500 and outcome.status not in TOO_MANY:
                return  # the message itself is not taken
            await asyncio.sleep(outcome.pause)
            with suppress(JournalError, RefusedError):
                if not await self._reader.ask(partial(is_kept, ended=ended)):
                    return


async def _waiting(journal: Journal, live: Live) -> list[WaitingMatter]:
    """Return all that waits for a person."""
    asked = [it for it in live.values() if it[0].waiting]
    questions = await open_questions(journal, live) if asked else []
    found = [
        WaitingMatter(
            it.question.id,
            it.row,
            question_line(it),
            it.seq,
            rejecting_option(it.question.params) is not None,
        )
        for it in questions
    ]
    for it in await sessions_on_hold(LocalReader(journal, live=live)):
        row = it.row
        id_ = f"held {row.session_id} {row.held} {row.held_until or ''}"
        found.append(WaitingMatter(id_, row, describe_queue(row.queued, row.held, row.held_until)))
    return found


def notice(
    waiting: Sequence[WaitingMatter], *, is_news: bool = True, may_reject: bool = False
) -> Mapping[str, object]:
    """Return the message for the page's service worker; a `count` of 0 says that all is over.
    `reject` is the id of the question if the browser `may_reject` it."""
    if not waiting:
        return {"count": 0, "title": "Answered", "body": "Nothing is waiting for you any more."}
    newest = waiting[-1]
    about = _about(newest.row)
    words = on_one_line(newest.words)[: bounds.NOTICE_CHARACTERS]
    if len(waiting) == 1:
        title, body = about, words
        place: Mapping[str, object] = {"sessionId": newest.row.session_id, "seq": newest.seq}
        if may_reject and newest.rejects:
            place = {**place, "reject": newest.id}
    else:
        what = "questions" if all(it.seq for it in waiting) else "things"
        title, body = f"{len(waiting)} {what} are waiting for you", f"{about}: {words}"
        place = {}
    return _fitting(
        {"title": title, "body": body, "count": len(waiting), "isNews": is_news, **place}
    )


def done_notice(ended: EndedTurn, *, with_words: bool) -> Mapping[str, object]:
    """Return the message that a turn is done; `done` sets it apart from what waits."""
    words = f"{ended.words}: {ended.said}" if with_words and ended.said else ended.words
    body = on_one_line(words)[: bounds.NOTICE_CHARACTERS]
    place = {"sessionId": ended.row.session_id, "seq": ended.seq}
    # A worker of an earlier release shows it as something that waits.
    return _fitting({"title": _about(ended.row), "body": body, "count": 1, "done": True, **place})


def _about(row: SessionRow) -> str:
    return on_one_line(row.title or row.cwd)[:80]


def _fitting(message: dict[str, object]) -> Mapping[str, object]:
    while len(encode(message)) > bounds.PUSH_PAYLOAD_BYTES:  # other scripts take more bytes
        message["body"] = str(message["body"])[: len(str(message["body"])) // 2]
        message["title"] = str(message["title"])[:40]
    return message
