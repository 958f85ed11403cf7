"""Standing answers over plain HTTP, for the page.

    GET /rules           {"rules": [RULE…]}: those that have not ended
    GET /rules/offers    {"offers": [OFFER…]}, of the question `question` in `session`: the rules
                         that would have allowed it, the one that allows least first
    POST /rules          {"sessionId", "questionId", "text", "allAgents"} → {"rules"}: make the
                         offer with this text; 409 if there is no such offer any more
    DELETE /rules/N      revoke a rule → {"rules"}
    POST /rules/off, on  switch all of them → {"rules"}; on: those that wait as well
    POST /rules/seen     {"numbers"}: a person was shown these on this device

RULE is as `acphold rules --json` prints it. A token sees the rules of its own user, or those of
nobody in particular; a token for one session has none. Making a rule, also by
switching them on, needs the scope rules; revoking and switching off, answer; reading, watch. To
revoke a rule that asks gives permission back, and needs rules, too.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from acp_wire.schema import LOAD_SESSION
from acphold.journal.access import Scope
from acphold.journal.lineage import rule_place
from acphold.live.reading.json_facts import offer_json, rule_json
from acphold.live.reading.requests import OFFERS, RULES, AcceptedOffer, OffersQuery
from acphold.live.reading.rule_offers import accept_offer, rule_offers
from acphold.safety.standing.decision import RuleChange, StandingRule
from acphold.web import bounds
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted
from acphold.web.journal_pages import JournalReader

OFF: Final = "/rules/off"
ON: Final = "/rules/on"
SEEN: Final = "/rules/seen"

NO_RULE: Final = "you have no such rule"
UNREADABLE: Final = "invalid request; see docs/operate.md"


class SeenRules(Struct, frozen=True):
    """The rules that a person was shown."""

    numbers: Annotated[list[int], Meta(max_length=bounds.SEEN_NUMBERS)]


class RuleRequests:
    """Answers requests about standing answers; see the module."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request to an address below RULES; raises RefusedError, JournalError and
        RuleError."""
        match exchange.method, exchange.path:
            case (("GET" | "HEAD"), path) if path == RULES:
                person = _person(admitted, "watch", "list rules")
                found = await self._rules_of(person)
                await self._answer(exchange, self._live(found))
            case (("GET" | "HEAD"), path) if path == OFFERS:
                person = _person(admitted, "rules", "add rule")
                asked = exchange.query(OffersQuery)
                await self._check_there(admitted, asked.session)
                offered = await self._reader.ask(
                    lambda it: rule_offers(it, asked.session, asked.question, person)
                )
                offers = ",".join(map(offer_json, offered))
                await exchange.answer(200, raw=f'{{"offers":[{offers}]}}'.encode())
            case "POST", path if path == RULES:
                person = _person(admitted, "rules", "add rule")
                accepted = await exchange.read_json(
                    AcceptedOffer, UNREADABLE, bounds.RULE_REQUEST_BYTES
                )
                await self._check_there(admitted, accepted.session_id)
                made = await self._reader.ask(
                    lambda it: accept_offer(
                        *(it, accepted.session_id, accepted.question_id, accepted.text),
                        tenant=person,
                        all_agents=accepted.all_agents,
                        made_with=device_of(admitted),
                    )
                )
                for rule in made:
                    admitted.principal.note(f"add rule {rule.number}", accepted.session_id)
                await self._answer(exchange, made)
            case "POST", path if path == SEEN:
                person = _person(admitted, "answer", "see rules")
                seen = await exchange.read_json(SeenRules, UNREADABLE, bounds.RULE_REQUEST_BYTES)
                found, device = await self._rules_of(person), device_of(admitted)
                new = [it.number for it in found if it.is_unseen_at(device)]
                if shown := [*{*new} & {*seen.numbers}]:
                    await self._change(person, shown, RuleChange(is_seen=True))
                await exchange.answer(200, {})
            case "POST", path if path in (OFF, ON):
                is_off = path == OFF
                deed = "rules off" if is_off else "rules on"
                person = _person(admitted, "answer" if is_off else "rules", deed)
                change = RuleChange(is_off=is_off)
                if not is_off:
                    change = replace(change, place=await self._reader.ask(rule_place))
                found = await self._change(person, None, change)
                admitted.principal.note(deed, None)
                await self._answer(exchange, self._live(found))
            case "DELETE", path:
                person = _person(admitted, "answer", "revoke rule")
                given = path.removeprefix(f"{RULES}/")
                named = [it for it in await self._rules_of(person) if str(it.number) == given]
                if any(rule.verdict == "ask" for rule in named):
                    _person(admitted, "rules", f"revoke rule {given}")
                numbers = [it.number for it in named]
                change = RuleChange(ended_at=self._reader.now_ms())
                if not named or not (found := await self._change(person, numbers, change)):
                    raise RefusedError(404, NO_RULE)
                admitted.principal.note(f"revoke rule {given}", None)
                await self._answer(exchange, found)
            case _:
                raise RefusedError(404, "there is nothing at this address")

    async def _check_there(self, admitted: Admitted, session_id: str) -> None:
        """Refuse a session that is not there for this client like one that does not exist."""
        await self._reader.session(admitted.principal, session_id, LOAD_SESSION.name)

    async def _rules_of(self, person: str) -> list[StandingRule]:
        return await self._reader.ask(lambda it: it.access.rules(person))

    async def _change(
        self, person: str, numbers: Sequence[int] | None, change: RuleChange
    ) -> list[StandingRule]:
        return await self._reader.ask(lambda it: it.access.change_rules(person, numbers, change))

    def _live(self, found: Sequence[StandingRule]) -> list[StandingRule]:
        now = self._reader.now_ms()
        return [rule for rule in found if rule.is_listed(now)]

    async def _answer(self, exchange: HttpExchange, found: Sequence[StandingRule]) -> None:
        place = await self._reader.ask(rule_place)
        rules = ",".join(rule_json(rule, place) for rule in found)
        await exchange.answer(200, raw=f'{{"rules":[{rules}]}}'.encode())


def device_of(admitted: Admitted) -> str:
    """Return the device that a rule is made with, or shown on: its token's name and id."""
    return f"{admitted.principal.name} ({admitted.token})"


def _person(admitted: Admitted, scope: Scope, deed: str) -> str:
    """Return whose rules this request is about; raises RefusedError."""
    who = admitted.principal
    person = who.person
    if person is None or scope not in who.scopes:
        who.refused(deed, None)
        lacking = "a token for all sessions" if person is None else f"the scope {scope}"
        raise RefusedError(403, f"this needs {lacking}, which this token does not have")
    return person
