"""A bot for the sessions of an `acphold serve` elsewhere: it allows reading, and leaves the rest.

ACPHOLD_TOKEN=… python far_bot.py https://desk.example:8260
"""

import asyncio
import json
import os
import sys
from urllib.request import Request, urlopen

import acphold

LOOK_SECONDS = 1.0


async def decide(question: acphold.PermissionQuestion) -> bool:
    if question.tool_call.kind != "read":
        await asyncio.Event().wait()  # a person answers it
    print("allowed", question.tool_call.title, flush=True)
    return True


async def main(url: str, token: str) -> None:
    inbox = Request(f"{url}/inbox", headers={"Authorization": f"Bearer {token}"})

    def open_questions() -> list[dict[str, str]]:
        with urlopen(inbox) as answer:
            questions: list[dict[str, str]] = json.load(answer)["questions"]
            return questions

    joined = set[str]()
    async with acphold.connect(url, token=token, on_permission=decide) as server:
        while True:
            for each in await asyncio.to_thread(open_questions):
                if each["sessionId"] not in joined:
                    joined.add(each["sessionId"])
                    await server.resume_session(each["sessionId"], each["cwd"])
            await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ["ACPHOLD_TOKEN"]))
