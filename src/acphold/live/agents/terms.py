"""Terms: what a client has chosen for its agent outside of sessions.

They are a sign-in, providers, and variables of its environment that say the same
(`known_agents.TERMS_VARIABLES`): for whom, and where, an agent works. An agent forgets them with
its process, so a process that is started again is told them before a session is opened in it:

    choice                                        told
    --------------------------------------------  ----------------------------------------------
    `providers/set`, `providers/disable`          always
    `authenticate` with more than its `methodId`  always, after the providers
    any other `authenticate`                      once it refuses to open a session for want of a
                                                  sign-in; it may open a browser, so only while a
                                                  client is there

They may hold keys: they are kept in memory only, and are part of no message, log or error.
"""

# See docs/decisions.md, 21.

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from acp_wire.rpc import Peer
from acp_wire.schema import AUTHENTICATE, LOGOUT
from acp_wire.schema.methods import REQUESTS
from acp_wire.tasks import timeout
from acp_wire.visible_text import visible
from acphold import errors
from acphold.conversation.history.raw_update import members, string
from acphold.errors import AcpError, TermsRefusedError
from acphold.known_agents import TERMS_VARIABLES

log = logging.getLogger(__name__)

TERMS_SECONDS = 10.0
"""Seconds for an agent to accept all terms."""

SIGN_IN = "sign-in"
"""The subject of `authenticate` and `logout`."""

VARIABLE = "variable "
"""The beginning of a label of variables; choices come before them."""

NAME_CHARACTERS = 60
"""Most characters of a name in a sentence."""


class Choice(Struct, frozen=True):
    """One choice: its subject, and the request that makes it, with its params in one form."""

    subject: str
    method: str
    params: bytes

    @property
    def name(self) -> str:
        """The id of the provider, or of the way to sign in."""
        member = "methodId" if self.subject == SIGN_IN else "providerId"
        given = members(self.params)
        return visible(string(given.get(member, given.get("id"))) or "?")[:NAME_CHARACTERS]

    @property
    def label(self) -> str:
        """The choice in words, without its values."""
        if self.subject == SIGN_IN:
            return f"sign-in “{self.name}”"
        off = "" if self.method.endswith("/set") else " off"
        return f"provider “{self.name}”{off}"

    @property
    def is_told_always(self) -> bool:
        """True unless the agent may ask the person: params of a sign-in may have all it needs."""
        return self.subject != SIGN_IN or members(self.params).keys() > {"methodId"}

    def __repr__(self) -> str:
        return f"<{self.label}>"


class Terms(Struct, frozen=True):
    """The choices of a client, in the order in which they are told, and the `variables` that it
    works with. Without any they are false."""

    choices: tuple[Choice, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.choices or self.variables)

    @property
    def label(self) -> str:
        """The terms in words, without their values."""
        return self._words(self.choices) or "what the agent has by itself"

    @property
    def lost_label(self) -> str:
        """The choices that end with the agent's process, in words; "" for none. It remembers by
        itself, or asks for, a sign-in that has nothing but its `methodId`."""
        return self._words([it for it in self.choices if it.is_told_always])

    def _words(self, choices: Iterable[Choice]) -> str:
        names = [f"{VARIABLE}{name}" for name, _ in self.variables]
        return ", ".join([*(it.label for it in choices), *names])

    def stand_for(self, label: str) -> bool:
        """Return True if a session that stood on terms with this label may go on on these: only
        choices take the place of choices."""
        return bool(self.choices) or (bool(self.variables) and not is_chosen(label))

    def after(self, method: str, params: bytes) -> Terms:
        """Return the terms after a request that changes them, which the agent has accepted."""
        if method in (AUTHENTICATE.name, LOGOUT.name):
            subject = SIGN_IN
        else:
            given = members(params)
            subject = "provider " + (string(given.get("providerId", given.get("id"))) or "")
        others = [it for it in self.choices if it.subject != subject]
        if method != LOGOUT.name:
            in_one_form = msgspec.json.encode(msgspec.json.decode(params), order="sorted")
            others.append(Choice(subject, method, in_one_form))
        in_order = tuple(sorted(others, key=lambda it: it.subject == SIGN_IN))
        return Terms(in_order, self.variables)

    def without_sign_in(self) -> Terms:
        """Return the terms of somebody who has signed in otherwise."""
        others = tuple(it for it in self.choices if it.subject != SIGN_IN)
        return Terms(others, self.variables)

    def __repr__(self) -> str:
        return f"<terms: {self.label}>"


