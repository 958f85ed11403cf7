"""Permissions of each principal in each session, and the audit log of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from acphold.errors import ForbiddenError, UnknownSessionError
from acphold.journal.access import Scope
from acphold.journal.rows import SessionRow
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Principal

ROW = SessionRow(
    session_id="s1",
    agent="a",
    cwd="/",
    additional_directories=(),
    title=None,
    created_at=0,
    updated_at=0,
    message_count=0,
    prompted=False,
    last_seq=0,
    tenant="acme",
    shared_with={"guests": False, "partners": True},
)


@pytest.mark.parametrize(
    ("limits", "method", "error"),
    [
        ({"tenant": "globex"}, "session/load", UnknownSessionError),
        ({"tenant": ""}, "session/load", UnknownSessionError),
        ({}, "session/load", UnknownSessionError),
        ({"session_id": "s2"}, "session/load", UnknownSessionError),
        ({"tenant": "guests"}, "session/prompt", ForbiddenError),
        ({"tenant": "partners"}, "session/delete", ForbiddenError),
        ({"tenant": "partners"}, "_vendor/whatever", ForbiddenError),
        ({"tenant": "guests"}, "_session/steering", ForbiddenError),
        ({"tenant": "acme", "scopes": frozenset({"watch"})}, "session/prompt", ForbiddenError),
    ],
)
def test_what_is_refused_in_a_session_is_written_down(
    limits: dict[str, object], method: str, error: type[Exception]
) -> None:
    noted: list[tuple[str, str | None]] = []
    who = Principal(name="bob", refused=lambda *deed: noted.append(deed), **limits)  # type: ignore[arg-type]
    with pytest.raises(error):
        who.check_in(ROW, Asked.read(method))
    assert noted == [(method, "s1")]


def test_who_watches_reads_the_prompts_that_wait_and_changes_none() -> None:
    noted: list[tuple[str, str | None]] = []
    who = Principal(
        name="bob",
        tenant="acme",
        scopes=frozenset({"watch"}),
        note=lambda *deed: noted.append(deed),
    )
    read = Asked.read("_acphold/queue", b'{"sessionId":"s1"}')
    change = Asked.read("_acphold/queue", b'{"sessionId":"s1","change":{"do":"go"}}')
    who.check(read)
    who.check_in(ROW, read)
    replace(who, tenant="guests").check_in(ROW, read)
    with pytest.raises(ForbiddenError):
        who.check(change)
    with pytest.raises(ForbiddenError):
        who.check_in(ROW, change)
    who.does(read)
    assert noted == []
    who.does(change)
    assert noted == [("_acphold/queue", "s1")]


def test_who_comes_for_one_session_asks_for_no_other() -> None:
    noted: list[tuple[str, str | None]] = []
    may: frozenset[Scope] = frozenset({"watch", "prompt"})
    who = Principal(
        name="guest", session_id="s1", scopes=may, refused=lambda *deed: noted.append(deed)
    )
    for says in ("session/prompt", "_session/steering"):
        who.check(Asked.read(says, b'{"sessionId":"s1"}'))
    with pytest.raises(UnknownSessionError):
        who.check(Asked.read("session/prompt", b'{"sessionId":"s2"}'))
    with pytest.raises(ForbiddenError):
        who.check(Asked.read("session/new"))
    assert noted == [("session/prompt", "s2"), ("session/new", None)]


def test_who_may_not_answer_is_introduced_as_one_who_watches() -> None:
    params = b'{"clientCapabilities":{"elicitation":{"form":{}}}}'
    may: frozenset[Scope] = frozenset({"watch"})
    for who, only_watches in (
        (Principal(name="bob", tenant=""), False),
        (Principal(name="bob", tenant="", scopes=may), True),
    ):
        assert (b'"acphold/watches":true' in who.restrict_introduction(params)) is only_watches


@pytest.mark.parametrize("part", [{"tenant": "acme"}, {"session_id": "s"}])
def test_nobody_sees_all_and_a_part(part: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="sees_all"):
        Principal(name="bob", sees_all=True, **part)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "scope"),
    [
        (b'{"sessionId":"s1"}', "manage"),
        (b'{"sessionId":"s1","files":false}', "manage"),
        (b'{"sessionId":"s1","files":true}', "files"),
        (b'{"sessionId":"s1","files":"/x"}', "files"),
    ],
)
def test_a_copy_with_files_needs_a_scope_of_its_own(params: bytes, scope: Scope) -> None:
    every: set[Scope] = {"watch", "prompt", "answer", "manage", "rules", "files"}
    Principal(name="a", tenant="acme", scopes=frozenset({scope})).check_in(
        ROW, Asked.read("_acphold/fork", params)
    )
    with pytest.raises(ForbiddenError):
        Principal(name="b", tenant="acme", scopes=frozenset(every - {scope})).check_in(
            ROW, Asked.read("_acphold/fork", params)
        )
