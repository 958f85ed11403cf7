"""Who a process is, by the place in which it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_wire.newest import Newest
from acphold.errors import ForbiddenError
from acphold.live.server.methods import Asked
from acphold.live.server.places import Places, allowed_places, set_allowed
from acphold.live.server.principals import LOCAL_PROCESS, Entrance, Visitor
from acphold.machine import place
from acphold.machine.place import describe_place, name_of_place, place_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells where a process is"
)

CONFINED = """
import ctypes, sys
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
print(flush=True)
sys.stdin.read()
"""
"""A process with NoNewPrivs; prctl(2)."""

COMMAND = ["unshare", "--user", sys.executable, "-c", CONFINED]


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The place of a confined process, while it runs."""
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe) as confined:
        assert confined.stdout is not None
        confined.stdout.readline()
        yield place_of(confined.pid)
        confined.kill()


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def test_only_a_process_of_the_same_place_may_do_all_that_its_user_may(
    elsewhere: str,
) -> None:
    places = Places(seen := Newest[str, str](2))
    assert await places.principal_of(place_of()) is LOCAL_PROCESS
    for where in (elsewhere, None):  # the last one hides, or has gone
        outsider = await places.principal_of(where)
        assert outsider.scopes == {"watch"}
        outsider.check(Asked.read("session/load", b'{"sessionId":"s"}'))
        for method in ("session/prompt", "session/set_mode", "_acphold/stop", "_vendor/whatever"):
            with pytest.raises(ForbiddenError, match="acphold access places allow"):
                outsider.check(Asked.read(method, b'{"sessionId":"s"}'))
    [(name, what)] = seen.items()
    assert (name, what) == (name_of_place(elsewhere), "another user namespace, NoNewPrivs")


async def test_whoever_it_vouches_for_may_not_do_more_than_it(elsewhere: str) -> None:
    principal = await Places(Newest(2)).principal_of(elsewhere)
    entrance = Entrance(None, Visitor(principal=principal))
    entrance.let_in(None, frozenset({"watch", "prompt", "answer", "manage"}))
    assert entrance.principal.scopes == {"watch"}


async def test_a_place_that_the_person_has_allowed_is_like_ours_until_that_is_taken_back(
    elsewhere: str,
) -> None:
    places = Places(Newest(2))
    name = name_of_place(elsewhere)
    set_allowed(name, allowed=True)
    assert allowed_places() == [name]
    assert await places.principal_of(elsewhere) is LOCAL_PROCESS
    assert (await places.principal_of(None)).place == "unknown"
    set_allowed(name, allowed=False)
    assert (await places.principal_of(elsewhere)).place == name


def test_a_place_that_has_ended_has_no_name(elsewhere: str) -> None:
    assert name_of_place(elsewhere).startswith("sandbox-")
    assert name_of_place(elsewhere.replace("NoNewPrivs: 1", "NoNewPrivs: 2")) == ""


def test_the_next_place_with_the_same_numbers_has_another_name(
    monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    name = name_of_place(elsewhere)
    real = place._start_of
    monkeypatch.setattr(place, "_start_of", lambda pid: real(pid) + 1)
    assert name_of_place(elsewhere) != name


def test_a_damaged_file_of_allowed_places_allows_none(tmp_path: Path) -> None:
    set_allowed("sandbox-0123456789ab", allowed=True)
    (tmp_path / "acphold" / "places.json").write_text('{"all": true}')
    assert allowed_places() == []


def test_what_differs_is_told_in_words() -> None:
    own = "mnt:[1] user:[2] 3:4 NoNewPrivs: 0 Seccomp: 0"
    other = "mnt:[5] user:[6] 7:8 NoNewPrivs: 1 Seccomp: 2"
    told = "another mount namespace, another user namespace, another root folder"
    assert describe_place(other, own) == f"{told}, NoNewPrivs, Seccomp"
