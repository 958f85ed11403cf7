"""The table of update kinds."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import fields

from acp_wire.schema.updates import UPDATE_KINDS, KnownUpdate, UpdateForm

STABLE = {variant.__struct_config__.tag: variant for variant in get_args(KnownUpdate)}


def test_every_kind_that_we_have_a_type_for_stands_in_the_table() -> None:
    assert STABLE.keys() <= UPDATE_KINDS.keys()


@pytest.mark.parametrize("name", STABLE)
def test_the_table_names_members_that_the_type_has(name: str) -> None:
    kind = UPDATE_KINDS[name]
    members = {field.encode_name for field in fields(STABLE[name])}
    assert {kind.of, kind.field} - {""} <= members


def test_what_goes_on_with_a_thing_or_changes_it_says_which_one() -> None:
    for kind in UPDATE_KINDS.values():
        if kind.form in (UpdateForm.PIECE, UpdateForm.PATCH) and kind.subject == "conversation":
            assert kind.of, kind.name
