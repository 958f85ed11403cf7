"""The options of serving: one table for every way to serve an agent."""

from __future__ import annotations

from inspect import signature

import pytest
from msgspec.structs import fields

import acphold
from acphold.errors import DeclarationError
from acphold.faces.cli.wrap import settings_parser
from acphold.serve_options import AgentOptions, ServeOptions


def test_the_settings_of_an_agent_have_each_option_with_its_default() -> None:
    given = {action.dest: action.default for action in settings_parser().actions}
    assert {field.name: given[field.name] for field in fields(ServeOptions)} == {
        field.name: field.default for field in fields(ServeOptions)
    }


def test_the_library_takes_each_option_as_an_argument_with_its_default() -> None:
    for method in (acphold.Agent.run, acphold.Agent.serve):
        taken = {name: given.default for name, given in signature(method).parameters.items()}
        assert {
            field.name: field.default for field in fields(AgentOptions)
        }.items() <= taken.items()


def test_an_argument_that_is_no_option_is_refused() -> None:
    with pytest.raises(DeclarationError, match="cancel_grase"):
        acphold.Agent("a", version="1").run(cancel_grase=1.0)  # type: ignore[call-arg]
