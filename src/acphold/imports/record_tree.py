"""Records that name their parents, as Claude Code and Qwen Code write them: a tree.

A conversation forks when the person goes back to an earlier prompt. Only the branch that ends last
is told. A record belongs to an abandoned branch when the way up from it passes a prompt that is not
on the way up from the last end. The results of parallel calls are siblings too, but no branches.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from msgspec.structs import replace

from acphold.imports.sources import Source


class RecordTree:
    """The records of a file by number, in the order of the file; small enough for millions."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._parents = array("q")
        self._prompts = bytearray()
        self._end = -1

    def add(self, record_id: str, parent_id: str | None, *, typed: bool) -> None:
        """The next record; `typed` when it is what a person wrote. It is the live end for now."""
        number = len(self._parents)
        self._parents.append(self._number(parent_id) if parent_id else -1)
        self._prompts.append(typed)
        self._numbers[hash(record_id)] = number
        self._end = number

    def live_at(self, record_id: str) -> None:
        """This record, if it is known, is the live end."""
        number = self._number(record_id)
        self._end = self._end if number < 0 else number

    def _number(self, record_id: str) -> int:
        return self._numbers.get(hash(record_id), -1)

    def kept(self, end: int | None = None) -> bytearray:
        """For each record whether it is told, with the live end at the record numbered `end`."""
        end = self._end if end is None else end
        live = bytearray(len(self._parents))
        root = -1
        while 0 <= end < len(live) and not live[end]:  # a record may be its own ancestor
            live[end] = 1
            root, end = end, self._parents[end]
        kept = bytearray(len(self._parents))
        for number, parent in enumerate(self._parents):
            if live[number]:
                kept[number] = 1
            elif parent < 0:
                kept[number] = not (self._prompts[number] and root >= 0 and self._prompts[root])
            else:
                kept[number] = kept[parent] and not self._prompts[number]
        return kept

    def abandoned(self, source: Source) -> Iterator[Source]:
        """The branches of `source` that are not told, as conversations of their own."""
        for end in self.abandoned_ends():
            yield replace(source, session_id=f"{source.session_id}~{end}", item=str(end))

    def abandoned_ends(self) -> list[int]:
        """The last record of each branch that is not told, oldest first."""
        kept = self.kept()
        last: dict[int, int] = {}
        branch = array("q", bytes(8 * len(kept)))
        for number, parent in enumerate(self._parents):
            if kept[number]:
                continue
            inside = parent >= 0 and not kept[parent]
            if inside and self._prompts[number] and self._was_answered(parent, number):
                inside = False
            branch[number] = branch[parent] if inside else number
            last[branch[number]] = number
        return sorted(last.values())

    def _was_answered(self, parent: int, child: int) -> bool:
        """Whether another record followed `parent` before `child` did: a fork inside a branch."""
        return parent + 1 < child and parent in self._parents[parent + 1 : child]
