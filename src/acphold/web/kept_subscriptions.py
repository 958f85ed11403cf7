"""The browsers to notify, our signing key, and which questions each browser shows.

The last lets a restarted server withdraw its notices. All is kept in a file that only this user can
read, in the user's state folder, one for each journal: it is useless without the tokens in that
journal, whose ids it stores.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from acphold.transports.runtime_folder import state_folder
from acphold.web.push_message import Subscription, new_key

log = logging.getLogger(__name__)

LARGEST: Final = 1 << 20
"""Largest size of the file, in bytes."""

MOST: Final = 256
"""Most browsers of one journal; each takes some hundred bytes, and a message for each change."""


class _SubscriptionFile(Struct):
    key: str
    browsers: dict[str, Subscription] = {}
    told: dict[str, frozenset[str]] = {}


class KeptSubscriptions:
    """The file; see the module.

    `browsers` and `told` (ids of the questions each one shows) are by token id; a token has one
    browser. Methods that change something raise OSError if the file cannot be written.
    """

    def __init__(self, journal: str) -> None:
        name = blake2b(journal.encode(errors="surrogateescape"), digest_size=8).hexdigest()
        self._path = os.path.join(state_folder(), "push", f"{name}.json")
        self._kept = self._read()

    @property
    def key(self) -> str:
        """The key that signs messages, as PEM."""
        if self._kept is None:
            self._kept = _SubscriptionFile(new_key())
            self._write(self._kept)
        return self._kept.key

    @property
    def browsers(self) -> dict[str, Subscription]:
        """A copy of the subscriptions by token id."""
        return {} if self._kept is None else dict(self._kept.browsers)

    @property
    def told(self) -> dict[str, frozenset[str]]:
        """A copy of the shown questions by token id."""
        return {} if self._kept is None else dict(self._kept.told)

    def put(self, token: str, found: Subscription) -> None:
        """Notify the browser with this token from now on."""
        browsers = {**self.browsers, token: found}
        if len(browsers) > MOST:
            raise OSError(f"more than {MOST} browsers")
        self._change(browsers, {**self.told, token: frozenset()})

    def remove(self, token: str) -> None:
        """Stop notifying the browser with this token."""
        browsers = self.browsers
        if browsers.pop(token, None) is not None:
            self._change(browsers)

    def note(self, token: str, questions: frozenset[str]) -> None:
        """Note which questions the browser with this token shows."""
        self._change(self.browsers, {**self.told, token: questions})

    def _change(
        self,
        browsers: dict[str, Subscription],
        told: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        told = self.told if told is None else told
        shown = {token: ids for token, ids in told.items() if ids and token in browsers}
        changed = _SubscriptionFile(self.key, browsers, shown)
        self._write(changed)
        self._kept = changed

    def _read(self) -> _SubscriptionFile | None:
        try:
            with open(self._path, "rb") as file:
                return decode(file.read(LARGEST), type=_SubscriptionFile)
        except FileNotFoundError:
            return None
        except (OSError, MsgspecError, UnicodeDecodeError) as exc:
            # Browsers that knew the lost key subscribe again with the new one.
            log.warning("%s: %s; notices have to be asked for again", self._path, exc)
            return None

    def _write(self, kept: _SubscriptionFile) -> None:
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        new = f"{self._path}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(encode(kept))
            os.replace(new, self._path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
