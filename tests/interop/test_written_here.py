"""Agents written with the library, in front of the clients of both official SDKs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.interop.client import introduction, opening, prompt
from tests.interop.conversation import assert_same, text
from tests.interop.model_endpoint import running
from tests.interop.official_schema import violations
from tests.interop.place import Place
from tests.interop.test_official_sdks import (
    python_client,
    ts_client,
)
from tests.interop.wire import read_record, recorded

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.interop

BOTH = pytest.mark.parametrize("client", [python_client, ts_client], ids=["python", "typescript"])


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The model behind examples/coder."""
    with running() as endpoint:
        monkeypatch.setenv("CODER_MODEL", "openai-chat:stand-in")
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield


@BOTH
@pytest.mark.parametrize(
    ("example", "said"), [("echo.py", "hello there"), ("coder", "USE_TOOL:shell CMD=pwd")]
)
async def test_an_example_is_killed_and_goes_on(
    place: Place,
    tmp_path: Path,
    client: Callable[[Sequence[str]], list[str]],
    example: str,
    said: str,
) -> None:
    record = tmp_path / "lines.jsonl"
    command = recorded(record, sys.executable, str(EXAMPLES / example))
    async with place.client(client(command)) as first:
        await first.call("initialize", introduction())
        session_id: str = (await first.call("session/new", opening(place.work)))["sessionId"]
        ended = await first.call("session/prompt", prompt(session_id, said))
        assert ended["stopReason"] == "end_turn"
        await place.family.kill()
    assert text(first.updates(session_id))
    async with place.client(client(command)) as second:
        await second.call("initialize", introduction())
        listed = (await second.call("session/list", {"cwd": str(place.work)}))["sessions"]
        assert [found["sessionId"] for found in listed] == [session_id]
        await second.call("session/load", opening(place.work, session_id))
        assert_same(first.updates(session_id), second.updates(session_id))
        ended = await second.call("session/prompt", prompt(session_id, "and again"))
        assert ended["stopReason"] == "end_turn"
        await second.leave()
    await place.family.gone()
    assert first.odd == second.odd == []
    assert [wrong for run in read_record(record) for wrong in violations(run, "agent")] == []
