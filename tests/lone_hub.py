"""`lone_hub.py [OPTIONS] -- CMD`: an agent on stdin and stdout, with the options of `acphold wrap`.

Its hub is in this process, as that of an agent of the library is: another owner beside the daemon.
After each SIGCONT its clock is a minute ahead, as the journal's is by `tests.owners.silent`.
"""

from __future__ import annotations

import gc
import sys

from acphold.machine.late_tls import load_asyncio, load_msgspec

gc.disable()  # as every program of ours
load_asyncio()
load_msgspec()

import asyncio  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402
from contextlib import aclosing  # noqa: E402

from acp_wire.surroundings import Surroundings  # noqa: E402
from acp_wire.transports.stdio import stdio_transport  # noqa: E402
from acphold.faces.cli.alert_settings import AlertFile  # noqa: E402
from acphold.faces.cli.log import start_log  # noqa: E402
from acphold.faces.cli.settings import NamedAgent  # noqa: E402
from acphold.faces.cli.starts import remember, start_in  # noqa: E402
from acphold.faces.cli.wrap import make_service, settings_of  # noqa: E402
from acphold.journal_location import default_location  # noqa: E402
from acphold.live.server.service import serve, stop_at_signals  # noqa: E402

gc.freeze()
gc.enable()


def go_ahead(*_: object) -> None:
    """Have been stopped for a minute."""
    clock = time.clock_gettime
    time.clock_gettime = lambda which: clock(which) + 60


async def main(words: list[str]) -> None:
    """Serve until the client leaves, or a signal comes."""
    signal.signal(signal.SIGCONT, go_ahead)
    place = words.index("--")
    settings = settings_of(words[:place], NamedAgent(tuple(words[place + 1 :])))
    log_file = start_log(settings.log_level, settings.log_file)
    here = Surroundings.here()
    start = start_in(here, settings.called, settings.program, settings.given)
    with remember(start, str(settings.journal or default_location())):
        async with aclosing(AlertFile(settings.journal)) as alerts:
            service = make_service(
                settings, here, start, alerts, log_file, relay_to=(2,), at_once=True
            )
            await serve(stdio_transport(), service, stop=stop_at_signals())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
