"""Every address of the server, as each of its users; also after pairing and sharing."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

import acphold
import acphold.web as web_room
from acp_wire.transports.known_servers import ENDPOINT
from acphold.conversation.history.entries import Origin
from acphold.errors import RemoteError
from acphold.faces.cli.command_line import Exit
from acphold.journal.access import SCOPES, Share
from acphold.journal.rows import RowChange
from acphold.live.reading import requests
from acphold.machine.addresses import OWNERS
from tests.cli.command_line import CommandLine
from tests.journal.conversations import append
from tests.web.conftest import Served
from tests.web.in_process import Site, address, request, site
from tests.web.test_journal_pages import said
from tests.web.test_list_feed import watching


@pytest_asyncio.fixture
async def web(tmp_path: Path) -> AsyncIterator[Site]:
    """The application, with a session of alice's, one that she shares, and one of nobody's."""
    async with site(tmp_path) as found:
        for session_id, tenant in (("hers", "alice"), ("shared", "alice"), ("nobodys", "")):
            await found.remember(session_id, said(1), tenant=tenant)
        await found.journal.access.keep_share(Share("shared", "rita"))
        yield found


async def token_of(web: Site, user: str | None, session_id: str | None = None) -> str:
    """A token of somebody's, for everything."""
    return await web.new_token(*SCOPES, session_id=session_id, tenant=user)


ALL = {"hers", "shared", "nobodys"}
SEEN: dict[tuple[str | None, str | None], set[str]] = {
    (None, None): ALL,
    ("alice", None): {"hers", "shared"},
    ("rita", None): {"shared"},
    ("eve", None): set(),
    (None, "shared"): {"shared"},
    ("rita", "hers"): set(),
}
"""The sessions that each user sees, and who has a token for one session."""


@pytest.mark.parametrize("whose", SEEN)
async def test_every_address_tells_of_what_is_there_for_somebody_and_of_nothing_else(
    web: Site, whose: tuple[str | None, str | None]
) -> None:
    token, theirs = await token_of(web, *whose), SEEN[whose]
    is_guest = whose == ("rita", None)
    rows = (await web.get("/sessions", token)).json["sessions"]
    assert {row["sessionId"] for row in rows} == theirs
    first = (await web.get("/sessions?limit=1", token)).json
    assert len(first["sessions"]) == min(1, len(theirs))
    assert ("nextCursor" in first) is (len(theirs) > 1)
    for words in ("/search?q=answer1", "/search?q=answer1&rank=true"):
        assert {hit["sessionId"] for hit in (await web.get(words, token)).json["hits"]} == theirs
    missing = await web.get(address("missing"), token)
    for session_id in ALL:
        found = await web.get(address(session_id), token)
        assert found.status == (200 if session_id in theirs else 404)
        assert session_id in theirs or found.body == missing.body
        decided = await web.get(f"/inbox/history?session={session_id}", token)
        assert decided.status == (200 if session_id in theirs else 404)
        for report in ("", "/export", "/changes", "/kept"):
            told = await web.get(f"/sessions/{session_id}{report}", token)
            is_refused = is_guest and report == "/kept"  # without files
            assert told.status == (404 if session_id not in theirs else 403 if is_refused else 200)
            nothing = await web.get(f"/sessions/missing{report}", token)
            assert session_id in theirs or told.body == nothing.body
        present = await web.get(f"/sessions/{session_id}/present?question=1", token)
        nothing = await web.get("/sessions/missing/present?question=1", token)
        assert present.status == (403 if is_guest and session_id in theirs else 404)
        assert (session_id in theirs) is (present.body != nothing.body)
    ids = quote(json.dumps([*ALL]))
    glances = (await web.get(f"/glances?sessions={ids}", token)).json["glances"]
    assert {glance["sessionId"] for glance in glances} == theirs
    places = quote(json.dumps([f"{session_id}@1" for session_id in ALL]))
    hits = (await web.get(f"/contexts?q=answer1&places={places}", token)).json["contexts"]
    assert {hit["place"].partition("@")[0] for hit in hits} == theirs
    async with watching(web, token) as watcher:
        _, snapshot = await watcher.next()
        assert {row["sessionId"] for row in snapshot["sessions"]} == theirs
    assert (await web.get("/inbox", token)).json == {"questions": []}
    for sums in ("/metrics", "/usage"):  # of all together
        assert (await web.get(sums, token)).status == (200 if whose == (None, None) else 403)


