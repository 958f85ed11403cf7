"""The terms of clients and of the agents in which their sessions live.

A session stands on the terms of its agent. A client without terms of its own joins on those. One
whose terms differ may open the session, which then comes to its own desk if that loses nothing;
while they differ, it says nothing to the agent: no prompt leaves by an endpoint or an account that
its sender did not choose.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from acp_wire.schema import AUTHENTICATE, LOGOUT
from acphold import errors
from acphold.conversation.history.prompt_queue import ON_TERMS
from acphold.live.agents.interface import ask
from acphold.live.agents.terms import TERMS_SECONDS, Terms, is_chosen
from acphold.live.hub.attachment import Client
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.hub import can_close

if TYPE_CHECKING:
    from acphold.live.hub.hub import DeskInHub

log = logging.getLogger(__name__)


def can_move(conversation: Conversation, desk: DeskInHub) -> bool:
    """Return True if a session can come to another desk of the same agent without a loss: nothing
    runs or waits in it, its agent can let it go, and the agent of the desk can open it."""
    side, can = conversation.side, desk.agent.capabilities
    if _is_in_use(conversation) or side.is_at_work or side.agent.key != desk.agent.key:
        return False
    is_alone = [it.side.agent for it in desk.hub.live.values()].count(side.agent) == 1
    can_leave = not side.is_open or is_alone or can_close(side.agent)
    return can_leave and (can.load_session or can.session_capabilities.resume is not None)


def _is_in_use(conversation: Conversation) -> bool:
    """Return True while something runs in it, or waits for what its agent works on: prompts go on
    the terms on which they were added."""
    queue = conversation.session.queue
    return conversation.is_busy or bool(queue.waiting and queue.held != ON_TERMS)


def takes_over(conversation: Conversation, desk: DeskInHub, client: Client | None) -> bool:
    """Return True if a session that is live at another desk comes to this one when a client opens
    it: for the client's own terms, or because its agent has the surroundings of an editor that has
    left, and this desk is for another one, or for the same with others."""
    agent, its = conversation.side.agent, desk.hub.desk_of(conversation.id)
    if its is None or its is desk or not can_move(conversation, desk):
        return False
    own = None if client is None else client.terms.get(agent.key)
    if own is not None and own != agent.terms:
        return own == desk.agent.terms
    here, there = desk.surroundings, its.surroundings
    if agent.terms != desk.agent.terms or conversation.session.attachments:
        return False
    is_of_editors = here is not None and there is not None
    return is_of_editors and not desk.start_alike(agent)


def require_own_terms(client: Client, conversation: Conversation, desk: DeskInHub | None) -> None:
    """Refuse to let a client say anything to an agent that works on other terms than the client's
    own: TermsDifferError. `desk` is the client's own."""
    agent = conversation.side.agent
    own = client.terms.get(agent.key)
    if own is None or own == agent.terms:
        return
    if desk is None or desk.agent is agent or desk.agent.terms != own:
        way_out = "choose yours again to continue on them"
    elif can_move(conversation, desk):
        way_out = "load it here to continue on yours"
    elif _is_in_use(conversation):
        way_out = "load it here once its turn has ended and no prompt waits to continue on yours"
    else:
        way_out = f"continue a copy: acphold continue {conversation.id} --from last"
    raise errors.TermsDifferError(agent.terms.label, own.label, way_out)


def require_known_terms(conversation: Conversation) -> None:
    """Refuse to say anything in a session whose chosen terms its agent has no longer: it would
    work for another account, or elsewhere. Raises TermsLostError."""
    its = conversation.session.queue.terms
    if is_chosen(its) and not conversation.side.agent.terms.stand_for(its):
        raise errors.TermsLostError(conversation.id, its)


class TermsChange(Struct, frozen=True):
    """A request by which a client changes the terms of the agent of a desk."""

    desk: DeskInHub
    client: Client
    method: str
    params: bytes

    def require_agreement(self) -> None:
        """Refuse it if it would send another client's prompts elsewhere: TermsDifferError.

        At the desk of one editor, only turns of other clients count, which run or wait.
        """
        agent, there = self.desk.agent, list[Client]()
        if self.desk.surroundings is None:
            there = _clients_at(self.desk)
        else:
            there = [it for each in self.desk.conversations for it in each.turns.clients]
        new = agent.terms.after(self.method, self.params)
        if not self._is_agreed(there, new):
            way_out = "it can be changed once the other client has left"
            raise errors.TermsDifferError(agent.terms.label, new.label, way_out)

    def accept(self) -> Awaitable[None]:
        """Note that the agent has accepted it; await what this returns to have it told to the other
        agents, too, in which sessions of the client live, if all clients there agree."""
        agent, terms = self.desk.agent, self.client.terms
        agent.accept_terms(self.method, self.params)
        if agent.terms:
            terms[agent.key] = agent.terms
        else:
            terms.pop(agent.key, None)
        return self._reach_others()

    async def _reach_others(self) -> None:
        await self._note(self.desk)
        if self.method == LOGOUT.name:
            return  # others there may work on
        desk, agent = self.desk, self.desk.agent
        for other in tuple(desk.hub.desks):
            its = other.agent
            is_same = other is not desk and its.key == agent.key and its.alive
            if not is_same or self.client not in (there := _clients_at(other)):
                continue
            new = its.terms.after(self.method, self.params)
            if new == its.terms or not self._is_agreed(there, new):
                continue
            try:
                await ask(its, self.method, self.params, TERMS_SECONDS)
            except errors.AcpError as exc:
                # Its words may repeat a key. The client's prompts there are refused.
                log.warning("another agent of %s refuses the change (%d)", agent.key, exc.code)
            else:
                its.accept_terms(self.method, self.params)
                await self._note(other)
                if self.method == AUTHENTICATE.name:
                    other.sign_in_changed()

    async def _note(self, desk: DeskInHub) -> None:
        """Have the journal say that the sessions at a desk stand on terms, or no longer."""
        for conversation in desk.conversations:
            try:
                await conversation.waiting.note_terms(anew=True)
            except errors.JournalError as exc:
                log.warning("session %s: %s", conversation.id, exc)

    def _is_agreed(self, there: Sequence[Client], new: Terms) -> bool:
        """Return True if no other of these clients has terms of its own that are not the new."""
        others, key = (it for it in there if it is not self.client), self.desk.agent.key
        return all(it.terms.get(key, new) == new for it in others)


def forget_sign_in(desk: DeskInHub) -> None:
    """Note that the person has signed in with the program of a desk's agent: that takes the place
    of the sign-in of the clients that it had from."""
    agent, before = desk.agent, desk.agent.terms
    agent.forget_sign_in()
    for client in _clients_at(desk):
        if client.terms.get(agent.key) == before:
            if agent.terms:
                client.terms[agent.key] = agent.terms
            else:
                del client.terms[agent.key]


def _clients_at(desk: DeskInHub) -> list[Client]:
    """Return the clients that came to a desk, or have a session of its agent open."""
    attached = [each.client for it in desk.conversations for each in it.session.attachments]
    return [*desk.router.clients, *attached]
