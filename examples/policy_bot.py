"""A bot over all sessions: it allows reading, refuses deleting, and leaves the rest to people.

python policy_bot.py [JOURNAL OR DATABASE]
"""

import asyncio
import sys

import acphold

ANSWERS = {"read": True, "search": True, "delete": False}


async def main(*where: str) -> None:
    async with acphold.open(*where) as history:
        async for question in history.questions(follow=True):
            about = question.about
            if not isinstance(about, acphold.PermissionQuestion):
                continue
            answer = ANSWERS.get(about.tool_call.kind)
            if answer is None:
                continue
            try:
                was_first = await question.answer(answer)
            except acphold.AcpError as error:  # the session ended, or nobody takes the answer
                print(f"{question.title}: {error}", file=sys.stderr)
                continue
            if was_first:
                print("allowed" if answer else "refused", question.title, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
