"""A service: one agent for many people, each with conversations that nobody else sees.

    pip install 'acphold[serve]' starlette
    SERVICE_KEYS="secret-of-ann:ann secret-of-bob:bob" python examples/service.py --port 8700

Whoever has a key talks to it with any client of ACP's remote transport, at ws://HOST/agents/acp or
http://HOST/agents/acp and with `Authorization: Bearer KEY`; in Python it is
`acphold.connect("http://127.0.0.1:8700/agents/acp", token="secret-of-ann")`. One hub and one
journal serve all of them. Off this machine, put it behind a proxy that speaks TLS.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from secrets import compare_digest
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import acphold

agent = acphold.Agent("speller", version="1.0", title="Speller")


@agent.prompt
async def spell(turn: acphold.Turn) -> None:
    """Say the prompt letter by letter, as a model's answer comes in pieces."""
    for letter in turn.text:
        await turn.say(letter)
    turn.session.store["letters"] = turn.session.store.get("letters", 0) + len(turn.text)


@agent.command("letters", "How many letters were spelled in this conversation")
async def letters(turn: acphold.Turn, words: str) -> None:
    await turn.say(str(turn.session.store.get("letters", 0)))


async def who(scope: Mapping[str, Any]) -> acphold.Principal | None:
    """Whose key came with a request; None for nobody's. Their sessions are for them alone."""
    given = HTTPConnection(dict(scope)).headers.get("authorization", "").removeprefix("Bearer ")
    for known in os.environ.get("SERVICE_KEYS", "").split():
        key, _, name = known.partition(":")
        if name and compare_digest(given.encode(), key.encode()):
            return acphold.Principal(name=name, tenant=name)
    return None


async def health(request: Request) -> JSONResponse:
    """For whoever watches the service."""
    return JSONResponse({"agent": agent.name, "status": "ok"})


def application(journal: str) -> Starlette:
    """The application, which keeps what is said in the journal of this path."""
    server = agent.server(journal=journal, share=False)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with server:
            yield

    routes = [Route("/health", health), Mount("/agents", server.asgi(who))]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    parser = ArgumentParser(prog="service", description="A service of one agent for many people.")
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--journal", default="service.db", help="the file with all conversations")
    asked = parser.parse_args()
    uvicorn.run(application(asked.journal), port=asked.port, log_level="warning")