async def test_nobody_is_told_anything_without_a_token(web: Site) -> None:
    paths = ["/sessions", "/search?q=a", "/sessions/feed", "/inbox", "/inbox/history", "/usage"]
    paths += ["/metrics", "/glances", "/contexts"]
    paths += [f"/sessions/hers{it}" for it in ("", "/entries", "/export", "/changes", "/kept")]
    for path in paths:
        assert (await web.get(path, "")).status == 401, path
        assert (await web.get(path, method="PATCH")).status == 405, path


def test_no_address_was_added_that_is_not_asked_for_as_somebody_else() -> None:
    """If you add an address, test it as each user, and list it here."""
    asked_above = ["/sessions", "/entries", "/export", "/search", "/sessions/feed"]
    asked_above += ["/inbox", "/inbox/history", "/usage", "/metrics"]
    asked_above += ["/changes", "/kept", "/present", "/glances", "/contexts"]
    asked_below = ["/codes"]
    asked_elsewhere = [ENDPOINT, OWNERS]  # tests/server/test_users.py, test_node_gate.py
    asked_elsewhere += ["/notices", "/notices/attended"]  # test_notices.py, test_inbox.py
    asked_elsewhere += ["/notices/wishes"]  # test_done_notices.py
    asked_elsewhere += ["/browser"]  # test_browsers.py
    asked_elsewhere += ["/import"]  # test_import_requests.py
    rules = ("", "/offers", "/on", "/off", "/seen")
    asked_elsewhere += [f"/rules{name}" for name in rules]  # test_rule_requests.py
    of_nobody = ["/", "/health", "/pair", "/page/", "/worker.js", "/manifest.webmanifest"]
    known = {*asked_above, *asked_below, *asked_elsewhere, *of_nobody}
    assert {ENDPOINT, OWNERS} | set(_addresses()) == known


def _addresses() -> Iterator[str]:
    """Each address in the code of the server."""
    served = Path(web_room.__file__).parent.glob("*.py")
    for path in (*served, Path(requests.__file__)):
        for node in ast.walk(ast.parse(path.read_text())):
            told = node.value if isinstance(node, ast.Constant) else None
            if isinstance(told, str) and re.fullmatch(r"/[\w./-]*", told):
                yield told


async def test_what_is_not_settled_yet_is_found_by_those_for_whom_it_is_there(web: Site) -> None:
    lease = await web.journal.acquire("shared")
    await append(web.journal, lease, said(2))
    await web.journal.release(lease)
    for whose, theirs in SEEN.items():
        hits = (await web.get("/search?q=answer2", await token_of(web, *whose))).json["hits"]
        assert {hit["sessionId"] for hit in hits} == theirs & {"shared"}


async def test_a_pin_is_a_persons_own_and_tags_are_the_sessions(web: Site) -> None:
    rita, alice = await token_of(web, "rita"), await token_of(web, "alice")

    def pinned(rows: list[dict[str, Any]]) -> set[str]:
        return {row["sessionId"] for row in rows if row["pinned"]}

    async with watching(web, rita) as reads, watching(web, alice) as owns:
        await reads.next()
        await owns.next()
        await web.journal.change("shared", RowChange(pins=("rita",), tags=("later",)))
        assert (await reads.until("shared", pinned=True))["tags"] == ["later"]
        assert (await owns.until("shared", tags=["later"]))["pinned"] is False
    for user, theirs in {None: set[str](), "alice": set(), "rita": {"shared"}}.items():
        rows = (await web.get("/sessions?q=%23later", await token_of(web, user))).json["sessions"]
        assert ({row["sessionId"] for row in rows}, pinned(rows)) == ({"shared"}, theirs)


