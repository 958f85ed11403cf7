"""A place for each test, a model to talk to, and nothing left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.interop.model_endpoint import ModelEndpoint, running
from tests.interop.place import Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Folders and processes of one test; at its end no process of it may be left."""
    place = Place(tmp_path)
    yield place
    await place.family.gone()


@pytest.fixture
async def other_place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A second place, to compare with the first."""
    place = Place(tmp_path_factory.mktemp("other"))
    yield place
    await place.family.gone()


@pytest.fixture
def model() -> Iterator[ModelEndpoint]:
    """A stand-in for the model vendors of real agents."""
    with running() as endpoint:
        yield endpoint
