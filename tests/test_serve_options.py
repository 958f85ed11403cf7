"""The options of serving: one table, for whoever serves an agent."""

from __future__ import annotations

from inspect import signature

import pytest
from msgspec.structs import fields

import acphold
from acphold.cli.main import parser_of
from acphold.serve_options import AgentOptions, ServeOptions


@pytest.mark.parametrize(
    ("command", "options"), [("wrap", ServeOptions), ("run", AgentOptions)], ids=["wrap", "run"]
)
def test_a_command_takes_each_option_with_its_default(
    command: str, options: type[ServeOptions]
) -> None:
    given = {action.dest: action.default for action in parser_of(command).actions}
    assert {field.name: given[field.name] for field in fields(options)} == {
        field.name: field.default for field in fields(options)
    }


def test_the_library_takes_each_option_as_an_argument_with_its_default() -> None:
    for method in (acphold.Agent.run, acphold.Agent.serve):
        taken = {name: given.default for name, given in signature(method).parameters.items()}
        assert {
            field.name: field.default for field in fields(AgentOptions)
        }.items() <= taken.items()


def test_an_argument_that_is_no_option_is_refused() -> None:
    with pytest.raises(TypeError, match="cancel_grase"):
        acphold.Agent("a", version="1").run(cancel_grase=1.0)  # type: ignore[call-arg]
