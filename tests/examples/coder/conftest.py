"""Fixtures shared by the tests of the coding agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.interop.model_endpoint import ModelEndpoint, running
from tests.watched_processes import command_lines


@pytest.fixture
def model() -> Iterator[ModelEndpoint]:
    """A stand-in for the service of a vendor."""
    with running() as endpoint:
        yield endpoint


def finders(folder: Path) -> list[int]:
    """The processes that look for files in `folder`."""
    return [
        pid
        for pid, words in command_lines().items()
        if "finder.py" in str(words) and _folder_of(pid) == str(folder)
    ]


def _folder_of(pid: int) -> str | None:
    with suppress(psutil.NoSuchProcess):  # it has ended
        return psutil.Process(pid).cwd()
    return None
