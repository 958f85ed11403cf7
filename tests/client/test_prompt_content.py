"""Texts, paths, bytes and blocks in a prompt."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from acp_wire.schema import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from acp_wire.schema.content import UnknownContent
from acphold.client.bounds import EMBEDDED_BYTES
from acphold.errors import CapabilityError, DeclarationError, MissingFileError
from tests.client.far_agent import ALL, FarAgent, in_session

PIXEL = b"\x89PNG\r\n"


async def sent(*content: Any, capabilities: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The blocks that an agent with these capabilities gets."""
    far = FarAgent(ALL if capabilities is None else capabilities)
    async with in_session(far) as session:
        await session.prompt(*content)
    blocks: list[dict[str, Any]] = far.params("session/prompt")["prompt"]
    return blocks


async def test_a_string_is_text_and_blocks_are_sent_as_they_are() -> None:
    block = TextContent(text="two")
    assert await sent("one", block, capabilities={}) == [
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two"},
    ]


async def test_bytes_go_by_their_type() -> None:
    image, sound, text, other = await sent(
        (PIXEL, "image/png"), (b"la", "audio/wav"), (b"hi", "text/plain"), (b"\0", "application/x")
    )
    assert image == {
        "type": "image",
        "mimeType": "image/png",
        "data": b64encode(PIXEL).decode(),
    }
    assert (sound["type"], sound["mimeType"]) == ("audio", "audio/wav")
    assert text["resource"]["text"] == "hi"
    assert text["resource"]["uri"].startswith("urn:uuid:")
    assert other["resource"]["blob"] == "AA=="


async def test_a_path_is_sent_as_the_most_that_the_agent_takes(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("remember")
    (tmp_path / "dot.png").write_bytes(PIXEL)
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe")
    (tmp_path / "big.txt").write_text("x" * (EMBEDDED_BYTES + 1))
    names = ("notes.md", "dot.png", "data.bin", "big.txt", ".")
    paths = [tmp_path / name for name in names]
    notes, dot, data, big, folder = await sent(*paths)
    assert notes["resource"]["text"] == "remember"
    assert notes["resource"]["uri"] == (tmp_path / "notes.md").as_uri()
    assert (dot["type"], dot["data"]) == ("image", b64encode(PIXEL).decode())
    assert [block["type"] for block in (data, big, folder)] == ["resource_link"] * 3
    links = await sent(*paths, capabilities={})
    assert [link["type"] for link in links] == ["resource_link"] * 5
    assert links[0]["name"] == "notes.md"
    assert links[0]["size"] == len("remember")
    assert "size" not in links[-1]  # a folder has none that says anything


async def test_a_relative_path_starts_in_the_folder_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    [link] = await sent(Path("a b.txt"), capabilities={})
    assert link["uri"] == (tmp_path / "a b.txt").as_uri()
    assert link["uri"].endswith("/a%20b.txt")


@pytest.mark.parametrize(
    ("content", "capability"),
    [
        (ImageContent(data="", mime_type="image/png"), "image"),
        (AudioContent(data="", mime_type="audio/wav"), "audio"),
        (
            EmbeddedResource(resource=TextResourceContents(text="x", uri="urn:x")),
            "embeddedContext",
        ),
        ((PIXEL, "image/png"), "image"),
        ((b"la", "audio/wav"), "audio"),
        ((b"x", "application/x"), "embeddedContext"),
    ],
)
async def test_content_that_was_not_advertised_is_refused_before_anything_is_sent(
    content: Any, capability: str
) -> None:
    far = FarAgent()
    async with in_session(far) as session:
        with pytest.raises(CapabilityError, match=f"promptCapabilities.{capability}"):
            session.prompt("look", content)
        assert not session.in_turn
        await session.prompt("without it")
    assert far.methods().count("session/prompt") == 1


async def test_what_cannot_be_sent_is_reported_at_the_call(tmp_path: Path) -> None:
    async with in_session(FarAgent(ALL)) as session:
        with pytest.raises(MissingFileError, match="the file does not exist"):
            session.prompt(tmp_path / "gone.txt")
        with pytest.raises(DeclarationError, match="must not be empty"):
            session.prompt()
        for content in (b"look", ["look"]):
            with pytest.raises(TypeError, match="a piece of a prompt is text"):
                session.prompt(content)  # type: ignore[arg-type]
        with pytest.raises(CapabilityError, match="'video'"):
            session.prompt(UnknownContent("video", b'{"type":"video"}'))
