"""The list of sessions: its columns, whatever their texts are."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from acphold.faces.screen.picker import end_of


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("~/shop", 14, "~/shop"),
        ("~/work/customers/shop", 14, "…/shop"),
        ("~/work/customers/shop", 16, "…/customers/shop"),
        ("~/work/shop/", 9, "…/shop"),
        ("~/work/shop-of-europe", 9, "…f-europe"),
        ("~/仕事/日本の店", 10, "…/日本の店"),
        ("~/仕事/日本の店", 9, "…日本の店"),
        ("~/仕事/日本の店", 6, "…の店"),
        ("/" * 1_000_000, 9, "…"),
        ("~/仕事", 1, "…"),
    ],
)
def test_a_long_path_loses_its_beginning_and_keeps_its_last_folder(
    path: str, width: int, shown: str
) -> None:
    assert end_of(path, width) == shown
    assert cell_len(shown) <= width
