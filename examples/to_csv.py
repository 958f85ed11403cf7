"""An export of one's own: each tool call of each session, as a line of CSV.

python to_csv.py [JOURNAL OR DATABASE] > calls.csv
"""

import asyncio
import csv
import sys

import acphold


async def main(*where: str) -> None:
    lines = csv.writer(sys.stdout)
    lines.writerow(["session", "agent", "when", "kind", "status", "call"])
    async with acphold.open(*where) as history:
        async for session in history.sessions(archived=True):
            if session.status == "unread":
                continue  # an import has only listed it
            state = await history.read(session)
            for item in state.timeline:
                if isinstance(item, acphold.ToolCall):
                    when = session.updated_at.isoformat()
                    call = [item.kind, item.status, item.title]
                    lines.writerow([session.id, session.agent, when, *call])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
