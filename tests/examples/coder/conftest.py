"""Fixtures shared by the tests of the coding agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.interop.model_endpoint import ModelEndpoint, running


@pytest.fixture
def model() -> Iterator[ModelEndpoint]:
    """A stand-in for the service of a vendor."""
    with running() as endpoint:
        yield endpoint


def finders(folder: Path) -> list[int]:
    """The processes that look for files in `folder`."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.info["cwd"] == str(folder) and "finder.py" in str(process.info["cmdline"])
    ]
