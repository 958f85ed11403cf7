"""One more device: a new code from a running server, and its validity."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import run

import httpx2
import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import now_ms
from acphold.faces.cli.command_line import Exit
from tests.web.conftest import ACPHOLD, Served, serving
from tests.web.in_process import Site

pytestmark = pytest.mark.slow


def redeemed(served: Served, code: str) -> httpx2.Response:
    return httpx2.post(f"{served.url}/pair", json={"code": code, "name": "phone"})


def test_a_server_that_runs_gives_a_code_for_one_more_device(served: Served) -> None:
    told = json.loads(served.run("access", "pair", "--scope", "watch", "--json"))
    assert told["url"] == served.url
    granted = redeemed(served, told["pair"]).json()
    assert granted["scopes"] == ["watch"]
    assert redeemed(served, told["pair"]).status_code == 403  # once
    # A device that may only watch cannot let others watch.
    asking = {"Authorization": f"Bearer {granted['token']}"}
    assert httpx2.post(f"{served.url}/codes", json={}, headers=asking).status_code == 403
    assert httpx2.post(f"{served.url}/codes", json={}).status_code == 401
    assert "acphold connect" in served.run("access", "pair")


def test_of_several_servers_that_of_the_journal_is_asked_and_none_that_has_ended(
    tmp_path: Path,
) -> None:
    def pairing(env: dict[str, str]) -> str:
        words = [*ACPHOLD, "access", "pair", "--json"]
        done = run(words, env=env, capture_output=True, text=True)
        return done.stdout or f"{done.returncode} {done.stderr}"

    with serving(tmp_path / "one") as one:
        with serving(tmp_path / "two") as two:
            assert json.loads(pairing(one.env))["url"] == one.url
            assert json.loads(pairing(two.env))["url"] == two.url
            two.process.kill()
            two.process.wait()
            assert pairing(two.env).startswith(f"{int(Exit.USAGE)} ")
            two.start_again()
        assert "no `acphold serve`" in pairing(two.env)
    assert os.listdir(f"{two.env['ACPHOLD_JOURNAL']}-state/serving") == []


async def test_who_is_paired_by_a_token_that_ends_is_let_in_no_longer_than_that(web: Site) -> None:
    ends = now_ms() + 60_000
    token = await web.new_token("watch", "manage", expires_at=ends)
    code = (await web.post("/codes", token, scopes=["watch", "manage"])).json["code"]
    granted = (await web.post("/pair", "", code=code)).json["token"]
    [kept] = [it for it in await web.journal.access.tokens() if it.is_of(granted)]
    assert kept.expires_at == ends


async def test_a_code_ends_with_the_token_that_has_asked_for_it(web: Site) -> None:
    token = await web.new_token("watch", "manage")
    code = (await web.post("/codes", token, scopes=["watch"])).json["code"]
    [kept] = [it for it in await web.journal.access.tokens() if it.is_of(token)]
    await web.journal.access.keep_token(replace(kept, revoked_at=now_ms()))
    refused = await web.post("/pair", "", code=code)
    wrong = await web.post("/pair", "", code="0000000000")
    assert (refused.status, refused.body) == (403, wrong.body)


async def test_a_device_paired_by_an_older_token_gets_what_that_has(web: Site) -> None:
    older = await web.new_token("watch", "prompt", "answer", "manage")
    code = (await web.post("/codes", older)).json["code"]
    paired = (await web.post("/pair", "", code=code)).json
    assert paired["scopes"] == ["watch", "prompt", "answer", "manage"]
    assert (await web.post("/codes", older, scopes=["rules"])).status == 403
