"""A dashboard: what runs and what waits in all sessions, drawn anew with each change.

python dashboard.py [JOURNAL OR DATABASE]
"""

import asyncio
import sys

import acphold

LIVE = ("waiting", "running")


async def main(*where: str) -> None:
    sessions: dict[str, acphold.KeptSession] = {}
    async with acphold.open(*where) as history:
        async for session in history.sessions(follow=True):
            sessions[session.id] = session
            usage = await history.usage("day")
            counts = dict.fromkeys(LIVE, 0)
            for each in sessions.values():
                if each.status in LIVE:
                    counts[each.status] += 1
            print(f"{counts['running']} running, {counts['waiting']} waiting", end="")
            print(f", {usage.tokens or 0} tokens in {usage.sessions} sessions", flush=True)
            for each in sorted(sessions.values(), key=lambda it: it.updated_at, reverse=True):
                if each.status in LIVE:
                    print(f"  {each.status:8} {each.title or each.id}  {each.cwd}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
