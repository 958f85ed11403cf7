"""The files of the page, as built, and its content security policy.

A wheel includes them (`hatch_build.py`); in a checkout `make page` builds them.

    GET /                      the page, with its style inline
    GET /page/NAME             its script, files loaded on demand, and its pictures
    GET /worker.js             its service worker, which has to be above all that it controls
    GET /manifest.webmanifest  makes it an application on a home screen

None of it needs a token, as it holds no personal data. Its policy allows the inline
script named by its digest, and our scripts named by their whole addresses, which browsers keep
compiled; no text becomes a script or HTML (Trusted Types), and it connects only to this server.
Sources: W3C, Content Security Policy Level 3; Trusted Types.
"""

# See docs/decisions.md, 31.

from __future__ import annotations

import gzip
import re
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from acphold.web.exchange import HttpExchange, RefusedError

BUILT: Final = Path(__file__).with_name("page") / "built"
"""The folder of the built files."""

INDEX: Final = "index.html"
DIGESTS: Final = "digests.json"

PAGE: Final = "/page/"
AT_ROOT: Final = {
    "/": INDEX,
    "/worker.js": "worker.js",
    "/manifest.webmanifest": "manifest.webmanifest",
}

ADDRESSES: Final = f"{'|'.join(map(re.escape, AT_ROOT))}|{PAGE}.*"
"""The pattern of the addresses of all of it."""

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}

POLICY: Final = (
    "default-src 'none'; script-src '{early}' {loaded}; style-src '{style}'; "
    "img-src 'self' blob:; media-src blob:; connect-src 'self'; manifest-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types acphold"
)


def is_checkout() -> bool:
    """Return True if the sources of the page are there, which no wheel has."""
    return BUILT.with_name("build.mjs").is_file()


def why_missing(folder: Path = BUILT) -> str:
    """Say why there is no page, and what to do; empty if it is there."""
    if (folder / INDEX).is_file():
        return ""
    if is_checkout():
        return "the page for browsers is not built; run `make page` in the checkout"
    return "this installation has no page for browsers; reinstall acphold"


class Digests(Struct, frozen=True):
    """Digests of the inline script and style, as a policy names them."""

    early: str
    style: str


class File(Struct, frozen=True):
    """One file, plain and compressed."""

    kind: str
    body: bytes
    packed: bytes
    tag: str


class PageFiles:
    """Serves the page; see the module. Without built files a sentence takes its place."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._missing = why_missing(folder)
        self._files: dict[str, File] = {}
        self._digests = Digests("none", "none")
        for path in sorted(folder.glob("*")):
            if path.name == DIGESTS:
                self._digests = msgspec.json.decode(path.read_bytes(), type=Digests)
            elif path.suffix in KINDS:
                body = path.read_bytes()
                self._files[path.name] = File(
                    KINDS[path.suffix],
                    body,
                    gzip.compress(body, mtime=0),
                    f'"{blake2b(body, digest_size=16).hexdigest()}"',
                )
        self.is_built = INDEX in self._files

    async def answer(self, exchange: HttpExchange) -> None:
        """Answer a request for the page; raises RefusedError."""
        exchange.require("GET", "HEAD")
        file = self._files.get(AT_ROOT.get(exchange.path) or exchange.path.removeprefix(PAGE))
        if file is None:
            if exchange.path != "/":
                raise RefusedError(404, "there is nothing at this address")
            plain = [(b"content-type", KINDS[".txt"].encode())]
            await exchange.answer(404, headers=plain, raw=f"{self._missing}\n".encode())
            return
        # A name below /page/ contains a digest, so a changed file has another name.
        is_for_good = exchange.path.startswith(PAGE) and "-" in exchange.path
        keeping = b"public, max-age=31536000, immutable" if is_for_good else b"no-cache"
        # Loaded scripts are named by address: the digests only cover inline ones.
        loaded = [name for name in self._files if name.endswith(".js") and "-" in name]
        policy = POLICY.format(
            **msgspec.structs.asdict(self._digests),
            loaded=" ".join(f"{exchange.headers['host']}{PAGE}{name}" for name in loaded),
        )
        head = [
            (b"content-type", file.kind.encode()),
            (b"cache-control", keeping),
            (b"etag", file.tag.encode()),
            (b"vary", b"Accept-Encoding"),
            (b"content-security-policy", policy.encode()),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        if exchange.has_same(file.tag):
            await exchange.answer(304, headers=head)
            return
        is_packed = "gzip" in exchange.headers.get("accept-encoding", "")
        if is_packed:
            head.append((b"content-encoding", b"gzip"))
        await exchange.answer(200, headers=head, raw=file.packed if is_packed else file.body)
