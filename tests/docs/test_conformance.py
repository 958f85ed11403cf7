"""The results of the checker that stand in its documents."""

from __future__ import annotations

import re

from tests.distributions import FOLDERS
from tests.interop.far_away import table

CONFORMANCE = (FOLDERS["acp_check"] / "docs" / "conformance.md").read_text(encoding="utf-8")


def test_the_table_of_programs_far_away_is_what_the_tests_hold_to_be_so() -> None:
    [found] = re.findall(r"<!-- table: far away -->\n(.*?)<!-- end of table -->", CONFORMANCE, re.S)
    assert found == table()
