"""The fixtures of these tests are in `tests.plugin`, with what all distributions share."""

from pathlib import Path

import tests

SHARED = Path(__file__).parents[2] / "wire" / "tests"
tests.__path__ = [*tests.__path__, str(SHARED)]

pytest_plugins = ["tests.plugin"]
