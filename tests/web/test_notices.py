"""Notices: recipients, times, and browser addresses, which may be anybody's."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import check_output
from typing import Any

import http_ece
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Raw
from msgspec.structs import replace

from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.journal.access import SCOPES, Scope, Share, new_token, token_id
from acphold.journal.intentions import change_queue
from acphold.live.reading.processes import LiveSession, Process
from acphold.web import bounds
from acphold.web.exchange import RefusedError
from acphold.web.notices import Notices
from acphold.web.push import (
    BrowserKeys,
    KeptSubscriptions,
    Order,
    PushOutcome,
    PushSender,
    Subscription,
    decode_base64,
    is_public,
    new_key,
    send,
    validate,
)
from tests.editor import DEADLINE
from tests.journal.conversations import turn
from tests.watched_processes import until
from tests.web.certificates import new_authority
from tests.web.conftest import Live
from tests.web.in_process import Site, site
from tests.web.test_inbox import asked, waits

ANSWERED = {"count": 0, "title": "Answered", "body": "Nothing is waiting for you any more."}
"""The last notice: a push that shows nothing ends the subscription of some browsers."""

ENDPOINT = "https://push.example.com/send/abc"


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Browser:
    """A browser with the keys of its subscription, which can decrypt messages."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.secret = os.urandom(16)
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.subscription = Subscription(endpoint, BrowserKeys(b64(point), b64(self.secret)))

    @property
    def json(self) -> dict[str, Any]:
        keys = {"p256dh": self.subscription.keys.p256dh, "auth": self.subscription.keys.auth}
        return {"endpoint": self.subscription.endpoint, "keys": keys}

    def read(self, body: bytes) -> bytes:
        said: bytes = http_ece.decrypt(
            body, private_key=self.key, auth_secret=self.secret, version="aes128gcm"
        )
        return said


# -- a message --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example.com/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://localhost/x",
        "https://push.example.com:8443/x",
        "https://user@push.example.com/x",
        "https://push.example.com@[::1]/x",
        "https://0x7f.1/" + "x" * 3000,
        "file:///etc/passwd",
        "https://[",
        "",
    ],
)
def test_what_is_no_address_of_a_push_service_is_refused(endpoint: str) -> None:
    with pytest.raises(RefusedError):
        validate(Browser(endpoint).subscription)


@pytest.mark.parametrize(
    ("p256dh", "auth"), [("", "x"), ("AAAA", "AAAA"), (b64(b"\4" + bytes(64)), b64(bytes(16)))]
)
def test_keys_that_nothing_can_be_encrypted_for_are_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(RefusedError):
        validate(Subscription(ENDPOINT, BrowserKeys(p256dh, auth)))


def test_addresses_inside_of_a_network_are_told_from_public_ones() -> None:
    inside = "127.0.0.1 10.0.0.1 192.168.1.1 172.16.0.1 169.254.169.254 0.0.0.0 100.64.0.1 ::1 "
    inside += "fe80::1%eth0 fc00::1 ::ffff:127.0.0.1 224.0.0.1 ff02::1 "
    # The same inside of NAT64, of 6to4, Teredo and of translated addresses.
    inside += "64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::808:808 2002:7f00:1:: 2002:c0a8:101::1 "
    inside += "2001:0:7f00:1::1 2001:0:808:808:0:0:f5ff:fffe ::127.0.0.1 ::ffff:0:a00:1 fec0::1"
    assert [it for it in inside.split() if is_public(it)] == []
    assert is_public("8.8.8.8")
    assert is_public("2606:4700::1111")
    assert is_public("::ffff:8.8.8.8")
    assert is_public("64:ff9b::808:808")
    assert is_public("2002:808:808::1")


async def test_a_name_that_leads_inside_is_not_connected_to(tmp_path: Path) -> None:
    came = asyncio.Event()

    def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with server:
        order = Order(Browser("https://localhost/x").subscription, "{}", new_key(), "mailto:a@b.c")
        told = await send(order, port=port)
        assert (told.status, told.why) == (0, "localhost is not on the public network")
        assert not came.is_set()
        # The same server, where it may be: it speaks no TLS.
        assert (await send(order, lambda _: True, port)).status == 0
        assert came.is_set()


