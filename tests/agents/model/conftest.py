"""What the tests of the model-backed agent share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.model_endpoint import ModelEndpoint, running


@pytest.fixture
def model() -> Iterator[ModelEndpoint]:
    """A stand-in for the service of a model."""
    with running() as endpoint:
        yield endpoint
