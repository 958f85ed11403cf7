"""The walks that make a page of the list.

Each is along one index, so that rows far down the list cost no more than the first.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from acp_wire.surroundings import resolve_folder
from acphold.journal.rows import Archived, ListFilter, ListKey

SHELVES: Final[dict[Archived, tuple[bool, ...]]] = {
    "exclude": (False,),
    "include": (False, True),
    "only": (True,),
}
"""The values of `archived` in a list, each with a walk of its own."""


class ListWalk(NamedTuple):
    """A condition in SQL for some rows of a page, with its values. Sessions that were never
    prompted but are open, and those that others share with a tenant, are few, so found `by_id`."""

    condition: str
    values: tuple[Any, ...]
    by_id: bool = False


Word = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A word of a list, with the agents and the sessions that do instead: see ListFilter."""

TEXT: Final = "coalesce(title, 'None') || ' ' || cwd || ' ' || tags"
"""The text that words of a list are looked for in."""


def walks(filter: ListFilter, after: ListKey | None, has_word: str) -> Iterator[ListWalk]:
    """Yield the walks whose rows, merged, are the page after the position `after`. `has_word` is
    a condition for TEXT."""
    if filter.cwd is None:
        yield from _walks(filter, after, has_word, None)
        return
    for folder in dict.fromkeys(map(resolve_folder, (filter.cwd, *filter.beside))):
        yield from _walks(filter, after, has_word, folder)


def ways_of(word: str) -> tuple[str, ...]:
    """The ways in which TEXT may have a word: one with # may begin a tag in its JSON."""
    return (word, f'"{word[1:]}') if word.startswith("#") else (word,)


def conditions_for(words: Iterable[Word], has_word: str) -> tuple[str, list[str]]:
    """Return conditions for words of a list, in SQL, with their values."""
    conditions, found = "", list[str]()
    for word, agents, ids in words:
        any_of = ways_of(word)
        either = " OR ".join([has_word] * len(any_of))
        for column, values in (("agent", agents), ("session_id", ids)):
            if values:
                either += f" OR {column} IN ({', '.join(['%s'] * len(values))})"
        conditions += f" AND ({either})"
        found += (*any_of, *agents, *ids)
    return conditions, found


def _walks(
    filter: ListFilter, after: ListKey | None, has_word: str, folder: str | None
) -> Iterator[ListWalk]:
    further = ""  # conditions for the folder, unread and queued sessions, and the position
    further_values: list[str | int] = []
    if folder is not None:
        further += " AND folder = %s"
        further_values.append(folder)
    if filter.unread:
        further += " AND unread IS NOT NULL"
    if filter.queued:
        further += " AND queued > 0"
    if after is not None:
        further += " AND (updated_at, session_id) < (%s, %s)"
        further_values += (after.updated_at, after.session_id)
    of_words, word_values = conditions_for(filter.words, has_word)
    further += of_words
    further_values += word_values
    held = ", ".join(["%s"] * len(filter.held)) or "NULL"
    tenant = "" if filter.tenant is None else " AND tenant = %s"
    if filter.tenant:  # the partial index of tenants needs the second condition
        tenant += " AND tenant <> ''"
    tenant_values = () if filter.tenant is None else (filter.tenant,)
    for archived in SHELVES[filter.archived]:
        for agent in dict.fromkeys(filter.agents) or (None,):
            of_agent, agent_values = ("", ()) if agent is None else (" AND agent = %s", (agent,))
            listed = f"prompted = %s AND archived = %s{of_agent}{tenant}{further}"
            its = (archived, *agent_values, *tenant_values, *further_values)
            yield ListWalk(listed, (True, *its))
            if filter.include_unprompted:
                yield ListWalk(listed, (False, *its))
            elif filter.held:
                # Not `prompted = false`: SQLite would walk all that were never prompted.
                yield ListWalk(
                    f"NOT prompted AND archived = %s{of_agent}{tenant}{further}"
                    f" AND session_id IN ({held})",
                    (*its, *filter.held),
                    by_id=True,
                )
            if filter.tenant:
                yield ListWalk(
                    f"archived = %s{of_agent} AND tenant <> %s{further}"
                    f" AND (prompted OR %s OR session_id IN ({held}))"
                    " AND session_id IN (SELECT session_id FROM acphold.shares WHERE tenant = %s)",
                    (*its, filter.include_unprompted, *filter.held, filter.tenant),
                    by_id=True,
                )
