"""The place where a standing answer holds: this machine, and this journal.

A journal may be copied, restored, moved, or shared by several machines. What a person allowed in
one place, nobody has allowed in another.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

from acp_wire.transports.runtime_folder import machine_id
from acphold.record.journal.journal import Journal
from acphold.record.journal.lineage import identity


async def rule_place(journal: Journal) -> str:
    """Return the place of this machine and journal; "" if it cannot be determined, and no rule
    holds."""
    machine, mark = machine_id(), await identity(journal)
    return f"{machine} {mark}" if machine and mark else ""
