"""The files of the page, as they are served: without a token, with a policy, once."""

from __future__ import annotations

import gzip
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from acphold.web.page_files import PageFiles, why_missing
from tests.web.in_process import ORIGIN, site

HTML = "<!DOCTYPE html><script type='module'>0</script>"


def built(folder: Path) -> PageFiles:
    """Files as a build leaves them."""
    folder.mkdir()
    (folder / "index.html").write_text(HTML)
    (folder / "worker.js").write_text("self")
    (folder / "colours-0123.js").write_text("export {}")
    (folder / "licences.txt").write_text("MIT")
    digests = {name: f"sha256-of-{name}" for name in ("early", "style")}
    (folder / "digests.json").write_bytes(msgspec.json.encode(digests))
    return PageFiles(folder)


async def test_without_a_build_a_sentence_says_so_and_everything_else_is_served(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, page=PageFiles(tmp_path / "built")) as served:
        answer = await served.get("/", token="")
        assert (answer.status, "`make page`" in answer.body.decode()) == (404, True)
        assert answer.headers["content-type"].startswith("text/plain")
        assert (await served.get("/worker.js", token="")).status == 404
        assert (await served.get("/sessions")).status == 200


def test_a_folder_without_the_page_is_noticed(tmp_path: Path) -> None:
    assert "`make page`" in why_missing(tmp_path)
    assert not PageFiles(tmp_path).is_built
    assert built(tmp_path / "built").is_built
    assert why_missing(tmp_path / "built") == ""


async def test_the_page_needs_no_token_and_runs_nothing_but_its_scripts(tmp_path: Path) -> None:
    async with site(tmp_path, page=built(tmp_path / "built")) as served:
        answer = await served.get("/", token="")
        assert (answer.status, answer.body.decode()) == (200, HTML)
        policy = answer.headers["content-security-policy"]
        scripts = f"'sha256-of-early' {urlsplit(ORIGIN).netloc}/page/colours-0123.js"
        assert policy.startswith(f"default-src 'none'; script-src {scripts}; style-src ")
        assert "style-src 'sha256-of-style'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "frame-ancestors 'none'" in policy
        for path in ("/page/digests.json", "/page/../gate.py", "/page/", "/page/built"):
            assert (await served.get(path, token="")).status == 404
        assert (await served.get("/", token="", method="POST")).status == 405


async def test_what_is_known_is_not_sent_again_and_what_is_sent_is_packed(tmp_path: Path) -> None:
    async with site(tmp_path, page=built(tmp_path / "built")) as served:
        packed = await served.get("/", token="", accept_encoding="gzip, br")
        assert gzip.decompress(packed.body).decode() == HTML
        tag = packed.headers["etag"]
        assert (await served.get("/", token="", if_none_match=tag)).status == 304
        assert packed.headers["cache-control"] == "no-cache"
        colours = await served.get("/page/colours-0123.js", token="")
        assert "immutable" in colours.headers["cache-control"]
        assert (
            "immutable" not in (await served.get("/worker.js", token="")).headers["cache-control"]
        )
