"""What the agent asks of a client, carried to whoever can answer.

A person's decision (permission, elicitation) goes to every attached client: the first answer
wins and the others are told that it is over. A question stays open while nobody is attached, and
is put to whoever attaches, behind the answer that opens the session for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from acphold.errors import AcpholdError, ConnectionLostError, RemoteError
from acphold.hub.attachment import LAG, Client
from acphold.schema import REQUEST_PERMISSION

CANCELLED = b'{"outcome":{"outcome":"cancelled"}}'
"""How a permission request ends when its turn is cancelled (spec v1, tool calls)."""

Audience = Callable[[Client], bool]
"""Which of the attached clients a question is for."""


class Question:
    """One open question and the clients it has been put to.

    One for nobody but `only` ends when that client is gone.
    """

    def __init__(self, method: str, params: bytes, audience: Audience, only: Client | None) -> None:
        self.method = method
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._params = params
        self._audience = audience
        self._only = only
        self._asked: dict[int, asyncio.Task[None]] = {}

    def put_to(self, client: Client) -> None:
        """Ask this client too, if the question is for it and it has not been asked."""
        if id(client) not in self._asked and self._audience(client):
            task = asyncio.create_task(self._ask(client), name=f"ask {self.method}")
            self._asked[id(client)] = task

    async def _ask(self, client: Client) -> None:
        try:
            if client.buffered > LAG:
                await client.drain()  # one that reads nothing is not sent more and more questions
            result = await client.ask(self.method, self._params)
        except ConnectionLostError:
            return  # it went without answering; somebody else may
        except RemoteError as exc:
            self._refused(client, exc)
            return
        if not self.answer.done():
            self.answer.set_result(result)

    def _refused(self, client: Client, error: RemoteError) -> None:
        """One client cannot answer: that is the answer only if nobody else is being asked."""
        self._asked.pop(id(client), None)
        if not self.answer.done() and all(task.done() for task in self._asked.values()):
            self.answer.set_exception(error)

    def withdraw(self, client: Client) -> None:
        """This client is gone or no longer asked."""
        task = self._asked.pop(id(client), None)
        if task is not None:
            task.cancel()
        if client is self._only and not self.answer.done():
            self.answer.set_exception(ConnectionLostError("the client that was asked has gone"))

    async def aclose(self) -> None:
        """Tell whoever still thinks about it that it is over."""
        asked = [task for task in self._asked.values() if not task.done()]
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)


class Questions:
    """The open questions of one session."""

    def __init__(self) -> None:
        self._open: list[Question] = []

    @property
    def are_open(self) -> bool:
        """Whether the agent waits for an answer."""
        return bool(self._open)

    async def ask(
        self,
        method: str,
        params: bytes,
        audience: Audience,
        clients: Iterable[Client],
        only: Client | None = None,
    ) -> bytes:
        """The answer of the first client that gives one; waits while nobody is there.

        `clients` are those that are here now; `only` is the one that alone can answer. Raises
        RemoteError when all who could answer refused, ConnectionLostError when `only` has gone.
        """
        question = Question(method, params, audience, only)
        self._open.append(question)
        try:
            for client in clients:
                question.put_to(client)
            return await question.answer
        finally:
            self._open.remove(question)
            if question.answer.done() and not question.answer.cancelled():
                question.answer.exception()  # seen, also when the agent waits no longer
            await question.aclose()

    def put_to(self, client: Client) -> None:
        """A client attached: it sees what is still open."""
        for question in self._open:
            question.put_to(client)

    def withdraw(self, client: Client) -> None:
        """A client detached: its part in open questions is over."""
        for question in self._open:
            question.withdraw(client)

    def cancel(self) -> None:
        """The turn is cancelled: permission requests end as `cancelled`, at once."""
        for question in self._open:
            if question.method == REQUEST_PERMISSION.name and not question.answer.done():
                question.answer.set_result(CANCELLED)

    def abandon(self, error: AcpholdError) -> None:
        """Nobody waits for the answers any more."""
        for question in self._open:
            if not question.answer.done():
                question.answer.set_exception(error)

    def close(self) -> None:
        """The session is over: whoever waits is told."""
        self.cancel()
        self.abandon(ConnectionLostError("the session was closed"))
