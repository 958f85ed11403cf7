"""The agent's questions to people and their outcomes: `question` and `answer` entries.

outcome       how the question was closed
------------  ----------------------------------------------------------------
answered      a client answered, the first of those that were asked
refused       every client that was asked answered with an error
cancelled     its turn was cancelled, or the session closed
rejected      no client could show it, and the settings say not to wait
expired       no answer came within the time that the settings give
withdrawn     the agent withdrew the question
interrupted   the agent or acphold ended while it waited
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from acphold.conversation.history.raw_update import (
    encode_object,
    encode_text,
    items,
    members,
    string,
)

Outcome = Literal[
    "answered", "refused", "cancelled", "rejected", "expired", "withdrawn", "interrupted"
]
"""See the module."""

_PERMISSION: Final = "session/request_permission"


class AskedQuestion(Struct, frozen=True):
    """A `question` entry: the ACP request that was put to clients, under an id of ours."""

    id: str
    method: str
    params: bytes

    @property
    def title(self) -> str:
        """The question for people, as far as the request itself contains it."""
        if self.method == _PERMISSION:
            return string(self.tool_call.get("title")) or "a tool call"
        return string(members(self.params).get("message")) or self.method

    @property
    def untitled_call(self) -> str | None:
        """The id of the tool call in question, if the request does not have its title.

        Then an earlier `tool_call` has it (schema, `RequestPermissionRequest`: an update of it).
        """
        if self.method != _PERMISSION or string(self.tool_call.get("title")):
            return None
        return string(self.tool_call.get("toolCallId"))

    @property
    def tool_call(self) -> dict[str, bytes]:
        """The fields of the call in a permission request."""
        return members(members(self.params).get("toolCall", b""))

    @property
    def option_names(self) -> list[str]:
        """The names of a person's options, as shown; none for a form."""
        options = map(members, items(members(self.params).get("options", b"")))
        return [name for parts in options if (name := string(parts.get("name"))) is not None]

    def option(self, option_id: str) -> tuple[str, str]:
        """Return the kind of an option, and its name; "" and its id if it was not offered."""
        for option in items(members(self.params).get("options", b"")):
            parts = members(option)
            if string(parts.get("optionId")) == option_id:
                return string(parts.get("kind")) or "", string(parts.get("name")) or option_id
        return "", option_id

    def describe_answer(self, content: bytes) -> str:
        """Return the values filled into the form, with the form's titles of its fields and
        choices."""
        form = members(members(self.params).get("requestedSchema", b""))
        fields = members(form.get("properties", b""))
        told = []
        for key, raw in members(content).items():
            field = members(fields.get(key, b""))
            # The titles of its choices (JSON Schema, `const` in `oneOf` or `anyOf`).
            titles: dict[bytes | None, str] = {}
            among = {**field, **members(field.get("items", b""))}
            for choice in (*items(among.get("oneOf", b"")), *items(among.get("anyOf", b""))):
                parts = members(choice)
                if title := string(parts.get("title")):
                    titles.setdefault(parts.get("const"), title)
            chosen = ", ".join(
                titles.get(value) or string(value) or value.decode(errors="replace")
                for value in items(raw) or [raw]
            )
            told.append(f"{string(field.get('title')) or key}: {chosen}")
        return "; ".join(told)


class Came(Struct, frozen=True):
    """The outcome of a question.

    `how` is an outcome of the module's table, or the answer: the kind of an option (`allow_once`
    …), or `accept`, `decline` or `cancel`. `said` is a text from others about it: the agent's name
    for the option, the values of a form, the reason of a refusal.
    """

    how: str
    said: str = ""


class ClosedQuestion(Struct, frozen=True):
    """An `answer` entry; `result` is the answer to the agent, b"" if none.

    `client` is the name of the program that answered, None if no person did; `message` is the
    reason of a refusal or an interruption; `sent_id` is the client's own id for the answer.
    `rules` are the numbers of the rules that gave it; `unruled` is why they did not. One that
    `is_automatic` was given by a program, as it was started to do, and by no person.
    """

    question: str
    outcome: str
    result: bytes = b""
    client: str | None = None
    message: str | None = None
    sent_id: str = ""
    rules: tuple[int, ...] = ()
    unruled: str = ""
    is_automatic: bool = False

    def came(self, question: AskedQuestion) -> Came:
        """Return the outcome of the question."""
        if self.outcome != "answered":
            return Came(self.outcome, self.message or "")
        parts = members(self.result)
        outcome = members(parts.get("outcome", b""))
        if (chosen := string(outcome.get("optionId"))) is not None:
            kind, name = question.option(chosen)
            return Came(kind or "answered", name)
        how = string(outcome.get("outcome")) or string(parts.get("action")) or "answered"
        return Came(
            how, question.describe_answer(parts.get("content", b"")) if how == "accept" else ""
        )


def question_entry(question: AskedQuestion) -> bytes:
    """Return the raw of a `question` entry."""
    return encode_object(
        {
            "id": encode_text(question.id),
            "method": encode_text(question.method),
            "params": question.params or b"{}",
        }
    )


def answer_entry(
    question: str,
    outcome: Outcome,
    *,
    result: bytes = b"",
    client: bytes = b"",
    message: str | None = None,
    sent_id: str = "",
    rule: bytes = b"",
    watched: bytes = b"",
    unruled: str = "",
    is_automatic: bool = False,
) -> bytes:
    """Return the raw of an `answer` entry; `client` is an object with `name` and `version`.

    `rule` are the facts about the rules that gave it, if no person did, `unruled` is the reason why
    they did not, and `watched` what rules that only watch would have done. One that `is_automatic`
    no person gave in the client.
    """
    parts = {
        "question": encode_text(question),
        "outcome": encode_text(outcome),
        "result": result,
        "client": client,
        "message": b"" if message is None else encode_text(message),
        "sent": encode_text(sent_id) if sent_id else b"",
        "rule": rule,
        "watched": watched,
        "unruled": encode_text(unruled) if unruled else b"",
        "automatic": b"true" if is_automatic else b"",
    }
    return encode_object({name: raw for name, raw in parts.items() if raw})


def asked_question(raw: bytes) -> AskedQuestion:
    """Return the content of a `question` entry."""
    parts = members(raw)
    return AskedQuestion(
        string(parts.get("id")) or "",
        string(parts.get("method")) or "",
        parts.get("params", b"{}"),
    )


def closed_question(raw: bytes) -> ClosedQuestion:
    """Return the content of an `answer` entry."""
    parts = members(raw)
    return ClosedQuestion(
        string(parts.get("question")) or "",
        string(parts.get("outcome")) or "",
        parts.get("result", b""),
        string(members(parts.get("client", b"")).get("name")),
        string(parts.get("message")),
        string(parts.get("sent")) or "",
        tuple(
            int(number) if number.isdigit() and len(number) < 10 else 0
            for number in items(members(parts.get("rule", b"")).get("numbers", b""))
        ),
        string(parts.get("unruled")) or "",
        parts.get("automatic") == b"true",
    )


def rejecting_option(params: bytes) -> bytes | None:
    """Return the id, as JSON, of the option that rejects once; None if there is none.

    Never one that holds for always: nobody has seen the question.
    """
    for option in map(members, items(members(params).get("options", b""))):
        if string(option.get("kind")) == "reject_once" and "optionId" in option:
            return option["optionId"]
    return None
