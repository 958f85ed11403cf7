"""Web Push notices: which browsers are notified of pending questions and held prompts, and when.

    GET /notices             {"key", "isOn"}: the key to subscribe with; if this token has
    POST /notices            {"endpoint", "keys": {"p256dh", "auth"}}: notify this browser
    DELETE /notices          stop notifying it
    POST /notices/attended   {"secondsAgo"}: somebody is here, and typed so long ago
    DELETE /notices/attended they are no longer here

A question that has been open for NOTICE_HOLD_SECONDS is sent to every browser whose token may see
it, unless a client of the same person was attended within ATTENDED_SECONDS: the page reports that
while it has the focus and gets input, and when it loses it. An open window alone reports nothing,
and neither does anything broken, so a failure leads to a notice rather than to none. No question is
sent twice; several pending ones share one notice, which is replaced when one of them is answered
and withdrawn with the last, even if somebody is there or the server was restarted. A notice opens a
question and never answers it.

Pending questions are checked every second, when something happens in this process, and when a
question has been open long enough. A slow push service delays only its own browsers.

A message holds the question in a few words, readable only by the browser. A browser whose token is
revoked or expired gets no more messages.

Held prompts count like a question, from when they are held until they continue;
`reading.session_reader.is_held` says which.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder, encode

from acp_wire.schema import LIST_SESSIONS
from acp_wire.tasks import end, timeout_at
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.prompt_queue import describe_queue
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.errors import JournalError
from acphold.journal.journal import Journal
from acphold.journal.rows import SessionRow
from acphold.live.hub.alerts import Activity
from acphold.live.reading.inbox import Whose, open_questions
from acphold.live.reading.json_facts import question_line
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.processes import Live
from acphold.live.reading.session_reader import sessions_on_hold
from acphold.live.server.methods import Asked
from acphold.web import bounds, push
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted, Gate
from acphold.web.journal_pages import JournalReader

log = logging.getLogger(__name__)

NOTICES: Final = "/notices"
ATTENDED: Final = "/notices/attended"

GONE: Final = (404, 410)
"""Statuses of a push service for a browser that is no longer subscribed (RFC 8030, 7.3)."""


class _Attended(Struct):
    secondsAgo: Annotated[float, Meta(ge=0)] = 0.0


Send = Callable[[push.Order], Awaitable[push.PushOutcome]]
"""Sends one message; never raises for errors of others."""


class WaitingMatter(Struct, frozen=True):
    """Something that waits for a person in a session: a question, whose entry is `seq`, or prompts
    that are held. `id` tells it from all others; `words` say what it is."""

    id: str
    row: SessionRow
    words: str
    seq: int = 0


class _BrowserState(Struct):
    """The ids of the matters that a browser shows, and when the next message may be sent to it."""

    shown: frozenset[str] = frozenset()
    next_at: float = 0.0


class Notices:
    """The notices; an async context manager. `subject` is the contact for what is sent."""

    def __init__(
        self,
        reader: JournalReader,
        gate: Gate,
        send: Send,
        kept: push.KeptSubscriptions,
        subject: str,
        activity: Activity,
    ) -> None:
        self._reader = reader
        self._gate = gate
        self._send = send
        self._kept = kept
        self._subject = subject
        self._activity = activity
        # First find the questions that were pending before the start, so that none of them is
        # withdrawn and sent again.
        earliest = self._now() + bounds.NOTICE_HOLD_SECONDS + bounds.NOTICE_CHECK_SECONDS
        self._states = {
            token: _BrowserState(shown, earliest) for token, shown in kept.questions.items()
        }
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._seen_at: dict[str, float] = {}
        self._attended: dict[tuple[str | None, str], float] = {}
        self._watching: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    async def __aenter__(self) -> Notices:
        if self._kept.browsers:
            self._subscribed.set()
        self._watching = asyncio.create_task(self._watch(), name="notices")
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self._watching, *self._sending.values())

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
                    seconds_ago = Decoder(_Attended).decode(body).secondsAgo
                except (MsgspecError, UnicodeDecodeError, RecursionError):
                    raise RefusedError(400, 'expected {"secondsAgo": 0}') from None
                # Somebody who cannot answer, or sees one session, does not count as present.
                if "answer" in who.scopes and who.session_id is None:
                    self._attended[who.tenant, admitted.token] = self._now() - seconds_ago
                await exchange.answer(200, {})
            case "DELETE", path if path == ATTENDED:
                self._attended.pop((who.tenant, admitted.token), None)
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
                await exchange.answer(200, {"key": key, "isOn": is_on})
            case "POST", _:
                wanted = "expected a subscription as the browser returns it"
                subscription = push.validate(await exchange.read_json(push.Subscription, wanted))
                if len(browsers := self._kept.browsers) >= bounds.NOTIFIED_BROWSERS:
                    for it in (await self._gate.tokens_among(browsers)).values():
                        if it.is_over(now_ms()):
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
                    async with timeout_at(min([*due, began + bounds.NOTICE_CHECK_SECONDS])):
                        await activity.wait()
                soonest = min(bounds.STIRRED_SECONDS, bounds.NOTICE_CHECK_SECONDS)
                await asyncio.sleep(began + soonest - self._now())

    async def _check(self) -> None:
        """Start a message to each browser that has to show something else now."""
        live = await self._reader.live_now()
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
        attended = {tenant for tenant, _ in self._attended}
        for id_, browser in browsers.items():
            if (token := known.get(id_)) is None or token.revoked_at is not None:
                self._forget(id_)
                continue
            if not token.is_good(now_ms()):  # it may be again: held until now, or a wrong clock
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
            if ids != state.shown:
                message = encode(notice(shown, is_news=not ids <= state.shown)).decode()
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
            state.shown, state.next_at = ids, began + bounds.NOTICE_APART_SECONDS
            try:
                self._kept.note(token, ids)
            except OSError as exc:
                log.warning("cannot store which questions a browser shows: %s", exc)
        else:
            state.next_at = began + bounds.NOTICE_RETRY_SECONDS
            log.warning(
                "a notification was not accepted: %s", outcome.why or f"HTTP {outcome.status}"
            )


async def _waiting(journal: Journal, live: Live) -> list[WaitingMatter]:
    """Return all that waits for a person."""
    asked = [it for it in live.values() if it[0].waiting]
    questions = await open_questions(journal, live) if asked else []
    found = [WaitingMatter(it.question.id, it.row, question_line(it), it.seq) for it in questions]
    for it in await sessions_on_hold(LocalReader(journal, live=live)):
        row = it.row
        id_ = f"held {row.session_id} {row.held} {row.held_until or ''}"
        found.append(WaitingMatter(id_, row, describe_queue(row.queued, row.held, row.held_until)))
    return found


def notice(waiting: Sequence[WaitingMatter], *, is_news: bool = True) -> Mapping[str, object]:
    """Return the message for the page's service worker; a `count` of 0 removes the notice."""
    if not waiting:
        return {"count": 0}
    newest = waiting[-1]
    about = on_one_line(newest.row.title or newest.row.cwd)[:80]
    words = on_one_line(newest.words)[: bounds.NOTICE_CHARACTERS]
    if len(waiting) == 1:
        title, body = about, words
        place: Mapping[str, object] = {"sessionId": newest.row.session_id, "seq": newest.seq}
    else:
        what = "questions" if all(it.seq for it in waiting) else "things"
        title, body = f"{len(waiting)} {what} are waiting for you", f"{about}: {words}"
        place = {}
    message = {"count": len(waiting), "title": title, "body": body, "isNews": is_news, **place}
    while len(encode(message)) > bounds.PUSH_PAYLOAD_BYTES:  # other scripts take more bytes
        message["body"] = str(message["body"])[: len(str(message["body"])) // 2]
        message["title"] = str(message["title"])[:40]
    return message