async def test_the_feed_tells_each_user_of_what_becomes_theirs_and_is_theirs_no_longer(
    web: Site,
) -> None:
    rita, alice = await token_of(web, "rita"), await token_of(web, "alice")
    async with watching(web, rita) as reads, watching(web, alice) as owns:
        await reads.next()
        await owns.next()
        await web.journal.change("hers", RowChange(title="For alice alone"))
        await owns.until("hers", title="For alice alone")
        await web.journal.access.keep_share(Share("hers", "rita", prompts=True))
        await reads.until("hers", title="For alice alone")  # before it nothing was told
        await web.journal.access.end_share("hers", "rita")
        assert await reads.next() == ("change", {"gone": "hers"})
        await web.journal.change("hers", RowChange(title="Again"))
        await web.journal.delete("hers", "shared")
        assert await reads.next() == ("change", {"gone": "shared"})
        assert reads.position.isalnum()  # no number that tells of others
        while "gone" not in (told := (await owns.next())[1]):
            assert told["session"]["sessionId"] in ("hers", "shared")


async def test_who_loses_a_share_is_sent_away_within_a_moment_and_nobody_else(web: Site) -> None:
    closed: list[str | None] = []
    with ExitStack() as connections:
        for user in (None, "alice", "rita", "eve"):
            headers = {
                "host": "localhost:8260",
                "authorization": f"Bearer {await token_of(web, user)}",
            }
            admitted = await web.gate.admit(request(headers))
            close = partial(lambda user, _: closed.append(user), user)
            connections.enter_context(web.gate.connected(admitted, close))
        await web.gate.check()
        await web.journal.access.keep_share(Share("shared", "rita", prompts=True))
        await web.gate.check()
        assert closed == []  # it is more than before
        await web.journal.access.keep_share(Share("shared", "rita"))
        await web.gate.check()
        assert closed == ["rita"]
        await web.journal.access.end_share("shared", "rita")
        await web.gate.check()
        assert closed == ["rita", "rita"]


async def test_a_device_is_of_who_has_asked_for_the_code(web: Site) -> None:
    async def paired(token: str, **asked: Any) -> str | None:
        code = (await web.post("/codes", token, **asked)).json["code"]
        text = (await web.post("/pair", "", code=code)).json["token"]
        [kept] = [it for it in await web.journal.access.tokens() if it.is_of(text)]
        return kept.tenant

    alice, all_ = await token_of(web, "alice"), await token_of(web, None)
    assert await paired(alice) == "alice"
    assert await paired(alice, user="alice") == "alice"
    assert await paired(all_) is None
    assert await paired(all_, user="rita") == "rita"
    assert (await web.post("/codes", alice, user="rita")).status == 403
    assert (await web.post("/codes", all_, user="")).status == 400