async def test_a_name_server_that_hangs_holds_up_neither_the_sender_nor_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging, found = threading.Event(), socket.getaddrinfo

    def look_up(host: str | None, *rest: Any, **more: Any) -> Any:
        if host == "hangs.example":
            hanging.wait()
        return found(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(bounds, "PUSH_PATIENCE_SECONDS", 1.0)
    names = ("localhost", "hangs.example", "localhost")
    browsers = [Browser(f"https://{name}/x").subscription for name in names]
    orders = [Order(browser, "{}", new_key(), "mailto:a@b.c") for browser in browsers]
    try:
        sending = asyncio.gather(*map(PushSender().send, orders))
        told = [it.why for it in await asyncio.wait_for(sending, DEADLINE)]
    finally:
        hanging.set()
    inside, silent = "localhost is not on the public network", "the push service does not answer"
    assert told == [inside, silent, inside]


# -- recipients and times ---------------------------------------------------------------------


class PushService:
    """A push service that records messages and answers as it is told to."""

    def __init__(self) -> None:
        self.came: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[Order] = []
        self.status = 201
        self.retry_after = 0
        self.hanging: set[str] = set()
        self.changed = asyncio.Event()

    async def send(self, order: Order) -> PushOutcome:
        self.asked.append(order)
        self.changed.set()
        if order.to.endpoint in self.hanging or order.delivery.topic in self.hanging:
            await asyncio.Event().wait()
        if self.status == 201:
            self.came.append((order.to.endpoint, json.loads(order.payload)))
        self.changed.set()
        return PushOutcome(self.status, retry_after=self.retry_after)

    async def until(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(DEADLINE):
            while len(self.came) < count:
                self.changed.clear()
                await self.changed.wait()
        assert len(self.came) == count
        return [told for _, told in self.came]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(bounds, "NOTICE_HOLD_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "NOTICE_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(bounds, "NOTICE_APART_SECONDS", 0.05)
    monkeypatch.setattr(bounds, "NOTICE_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(bounds, "LIVE_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "TOKENS_SECONDS", 0.0)


@asynccontextmanager
async def telling(
    folder: Path, turn_seconds: float = 60.0
) -> AsyncIterator[tuple[Site, PushService, Notices]]:
    service = PushService()
    async with site(folder, send=service.send, turn_seconds=turn_seconds) as web:
        yield web, service, web.notices


@asynccontextmanager
async def notified(
    folder: Path, turn_seconds: float = 60.0
) -> AsyncIterator[tuple[Site, PushService, Notices]]:
    """The same, with a browser that is notified."""
    async with telling(folder, turn_seconds) as told:
        assert (await told[0].post("/notices", **Browser().json)).status == 200
        yield told


async def test_a_question_that_stays_open_is_told_once_and_withdrawn_with_its_answer(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path) as (web, service, _):
        await web.remember("s1", asked("q1"), settled=False, title="One \x1b[2J")
        told = (await web.get("/notices")).json
        assert told["isOn"] is False
        assert len(decode_base64(told["key"])) == 65
        assert (await web.post("/notices", **Browser().json)).status == 200
        assert (await web.get("/notices")).json["isOn"] is True
        live["s1"] = waits("s1", "q1")
        (first,) = await service.until(1)
        assert first["count"] == 1
        assert first["sessionId"] == "s1"
        assert "\x1b" not in first["title"]
        await web.remember("s2", asked("q2"), settled=False)
        live["s2"] = waits("s2", "q2")
        _, both = await service.until(2)
        assert (both["count"], both["isNews"]) == (2, True)
        del live["s1"]
        *_, one = await service.until(3)
        assert (one["count"], one["isNews"], one["sessionId"]) == (1, False, "s2")
        live.clear()
        *_, none = await service.until(4)
        assert none == ANSWERED
        path = tmp_path / "journal.db-state" / "push.json"
        assert path.stat().st_mode & 0o777 == 0o600


async def test_prompts_that_are_held_are_told_once_and_withdrawn_when_they_go_on(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path) as (web, service, notices):
        there = LiveSession("by a person who is there", 1)
        live[there.session_id] = (there, Process(1, "scripted", [there]))
        for session, why in (("s1", "failed"), ("s2", "person"), (there.session_id, "cancelled")):
            await web.remember(session, turn("Go"), title=session)
            await hold(web, session, why)
        (told,) = await service.until(1)
        words = "1 queued prompt, paused: the last turn failed"
        assert (told["title"], told["body"], told["sessionId"]) == ("s1", words, "s1")
        for _ in range(5):  # nothing more is told, however often it is looked at
            await notices._check()
        live.clear()
        _, both = await service.until(2)
        assert (both["count"], both["isNews"]) == (2, True)
        assert both["title"] == "2 things are waiting for you"
        assert both["body"].endswith("1 queued prompt, paused: stopped")
        for session in ("s1", there.session_id):
            await change_queue(web.journal, session, QueueChange("go"))
        async with asyncio.timeout(DEADLINE):
            while service.came[-1][1] != ANSWERED:
                service.changed.clear()
                await service.changed.wait()


async def hold(web: Site, session: str, why: str) -> None:
    """Have a prompt wait in a session, and be held."""
    prompt = Raw(b'[{"type":"text","text":"next"}]')
    await change_queue(web.journal, session, QueueChange("add", session, prompt))
    await change_queue(web.journal, session, QueueChange("hold", why=why))


async def test_who_is_there_is_not_told_before_they_have_gone_and_a_window_alone_is_nobody(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with notified(tmp_path) as (web, service, notices):
        await web.remember("s1", asked("q1"), settled=False)
        watcher = await web.new_token("watch")
        answerer = await web.new_token(*SCOPES)
        guest = await web.new_token(*SCOPES, session_id="s1")
        for token in (watcher, guest):  # cannot answer, or sees one session: not present
            assert (await web.post("/notices/attended", token, secondsAgo=0)).status == 200
        assert notices._attended == {}
        assert (await web.post("/notices/attended", answerer, secondsAgo=0)).status == 200
        live["s1"] = waits("s1", "q1")
        looked = 0
        while looked < 5:  # it is looked at, and nobody is told
            looked += 1
            await notices._check()
        assert service.came == []
        monkeypatch.setattr(bounds, "ATTENDED_SECONDS", 0.0)
        await service.until(1)


async def test_what_stirs_here_is_told_when_it_has_been_held_and_no_look_is_waited_for(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "NOTICE_CHECK_SECONDS", 3600.0)
    monkeypatch.setattr(bounds, "NOTICE_HOLD_SECONDS", 0.01)
    async with notified(tmp_path) as (web, service, _):
        await web.remember("s1", asked("q1"), settled=False)
        live["s1"] = waits("s1", "q1")
        web.activity.stir()
        (told,) = await service.until(1)
        assert told["sessionId"] == "s1"


async def test_a_device_is_looked_at_for_a_minute_behind_its_last_input_or_until_it_says_otherwise(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path) as (web, service, notices):
        desk, phone = await web.new_token(*SCOPES), await web.new_token(*SCOPES)
        attended = partial(web.post, "/notices/attended")
        for number, over in enumerate(("one device leaves", "the other was left a minute ago")):
            assert (await attended(desk, secondsAgo=0.5)).status == 200
            assert (await attended(phone, secondsAgo=0)).status == 200
            await web.remember(f"s{number}", asked(f"q{number}"), settled=False)
            live[f"s{number}"] = waits(f"s{number}", f"q{number}")
            gone = await web.get("/notices/attended", phone, method="DELETE")
            assert gone.status == 200
            await notices._check()
            assert len(service.came) == number, over
            if number:
                assert (await attended(desk, secondsAgo=60.0)).status == 200
            else:
                await web.get("/notices/attended", desk, method="DELETE")
            await service.until(number + 1)
        for ago in (-1, "x", None):
            assert (await attended(desk, secondsAgo=ago)).status == 400


async def test_what_is_answered_is_withdrawn_whoever_is_there_and_the_rest_told_when_they_go(
    tmp_path: Path, live: Live
) -> None:
    async with notified(tmp_path) as (web, service, _):
        for number in (1, 2):
            await web.remember(f"s{number}", asked(f"q{number}"), settled=False)
        live["s1"] = waits("s1", "q1")
        await service.until(1)
        token = await web.new_token(*SCOPES)
        assert (await web.post("/notices/attended", token, secondsAgo=0)).status == 200
        live["s2"] = waits("s2", "q2")
        del live["s1"]
        *_, last = await service.until(2)
        assert last == ANSWERED
        await web.get("/notices/attended", token, method="DELETE")
        *_, last = await service.until(3)
        assert (last["count"], last["sessionId"]) == (1, "s2")


async def test_a_push_service_that_hangs_keeps_back_no_notice_of_another(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path) as (web, service, _):
        await web.remember("s1", asked("q1"), settled=False)
        hanging = Browser("https://push.example.com/send/hangs")
        service.hanging.add(hanging.subscription.endpoint)
        assert (await web.post("/notices", **hanging.json)).status == 200
        token = await web.new_token(*SCOPES)
        assert (await web.post("/notices", token, **Browser().json)).status == 200
        live["s1"] = waits("s1", "q1")
        await service.until(1)
        live.clear()
        await service.until(2)


async def test_what_was_answered_while_no_server_ran_is_withdrawn_by_the_next_and_the_rest_stays(
    tmp_path: Path, live: Live
) -> None:
    token = ""
    async with telling(tmp_path) as (web, service, _):
        for number in (1, 2):
            await web.remember(f"s{number}", asked(f"q{number}"), settled=False)
            live[f"s{number}"] = waits(f"s{number}", f"q{number}")
        token = web.token
        assert (await web.post("/notices", **Browser().json)).status == 200
        (both,) = await service.until(1)
        assert both["count"] == 2
        # Delivered notices are noted after the answer of the push service.
        await until(lambda: KeptSubscriptions(str(tmp_path / "journal.db")).questions)
    del live["s1"]
    async with telling(tmp_path) as (web, service, _):
        (one,) = await service.until(1)
        assert (one["count"], one["sessionId"], one["isNews"]) == (1, "s2", False)
        live.clear()
        *_, none = await service.until(2)
        assert none == ANSWERED
        assert (await web.get("/notices", token)).json["isOn"] is True


async def test_the_tokens_of_all_browsers_are_read_at_once(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "NOTICE_CHECK_SECONDS", 3600.0)
    async with telling(tmp_path) as (web, _, notices):
        for _ in range(5):
            token = await web.new_token(*SCOPES)
            assert (await web.post("/notices", token, **Browser().json)).status == 200
        readings = 0
        read = web.journal.access.tokens

        async def counted(ids: Any = None) -> Any:
            nonlocal readings
            readings += 1
            return await read(ids)

        monkeypatch.setattr(web.journal.access, "tokens", counted)
        await notices._check()
        assert readings == 1


@pytest.mark.parametrize("sees", [{"session_id": "s2"}, {"tenant": "rita"}], ids=str)
async def test_a_browser_is_told_of_what_its_token_sees_until_that_is_revoked(
    tmp_path: Path, live: Live, sees: dict[str, str]
) -> None:
    async with telling(tmp_path) as (web, service, notices):
        for number in (1, 2):
            await web.remember(f"s{number}", asked(f"q{number}"), settled=False)
            live[f"s{number}"] = waits(f"s{number}", f"q{number}")
        await web.journal.access.keep_share(Share("s2", "rita"))
        text, kept = new_token("phone", ("watch",), now_ms(), **sees)  # type: ignore[arg-type]
        await web.journal.access.keep_token(kept)
        assert (await web.post("/notices", text, **Browser().json)).status == 200
        (told,) = await service.until(1)
        assert (told["count"], told["sessionId"]) == (1, "s2")
        await web.journal.access.keep_token(replace(kept, revoked_at=now_ms()))
        await until(lambda: not notices._kept.browsers)
        assert token_id(text) not in notices._kept.browsers


@pytest.mark.parametrize(
    ("scopes", "kinds", "whose", "rejects"),
    [
        (("watch", "answer"), ("allow_once", "reject_once"), None, True),
        (("watch",), ("allow_once", "reject_once"), None, False),
        (("watch", "answer"), ("allow_once", "reject_always"), None, False),
        (("watch", "answer"), ("allow_once",), None, False),
        (
            ("watch", "answer"),
            ("allow_once", "reject_once"),
            "rita",
            False,
        ),  # a guest that looks on
    ],
)
async def test_the_notice_of_a_question_can_reject_it_where_its_browser_may(
    tmp_path: Path,
    live: Live,
    scopes: tuple[Scope, ...],
    kinds: Sequence[str],
    whose: str | None,
    rejects: bool,
) -> None:
    offered = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
    params = json.dumps({"toolCall": {"toolCallId": "t", "title": "T"}, "options": offered})
    async with telling(tmp_path) as (web, service, _):
        for number in (1, 2):
            await web.remember(
                f"s{number}", asked(f"q{number}", params=params.encode()), settled=False
            )
        await web.journal.access.keep_share(Share("s1", "rita"))
        text = await web.new_token(*scopes, tenant=whose)
        assert (await web.post("/notices", text, **Browser().json)).status == 200
        live["s1"] = waits("s1", "q1")
        (told,) = await service.until(1)
        assert told.get("reject") == ("q1" if rejects else None)
        if whose is None:
            live["s2"] = waits("s2", "q2")  # of several it would not be said which
            (_, told) = await service.until(2)
            assert "reject" not in told


async def test_a_browser_whose_access_seems_over_is_told_again_when_it_is_not(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a clock that was ahead for a while."""
    async with telling(tmp_path) as (web, service, notices):
        await web.remember("s1", asked("q1"), settled=False)
        text = await web.new_token(expires_at=now_ms() + 3_600_000)
        assert (await web.post("/notices", text, **Browser().json)).status == 200
        later = now_ms() + 7_200_000
        with monkeypatch.context() as ahead:
            ahead.setattr(type(web.journal.access), "now_ms", lambda _: later)
            live["s1"] = waits("s1", "q1")
            await notices._check()
            assert service.came == []
        await service.until(1)
        monkeypatch.setattr(type(web.journal.access), "now_ms", lambda _: later)
        monkeypatch.setattr(bounds, "NOTIFIED_BROWSERS", 1)
        other = await web.new_token(*SCOPES)
        assert (await web.post("/notices", other, **Browser().json)).status == 200  # in its place
        assert [*notices._kept.browsers] == [token_id(other)]


async def test_what_does_not_arrive_is_sent_again_and_a_browser_that_is_gone_is_forgotten(
    tmp_path: Path, live: Live
) -> None:
    async with telling(tmp_path) as (web, service, notices):
        service.status = 503
        await web.remember("s1", asked("q1"), settled=False)
        live["s1"] = waits("s1", "q1")
        assert (await web.post("/notices", **Browser().json)).status == 200
        for _ in range(2):
            service.changed.clear()
            await asyncio.wait_for(service.changed.wait(), DEADLINE)
        service.status = 201
        await service.until(1)
        service.status = 410
        del live["s1"]
        await until(lambda: not notices._kept.browsers)
        assert KeptSubscriptions(str(tmp_path / "journal.db")).browsers == {}


def test_all_servers_of_a_journal_have_one_key_whatever_their_folders_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = str(tmp_path / "journal.db")
    key = KeptSubscriptions(journal).key
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert KeptSubscriptions(journal).key == key
    at_once = [KeptSubscriptions(str(tmp_path / "new.db")) for _ in range(4)]
    assert len({kept.key for kept in at_once}) == 1


async def test_what_is_asked_of_notices_is_checked(tmp_path: Path, live: Live) -> None:
    async with telling(tmp_path) as (web, _, _):
        wrong = Browser("https://192.168.1.1/x").json
        for said in (wrong, {}, {"endpoint": ENDPOINT, "keys": {}}):
            assert (await web.post("/notices", **said)).status == 400
        assert (await web.post("/notices", x="y" * 10_000)).status == 413
        assert (await web.get("/notices", "wrong")).status == 401
        assert (await web.get("/notices", method="PUT")).status == 405
        assert (await web.get("/notices/else")).status == 404
        assert (await web.get("/notices", method="POST", body=b"{}")).status == 415
        assert (await web.get("/notices", origin="https://evil.example")).status == 403


def test_a_server_that_sends_no_notice_does_without_what_encrypts_them() -> None:
    code = "import sys, acphold.faces.cli.serve, acphold.web.server; print(*sys.modules)"
    imported = check_output([sys.executable, "-c", code], text=True, timeout=DEADLINE).split()
    assert "acphold.web.push" in imported
    assert not {"cryptography", "http_ece", "jwt"} & set(imported)


# -- a push service that accepts ----------------------------------------------------------------


NAME = "push.test"


class Accepting:
    """A push service of our own: HTTPS with its own authority, and the messages sent to it."""

    def __init__(self, folder: Path) -> None:
        self._authority = new_authority(folder, NAME)
        self.sent: list[tuple[dict[str, str], bytes]] = []
        self.port = 0
        self.head = b"HTTP/1.1 201 Created"
        self.says = b""
        self._came = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Accepting]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._authority.certificate, self._authority.key)
        server = await asyncio.start_server(self._take, "127.0.0.1", ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = [line.partition(": ") for line in head.split("\r\n")[1:-2]]
        said = {name.lower(): value for name, _, value in lines}
        body = await reader.readexactly(int(said["content-length"]))
        self.sent.append(({"request": head.split("\r\n")[0], **said}, body))
        writer.write(self.says or self.head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        self._came.set()
        if self.says:
            await reader.read()  # until the other side goes
        writer.close()

    async def send(self, order: Order) -> PushOutcome:
        """As `PushSender` does; but that this one is no service of the public network."""
        trusting = ssl.create_default_context(cafile=self._authority.ca)
        return await send(order, lambda it: it in ("127.0.0.1", "::1"), self.port, trusting)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while len(self.sent) < count:
                self._came.clear()
                await self._came.wait()


LIES: Mapping[str, tuple[bytes, int]] = {
    "leads on": (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://127.0.0.1/\r\n\r\n", 307),
    "has no end": (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", 201),
    "is no HTTP": (b"It was sent.\r\n\r\n", 0),
    "is never whole": (b"HTTP/1.1 201 Created\r\nX: ", 0),
    "asks for no number": (b"HTTP/1.1 429 No\r\nRetry-After: soon\r\n\r\n", 429),
    "asks for years": (b"HTTP/1.1 429 No\r\nRetry-After: 99999999999\r\n\r\n", 429),
}
"""Answers of a push service that lies, and what is made of them."""


async def test_a_push_service_that_lies_is_believed_nothing_but_a_status_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", at_home(socket.getaddrinfo, NAME, "other.test"))
    monkeypatch.setattr(bounds, "PUSH_SECONDS", 2.0)

    async def believed(lie: str, says: bytes, status: int) -> None:
        (folder := tmp_path / lie).mkdir()
        async with Accepting(folder).open() as service:
            service.says = says
            to = Browser(f"https://{NAME}/x").subscription
            order = Order(to, "{}", new_key(), "mailto:a@b.c")
            told = await asyncio.wait_for(service.send(order), DEADLINE)
            assert (told.status, bool(told.why)) == (status, status == 0), lie
            assert told.pause <= bounds.DONE_SECONDS
            assert len(service.sent) == 1
            # The certificate has to be that of the name.
            other = replace(order, to=Browser("https://other.test/x").subscription)
            assert "certificate" in (await service.send(other)).why
            assert len(service.sent) == 1

    await asyncio.gather(*(believed(lie, *answer) for lie, answer in LIES.items()))


def at_home(found: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Look these names up as this machine."""
    return lambda host, *rest, **more: found("127.0.0.1" if host in names else host, *rest, **more)


async def test_a_push_service_gets_signed_messages_that_its_browser_alone_can_read(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", at_home(socket.getaddrinfo, NAME))
    async with Accepting(tmp_path).open() as service, site(tmp_path, send=service.send) as web:
        await web.remember("s1", asked("q1"), settled=False, title="One")
        key = (await web.get("/notices")).json["key"]
        browser = Browser(f"https://{NAME}/send/abc")
        assert (await web.post("/notices", **browser.json)).status == 200
        live["s1"] = waits("s1", "q1")
        await service.until(1)
        live.clear()
        await service.until(2)
        read = [json.loads(browser.read(body)) for _, body in service.sent]
        assert [(each["count"], each.get("sessionId")) for each in read] == [(1, "s1"), (0, None)]
        with pytest.raises(http_ece.ECEException):
            Browser().read(service.sent[0][1])
        for said, body in service.sent:
            assert said["request"] == "POST /send/abc HTTP/1.1"
            assert said["host"] == NAME
            assert said["content-encoding"] == "aes128gcm"
            assert b"One" not in body
            assert int(said["ttl"]) > 0
            assert said["urgency"] == "high"
            scheme, _, rest = said["authorization"].partition(" ")
            parts = dict(part.strip().split("=", 1) for part in rest.split(","))
            assert scheme == "vapid"
            assert parts["k"] == key
            point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode_base64(key))
            claims = jwt.decode(parts["t"], point, algorithms=["ES256"], audience=f"https://{NAME}")
            assert now_ms() / 1000 < claims["exp"] <= now_ms() / 1000 + 24 * 3600
            assert claims["sub"] == "mailto:a@b.c"
        # The newest of a topic takes the place of one that was not delivered yet.
        assert len({said["topic"] for said, _ in service.sent}) == 1
