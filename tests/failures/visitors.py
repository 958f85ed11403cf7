"""A person with a session open in one client after another, and all updates they were shown.

Each client is a program: `wrap` ("background"), which connects to the daemon, or one with a hub of
its own ("line"), which holds a line to the owner. A client asks for positions, so a person who
comes back resumes after the last one.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.timeline import Item, TurnEnd
from tests.editor import DEADLINE, Answer, Editor, Refused, open_params, prompt_params

CAN: dict[str, Any] = {"session": {"notices": {}}, "_meta": {"acphold/positions": True}}

ARRIVED = {"sessionUpdate": "session_info_update"}
"""The update that tells a client the position of its own prompt: the prompt has arrived."""

MERGED = -32602
"""Error code of a position from which the client cannot resume."""


class Visitor:
    """See the module.

    `view` has the shown updates, each with its position; `position` is the last of these.
    `prompts` are all that this person has asked, as JSON of the list of blocks.
    """

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        self.name = name
        self.kind = kind
        self.client: Editor | None = None
        self.view: list[tuple[int | None, dict[str, Any]]] = []
        self.position = 0
        self.prompts: set[str] = set()
        self.is_lagging = False
        self._folder = folder
        self._taken = 0
        self._stack = AsyncExitStack()

    # -- coming and going -------------------------------------------------------------------

    async def sit_down(self, stack: AsyncExitStack, client: Editor, decide: Answer) -> None:
        """Take a client that was just started; `stack` ends it."""
        self.client, self._stack, self._taken = client, stack, 0
        client.answers["session/request_permission"] = decide
        introduction = {
            "protocolVersion": 1,
            "clientCapabilities": CAN,
            "clientInfo": {"name": self.name, "version": "1"},
        }
        await client.call("initialize", introduction)

    def begin_load(self, session: str) -> asyncio.Future[Any]:
        """Ask for the whole conversation; earlier updates do not count any more."""
        assert self.client is not None
        self.view.clear()
        self.position = 0
        return self.client.begin("session/load", open_params(session, self._folder))

    async def come_back(self, session: str) -> bool:
        """Go on behind the last position; False if that cannot be, and all was loaded."""
        assert self.client is not None
        while self.view and self.view[-1][0] is None:
            self.view.pop()  # of a prompt with several blocks, say
        if self.view:
            params = open_params(session, self._folder)
            params["_meta"] = {"acphold/after": self.position}
            try:
                await asyncio.wait_for(self.client.begin("session/resume", params), DEADLINE * 2)
                return True
            except Refused as refusal:
                if refusal.code != MERGED or "load the session" not in refusal.message:
                    raise
        await asyncio.wait_for(self.begin_load(session), DEADLINE * 2)
        return not self.view

    async def go(self) -> None:
        """End the client, whatever happens to it, and remember its updates."""
        self.read_on()
        await self._stack.aclose()
        if self.client is not None:
            self.look()
            assert max(self._answers().values(), default=1) == 1, f"{self.name}: answered twice"
        self.client = None

    @property
    def is_there(self) -> bool:
        """True while a client runs and is connected."""
        client = self.client
        return client is not None and client.process.returncode is None and not client.is_over

    # -- actions of a person ----------------------------------------------------------------

    def begin_prompt(self, session: str, *steps: Any) -> asyncio.Future[Any]:
        """Begin a turn."""
        assert self.client is not None
        params = prompt_params(session, *steps)
        self.prompts.add(json.dumps(params["prompt"]))
        return self.client.begin("session/prompt", params)

    async def kill(self) -> None:
        """SIGKILL the client, also while it reads nothing."""
        assert self.client is not None
        with suppress(ProcessLookupError):
            self.client.process.kill()
        self.read_on()  # its exit is reported only after the end of its streams
        await self.client.process.wait()

    def lag(self) -> None:
        """Read nothing from now on."""
        if self.is_there and not self.is_lagging:
            self.is_lagging = True
            self._pipe().pause_reading()

    def read_on(self) -> None:
        """Read again."""
        if self.is_lagging:
            self.is_lagging = False
            self._pipe().resume_reading()

    def _pipe(self) -> Any:
        assert self.client is not None
        return self.client.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]

    def _answers(self) -> Counter[Any]:
        """The number of answers to each of its requests."""
        assert self.client is not None
        return Counter(
            message["id"]
            for message in self.client.messages
            if "id" in message and "method" not in message
        )

    # -- shown updates ----------------------------------------------------------------------

    def look(self) -> None:
        """Take in the new updates; AssertionError for any that come twice or out of order."""
        assert self.client is not None
        messages = self.client.messages
        new, self._taken = messages[self._taken :], len(messages)
        for message in new:
            if message.get("method") == "session/update":
                self._see(message["params"])

    def _see(self, params: dict[str, Any]) -> None:
        update: dict[str, Any] = params["update"]
        seq: int | None = params.get("_meta", {}).get("acphold/seq")
        if seq is not None:
            assert seq > self.position, (
                f"{self.name}: twice or out of order: {seq} behind {self.position}: {update}"
            )
            self.position = seq
        self.view.append((seq, update))

    @property
    def shown(self) -> str:
        """The agent's text, as shown to this person."""
        if self.client is not None:
            self.look()
        return "".join(
            update["content"]["text"]
            for _, update in self.view
            if update["sessionUpdate"] == "agent_message_chunk"
        )

    async def until_shown(self, word: str) -> None:
        """Wait until the agent has said this, as this person was told."""
        assert self.client is not None
        await self.client.until(lambda: word in self.shown)

    def state(self, prompts: Mapping[int, bytes]) -> SessionState:
        """All that was shown, folded; `prompts` are those of the session, by their position.

        A client is told only the position of its own prompt: also of one that it has cancelled
        without a connection, which may be in the journal or not.
        """
        return fold(
            Entry(number, "update", 0, json.dumps(self._say(seq, update, prompts)).encode())
            for number, (seq, update) in enumerate(self.view, 1)
        )

    def _say(
        self, seq: int | None, update: dict[str, Any], prompts: Mapping[int, bytes]
    ) -> dict[str, Any]:
        if update != ARRIVED:
            return update
        prompt = prompts.get(seq or 0)
        assert prompt is not None, f"{self.name}: no prompt arrived at {seq}"
        (block,) = json.loads(prompt)
        assert json.dumps([block]) in self.prompts, f"{self.name} has never asked {block}"
        return said_by_user(f"acphold-{seq}", block["text"])


def said_by_user(message_id: str, text: str) -> dict[str, Any]:
    return {
        "sessionUpdate": "user_message_chunk",
        "messageId": message_id,
        "content": {"type": "text", "text": text},
    }


def on_screen(state: SessionState) -> list[Item]:
    """The items of a timeline that a client shows."""
    return [item for item in state.timeline if not isinstance(item, TurnEnd)]


def difference(seen: SessionState, known: SessionState) -> str:
    """The first item that differs, to explain a failure."""
    there, here = on_screen(seen), on_screen(known)
    pairs = enumerate(zip_longest(there, here))
    number, (left, right) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
    return f"item {number}: seen {_short(left)}, kept {_short(right)}"


def _short(item: Item | None) -> str:
    text = repr(item)
    return text if len(text) < 600 else f"{text[:300]} … {text[-300:]}"
