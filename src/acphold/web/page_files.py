"""The page in a browser: its files, as `make page` has built them, and what they may do there.

    GET /                      the page, in which its script and its style stand
    GET /page/NAME             what it loads when it needs it, and its pictures
    GET /worker.js             its service worker, which has to lie above all that it answers for
    GET /manifest.webmanifest  what makes it an application on a home screen

None of it needs a token, as nothing of anybody's is in it. Its policy lets it run the two scripts
in it whose digests are named, and those of its own that are loaded by their whole addresses; no
text becomes a script or HTML (Trusted Types), and it reaches nothing but this server. Sources: W3C,
Content Security Policy Level 3; Trusted Types.
"""

from __future__ import annotations

import gzip
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from acphold.web.exchange import Exchange
from acphold.web.gate import RefusedError

BUILT: Final = Path(__file__).with_name("page") / "built"
"""Where `make page` puts the files."""

INDEX: Final = "index.html"
DIGESTS: Final = "digests.json"

PAGE: Final = "/page/"
AT_ROOT: Final = {
    "/": INDEX,
    "/worker.js": "worker.js",
    "/manifest.webmanifest": "manifest.webmanifest",
}

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}

NOT_BUILT: Final = (
    "This acphold has no page, because it was installed from its sources without `make page`; "
    "everything else is served.\n"
)

POLICY: Final = (
    "default-src 'none'; script-src '{early}' '{script}' {loaded}; style-src '{style}'; "
    "img-src 'self' blob:; media-src blob:; connect-src 'self'; manifest-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types acphold"
)


class Digests(Struct, frozen=True):
    """Those of the scripts and of the style that stand in the page, as a policy names them."""

    script: str
    style: str
    early: str = "none"


class File(Struct, frozen=True):
    """One of them, as it is and compressed."""

    kind: str
    body: bytes
    packed: bytes
    tag: str


class PageFiles:
    """See the module. Without built files there is a sentence in the place of the page."""

    def __init__(self, folder: Path = BUILT) -> None:
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

    @staticmethod
    def has(path: str) -> bool:
        """Whether an address is one of the page's."""
        return path in AT_ROOT or path.startswith(PAGE)

    async def answer(self, exchange: Exchange) -> None:
        """Answer a request to such an address; raises RefusedError."""
        if exchange.method not in ("GET", "HEAD"):
            raise RefusedError(405, "this is only read: GET or HEAD is wanted")
        file = self._files.get(AT_ROOT.get(exchange.path) or exchange.path.removeprefix(PAGE))
        if file is None:
            if exchange.path != "/":
                raise RefusedError(404, "there is nothing at this address")
            plain = [(b"content-type", KINDS[".txt"].encode())]
            await exchange.answer(404, headers=plain, raw=NOT_BUILT.encode())
            return
        # By its name what is below /page/ is another thing as soon as it is another one.
        is_for_good = exchange.path.startswith(PAGE) and "-" in exchange.path
        keeping = b"public, max-age=31536000, immutable" if is_for_good else b"no-cache"
        head = [
            (b"content-type", file.kind.encode()),
            (b"cache-control", keeping),
            (b"etag", file.tag.encode()),
            (b"vary", b"Accept-Encoding"),
            (b"content-security-policy", self._policy(exchange.headers["host"]).encode()),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        if exchange.headers.get("if-none-match", "").removeprefix("W/") == file.tag:
            await exchange.answer(304, headers=head)
            return
        is_packed = "gzip" in exchange.headers.get("accept-encoding", "")
        if is_packed:
            head.append((b"content-encoding", b"gzip"))
        await exchange.answer(200, headers=head, raw=file.packed if is_packed else file.body)

    def _policy(self, host: str) -> str:
        """What the page may do at a host, which is one that this server goes by."""
        # A loaded script is named by its address: digests hold for what stands in the page alone.
        loaded = " ".join(f"{host}{PAGE}{name}" for name in self._files if _is_loaded(name))
        return POLICY.format(**msgspec.structs.asdict(self._digests), loaded=loaded)


def _is_loaded(name: str) -> bool:
    """Whether a file is a script that the page loads: it is named for what is in it."""
    return name.endswith(".js") and "-" in name
