"""`acphold pair`: a one-time link that pairs one more device with a running `acphold serve`."""

from __future__ import annotations

import json as json_text

from acphold.errors import ConnectionLostError, RemoteRefusalError, SettingsError
from acphold.extras import require
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import Exit, Parser
from acphold.faces.cli.token import add_grant
from acphold.record.journal.access import Scope


def parser() -> Parser:
    """The arguments of `pair`."""
    made = Parser(pair, "pair")
    add_grant(made)
    made.add_flag("--json", "JSON, one line with `url` and `pair`")
    made.add_journal()
    return made


async def pair(
    *, user: str | None, scopes: list[Scope] | None, json: bool, journal: str | None
) -> int:
    """Pair a phone or a browser with `acphold serve`.

    Prints a one-time link and its QR code, valid for ten minutes, for one device. `acphold serve`
    has to be running here, on this journal; it prints such a link for the first device itself.
    `acphold token list` shows the paired devices, and `acphold token revoke` ends their access.
    """
    require("serve", "pair")
    import httpx2  # late: importing it takes longer than everything else here

    from acp_wire.transports.known_servers import token_for
    from acp_wire.transports.route import said_in
    from acphold.faces.cli.serve import print_code
    from acphold.web.running_servers import running

    found = running(journal)
    if not found:
        raise SettingsError(
            "no `acphold serve` is running here for this journal; start one: it prints a link"
        )
    server = found[-1]
    headers = {
        "Authorization": f"Bearer {token_for(server.known_as) or ''}",
        "Content-Type": "application/json",
    }
    request = json_text.dumps({"scopes": scopes or [], "user": user})
    # Its certificate is for its public name, and only it has this port: see `running_servers`.
    try:
        async with httpx2.AsyncClient(
            timeout=bounds.SERVER_SECONDS, verify=False, trust_env=False
        ) as http:
            answer = await http.post(f"{server.here}/codes", content=request, headers=headers)
    except httpx2.HTTPError as exc:
        raise ConnectionLostError(f"cannot reach {server.here}: {exc}") from None
    if answer.status_code != 200:
        reason = said_in(answer.headers, answer.content)
        raise RemoteRefusalError(server.here, answer.status_code, "it returned no code", reason)
    code = str(answer.json()["code"])
    if json:
        print(json_text.dumps({"url": server.url, "pair": code}))
    else:
        print_code(server.url, code)
    return Exit.OK
