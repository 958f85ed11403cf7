"""In a copy of a journal the tokens of the first open nothing until a person accepts them."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect

from acphold.conversation.history.entries import now_ms
from acphold.journal.access import SCOPES, new_token
from acphold.journal.journal import Identity
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stores import open_journal
from acphold.web import bounds
from tests.journal.conversations import append
from tests.postgresql import Databases
from tests.web.conftest import SECONDS, Served, serving, until_closed
from tests.web.in_process import Site, site
from tests.web.test_gate import bearer, socket_url
from tests.web.test_journal_pages import said

pytestmark = pytest.mark.slow

Copy = Callable[[], str]


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.postgresql)])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Copy]]:
    """The name of a journal, and a function that copies it as it is, and returns the copy's."""
    with ExitStack() as stack:
        if request.param == "file":
            first, second = str(tmp_path / "journal.db"), str(tmp_path / "copy.db")
            yield first, lambda: str(shutil.copyfile(first, second))
            return
        databases: Databases = request.getfixturevalue("databases")
        url = stack.enter_context(databases.new())
        name = url.partition("?")[0].rpartition("/")[2]
        yield url, lambda: stack.enter_context(databases.new(name))


async def begin(location: str, session_id: str) -> None:
    async with aclosing(open_journal(location)) as journal:
        lease = await journal.create(NewSession(session_id, "scripted", "/w", tenant="alice"))
        await append(journal, lease, said(1))
        await journal.change(lease, RowChange(prompted=True))
        await journal.settle(lease, lease.next_seq - 1)
        await journal.release(lease)


def seen(served: Served, token: str) -> int | list[str]:
    """The sessions that the holder of a token sees, or the status of the refusal."""
    request = Request(f"{served.url}/sessions", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(request, timeout=30) as answer:
            return [row["sessionId"] for row in json.load(answer)["sessions"]]
    except HTTPError as refusal:
        return refusal.code


async def test_a_revocation_that_nobody_announces_ends_connections_within_a_second(
    copied: tuple[str, Copy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bounds.TOKENS_SECONDS < 1.0
    location, _ = copied
    with serving(tmp_path / "one", variables={"ACPHOLD_JOURNAL": location}) as served:
        token = served.token("--name", "phone")
        async with connect(socket_url(served), additional_headers=bearer(token)) as phone:
            await asyncio.sleep(2 * bounds.TOKENS_SECONDS)  # by now a server would listen
            async with aclosing(open_journal(location)) as journal:
                # As if the connection that listens were cut off, and did not know it.
                monkeypatch.setattr(type(journal), "_announce", lambda _: None, raising=False)
                (kept,) = await journal.access.tokens([token.split("_")[1]])
                await journal.access.keep_token(replace(kept, revoked_at=now_ms()))
            async with asyncio.timeout(5):
                await until_closed(phone.recv)
            assert phone.close_code == 1008


def test_tokens_and_shares_of_a_raw_copy_are_good_once_a_person_has_accepted_them(
    copied: tuple[str, Copy], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    location, copy = copied
    asyncio.run(begin(location, "hers"))
    with serving(tmp_path / "one", variables={"ACPHOLD_JOURNAL": location}) as served:
        served.run("access", "share", "hers", "--with", "rita")
        token = served.token("--user", "rita", "--name", "phone")
        assert seen(served, token) == ["hers"]
    with serving(tmp_path / "one", variables={"ACPHOLD_JOURNAL": location}) as served:
        assert seen(served, token) == ["hers"]
    assert "open nothing" not in capfd.readouterr().err
    with serving(tmp_path / "two", variables={"ACPHOLD_JOURNAL": copy()}) as served:
        assert seen(served, token) == 401
        newer = served.token("--user", "rita", "--name", "newer")  # accepts no older one
        assert seen(served, newer) == []
        assert seen(served, token) == 401
        assert "2 tokens and 1 share of this journal open nothing" in capfd.readouterr().err
        listed = map(json.loads, served.run("access", "list", "--json").splitlines())
        states = {it["name"]: it["state"] for it in listed if it["name"] != "this machine"}
        assert states == {"phone": "held", "newer": "good"}
        assert served.run("access", "share").endswith("held")
        served.run("access", "keep")
        assert served.run("access", "share") == "hers  read    rita"
        again(lambda: seen(served, token) == ["hers"])
        assert seen(served, newer) == ["hers"]


def test_a_share_that_is_ended_while_it_is_held_does_not_come_back(
    tmp_path: Path,
) -> None:
    location = str(tmp_path / "journal.db")
    asyncio.run(begin(location, "hers"))
    asyncio.run(begin(location, "too"))
    with serving(tmp_path, variables={"ACPHOLD_JOURNAL": location}) as served:
        for id_ in ("hers", "too"):
            served.run("access", "share", id_, "--with", "rita", "--prompt")
        token = served.token("--user", "rita")
    copy = str(shutil.copyfile(location, tmp_path / "copy.db"))
    with serving(tmp_path / "two", variables={"ACPHOLD_JOURNAL": copy}) as served:
        served.run("access", "share", "hers", "--with", "rita", "--stop")
        served.run("access", "keep")
        again(lambda: seen(served, token) == ["too"])


def again(is_true: Callable[[], bool]) -> None:
    """Ask until it is true: a server reads the tokens about once a second."""
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


async def test_during_a_failover_nobody_is_sent_away_until_it_is_known_what_was_lost(
    monkeypatch: pytest.MonkeyPatch, web: Site
) -> None:
    text = await web.new_token()
    monkeypatch.setattr(bounds, "TOKENS_SECONDS", 0)
    assert (await web.get("/sessions", text)).status == 200
    at_home = SqliteTables.identity
    monkeypatch.setattr(SqliteTables, "identity", lambda _: Identity(b"", "other", True))
    assert (await web.get("/sessions", text)).status == 503
    monkeypatch.setattr(SqliteTables, "identity", at_home)
    assert (await web.get("/sessions", text)).status == 200
    monkeypatch.setattr(SqliteTables, "identity", lambda _: Identity(b"", "other", True))
    assert (await web.get("/sessions", text)).status == 503
    monkeypatch.setattr(bounds, "VOUCH_SECONDS", 0)
    assert (await web.get("/sessions", text)).status == 401


async def test_a_server_that_starts_behind_a_failover_waits_for_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, kept = new_token("phone", SCOPES, now_ms())
    moved = Identity(b"", "other", is_kept=False, has_failed_over=True)
    async with site(tmp_path) as web:
        await web.journal.access.keep_token(kept)
        with monkeypatch.context() as away:  # it has read no token yet
            away.setattr(SqliteTables, "identity", lambda _: moved)
            assert (await web.get("/sessions", text)).status == 503
        assert (await web.get("/sessions", text)).status == 200
