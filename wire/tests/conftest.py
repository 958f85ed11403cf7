"""Their fixtures are in `tests.plugin`, which all distributions share."""

pytest_plugins = ["tests.plugin"]
