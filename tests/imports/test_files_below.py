"""The files of an agent are found one after the other, however many there are."""

from __future__ import annotations

from pathlib import Path

from acphold.imports.sources import files_below


def written(folder: Path, *names: str) -> list[Path]:
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return paths


def test_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    paths = written(tmp_path, "b.x", "a/z.x", "a.x", "a/b/c.x", "c/a.x", "a-b/d.x")
    written(tmp_path, "a/z.y", "x/y")
    assert [*files_below(tmp_path, "**/*.x")] == sorted(paths)
    assert [*files_below(tmp_path, "*/*.x")] == sorted(paths[i] for i in (1, 4, 5))


def test_a_folder_is_not_looked_into_before_its_turn(tmp_path: Path) -> None:
    first, second = written(tmp_path, "a/1.x", "b/2.x")
    found = files_below(tmp_path, "*/*.x")
    assert next(found) == first
    (third,) = written(tmp_path, "b/3.x")
    assert [*found] == [second, third]