def test_the_commands_say_whose_a_token_is_and_what_is_shared(tmp_path: Path) -> None:
    acphold_ = CommandLine(tmp_path / "journal.db")

    async def make() -> None:
        async with site(tmp_path) as web:
            await web.remember("hers", said(1), tenant="alice")

    asyncio.run(make())
    assert acphold_.run("access", "token", "--user", "rita").code == Exit.OK
    listed = acphold_.run("access", "list").out
    assert "of rita" in listed
    long = ("--name", "a laptop " * 9, "--user", "rita " * 9, "--session", "hers")
    assert acphold_.run("access", "token", *long, "--scope", "watch").code == Exit.OK
    shown = acphold_.shown("access", "list", columns=80).plain.splitlines()
    assert shown[0].split() == ["NAME", "ID", "STATE", "LAST", "USE", "FOR"]
    assert {"  watch", "  watch, prompt, answer, manage, rules, files"} == {*shown[2::2]}
    assert any(it.rstrip().endswith("  never used  of rita") for it in shown)
    assert max(map(len, shown)) <= 80
    assert acphold_.run("access", "share", "hers", "--with", "rita", "--prompt").code == Exit.OK
    assert acphold_.run("access", "share").out == "hers  prompt  rita\n"
    nobody = acphold_.run("access", "share", "hers", "--with", "nobody")
    assert (nobody.code, "a token for 'nobody' yet" in nobody.err) == (Exit.OK, True)
    assert acphold_.run("access", "share", "hers", "--with", "nobody", "--stop").err == ""
    known = acphold_.run("access", "share", "hers", "--with", "rita")
    assert (known.code, known.err) == (Exit.OK, "")
    assert '"may": "read"' in acphold_.run("access", "share", "hers", "--json").out
    assert "already" in acphold_.run("access", "share", "hers", "--with", "alice").err
    assert acphold_.run("access", "share", "hers", "--with", "rita", "--stop").code == Exit.OK
    again = acphold_.run("access", "share", "hers", "--with", "rita", "--stop")
    assert again.code == Exit.USAGE
    assert acphold_.run("access", "share").out == ""
    assert "stop sharing" in acphold_.run("access", "audit").out


async def test_of_which_session_a_shared_one_was_made_is_told_to_its_owner_alone(web: Site) -> None:
    lease = await web.journal.acquire("shared")
    await web.journal.change(lease, RowChange(origins=(Origin("hers", "scripted", 1),)))
    for user, session_id, is_told in (
        (None, None, True),
        ("alice", None, True),
        ("rita", None, False),
        (None, "shared", False),
    ):
        token, told = await token_of(web, user, session_id), []
        async with watching(web, token) as watcher:
            _, snapshot = await watcher.next()
            rows = [*snapshot["sessions"], *(await web.get("/sessions", token)).json["sessions"]]
            told = [row["origins"] for row in rows if row["sessionId"] == "shared"]
            told.append((await web.get("/sessions/shared", token)).json["origins"])
            await web.journal.change(lease, RowChange(title=f"for {user}, {session_id}"))
            told.append((await watcher.until("shared"))["origins"])
        assert [bool(origins) for origins in told] == [is_told] * 4
    await web.journal.release(lease)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["websocket", "http"])
async def test_users_of_a_server_have_their_sessions_and_what_is_shared_until_it_is_not(
    served: Served, way: str
) -> None:
    url = f"{served.url}?transport={way}"
    tokens = {user: served.token("--user", user) for user in ("alice", "rita", "eve")}
    async with (
        acphold.connect(url, token=tokens["alice"]) as alice,
        acphold.connect(url, token=tokens["rita"]) as rita,
        acphold.connect(url, token=tokens["eve"]) as eve,
    ):
        session = await alice.new_session()
        await session.prompt("hello")
        for other in (rita, eve):
            assert await listed(other) == []
            with pytest.raises(RemoteError, match="no session"):
                await other.load_session(session.id)
        served.run("access", "share", session.id, "--with", "rita")
        assert await listed(rita) == [session.id]
        read = await rita.load_session(session.id)
        with pytest.raises(RemoteError, match="not shared with you"):
            await read.prompt("hello")
        with pytest.raises(RemoteError, match="no session"):
            await eve.load_session(session.id)
        served.run("access", "share", session.id, "--with", "rita", "--stop")
    async with acphold.connect(url, token=tokens["rita"]) as rita:
        assert await listed(rita) == []
        with pytest.raises(RemoteError, match="no session"):
            await rita.load_session(session.id)


async def listed(agent: acphold.RemoteAgent) -> list[str]:
    """The ids of the sessions that there are for somebody."""
    return [row.session_id async for row in agent.sessions()]