def is_chosen(label: str) -> bool:
    """Return True if terms with this label have choices, not variables alone."""
    return bool(label) and not label.startswith(VARIABLE)


def variables_in(env: Mapping[str, str], agent: str) -> tuple[tuple[str, str], ...]:
    """Return the variables of an environment that are terms for this known agent."""
    names = TERMS_VARIABLES.get(agent, {})
    return tuple((name, env[name]) for name in names if env.get(name))


class ToldTerms:
    """The terms of an agent, and those of them that its process has not accepted yet."""

    def __init__(self, called: str, variables: tuple[tuple[str, str], ...]) -> None:
        self.terms = Terms(variables=variables)
        self._called = called
        self._owed: list[Choice] = []
        self._refused: TermsRefusedError | None = None

    def begin(self) -> None:
        """Begin with a process that knows nothing."""
        self._owed, self._refused = [*self.terms.choices], None

    def accept(self, method: str, params: bytes) -> None:
        """Note a change that the process has accepted."""
        known = self.terms.choices
        self.terms = self.terms.after(method, params)
        kept = [it for it in self.terms.choices if it in known]
        self._owed = [it for it in self._owed if it in kept]

    def forget_sign_in(self) -> None:
        """Note that the person has signed in otherwise."""
        self.terms = self.terms.without_sign_in()
        self._owed = [it for it in self._owed if it.subject != SIGN_IN]

    @property
    def are_due(self) -> bool:
        """True while the process has not accepted what it is always told."""
        return any(it.is_told_always for it in self._owed)

    @property
    def sign_in(self) -> Choice | None:
        """The sign-in that the process is told once it asks for one."""
        its = (it for it in self._owed if it.subject == SIGN_IN and not it.is_told_always)
        return next(its, None)

    def check(self, method: str) -> None:
        """Refuse to open a session in a process that works on other terms: TermsRefusedError."""
        if self._owed and REQUESTS[method].opens and self.are_due:
            raise self._refused or TermsRefusedError(self._called, self._owed[0].label)

    async def tell(self, peer: Peer) -> None:
        """Tell the process what it is always told; `check` refuses until it has accepted that."""
        due = [it for it in self._owed if it.is_told_always]
        try:
            async with timeout(TERMS_SECONDS):
                for choice in due:
                    await self._tell(peer, choice)
        except (AcpError, TimeoutError) as exc:
            self._refuse(choice, exc)

    async def sign_in_again(self, peer: Peer, *, is_attended: bool) -> None:
        """Tell the process the sign-in that it has asked for; raises TermsRefusedError."""
        if (choice := self.sign_in) is None:
            return  # another session has had it told
        if not is_attended:
            raise TermsRefusedError(self._called, choice.label, is_sign_in=True)
        try:
            async with timeout(TERMS_SECONDS):
                await self._tell(peer, choice)
        except (AcpError, TimeoutError) as exc:
            raise self._refuse(choice, exc) from None

    async def _tell(self, peer: Peer, choice: Choice) -> None:
        await peer.call_raw(choice.method, choice.params)
        if choice in self._owed:
            self._owed.remove(choice)

    def _refuse(self, choice: Choice, exc: Exception) -> TermsRefusedError:
        # Its words may repeat a key.
        code = f"code {exc.code}" if isinstance(exc, errors.RemoteError) else type(exc).__name__
        log.warning("%s did not accept the %s again (%s)", self._called, choice.label, code)
        is_sign_in = choice.subject == SIGN_IN
        self._refused = TermsRefusedError(self._called, choice.label, is_sign_in=is_sign_in)
        return self._refused
