"""The dict that keeps the newest entries."""

from acp_wire.newest import Newest


def test_one_more_entry_replaces_the_oldest() -> None:
    kept: Newest[str, int] = Newest(2)
    for number, name in enumerate("abc"):
        kept[name] = number
    assert [*kept.items()] == [("b", 1), ("c", 2)]


def test_an_entry_that_is_set_again_keeps_its_place() -> None:
    kept: Newest[str, int] = Newest(2)
    kept["a"] = kept["b"] = 1
    kept["a"] = 2
    assert [*kept.items()] == [("a", 2), ("b", 1)]
    kept["c"] = 3
    assert [*kept] == ["b", "c"]
