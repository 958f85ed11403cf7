"""The person behind the client in memory, and their open files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acphold.errors import MissingFileError
from acphold.schema import READ_TEXT_FILE, WRITE_TEXT_FILE

if TYPE_CHECKING:
    from acphold.client import PermissionQuestion
    from acphold.client.duties import Handler
    from acphold.client.policy import AskPermission, PermissionAnswer


def decides(answers: Sequence[PermissionAnswer]) -> AskPermission:
    """Return a person who gives these answers one after the other; a string is the answer to all.

    After the last one a question stays open, as with a person who went for coffee.
    """
    if isinstance(answers, str):
        return lambda question: answers
    script = iter(answers)

    async def decide(question: PermissionQuestion) -> PermissionAnswer:
        for answer in script:
            return answer
        await asyncio.get_running_loop().create_future()
        return None

    return decide


def handlers(files: dict[str, str]) -> dict[str, Handler]:
    """Return an editor with these unsaved files, by path; others are read from the disk."""

    def read(params: dict[str, Any]) -> object:
        path = params["path"]
        text = files.get(path)
        if text is None:
            try:
                text = Path(path).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise MissingFileError(f"no file {path}") from None
        first = max(params.get("line") or 1, 1) - 1
        lines = text.splitlines(keepends=True)[first:]
        return {"content": "".join(lines[: params.get("limit")])}

    def write(params: dict[str, Any]) -> object:
        files[params["path"]] = params["content"]
        return {}

    return {READ_TEXT_FILE.name: read, WRITE_TEXT_FILE.name: write}
