"""Write a Homebrew formula for a release: `python -m release.formula SDIST URL >acphold.rb`.

SDIST is the file of `make release`, URL is where it can be downloaded. What acphold with EXTRAS
depends on is resolved by pip as for a new install, on this platform, and listed with the sdists of
the package index (its JSON form, PEP 691). Homebrew builds those itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

INDEX = "https://pypi.org/simple"
"""The package index; ACPHOLD_RELEASE_INDEX names another one."""

EXTRAS = "mcp,serve"
"""Without `postgres`: the driver with its C library comes as a wheel alone."""

SECONDS = 60.0

FORMULA = """class Acphold < Formula
  include Language::Python::Virtualenv

  desc "Durable, listable, shareable sessions for the Agent Client Protocol"
  homepage "{homepage}"
  url "{url}"
  sha256 "{digest}"
  license "Apache-2.0"

  depends_on "rust" => :build
  depends_on "openssl@3"
  depends_on "python@3.13"

{resources}
  def install
    virtualenv_install_with_resources
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/acphold --version")
    system bin/"acphold", "demo"
  end
end
"""

RESOURCE = """  resource "{name}" do
    url "{url}"
    sha256 "{digest}"
  end
"""


def main() -> None:
    try:
        sdist, url = sys.argv[1:]
    except ValueError:
        raise SystemExit("usage: python -m release.formula SDIST URL") from None
    resources = "\n".join(_resource(name, version) for name, version in required(Path(sdist)))
    digest = sha256(Path(sdist).read_bytes()).hexdigest()
    homepage = url.partition("/releases/")[0]
    print(FORMULA.format(url=url, homepage=homepage, digest=digest, resources=resources), end="")


def required(sdist: Path) -> list[tuple[str, str]]:
    """The packages that pip would install with it: names and versions, by name."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    report = subprocess.check_output([*words, "--report", "-", f"{sdist}[{EXTRAS}]"], text=True)
    named = [(it["metadata"]["name"], it["metadata"]["version"]) for it in _of(report)]
    return sorted(it for it in named if it[0] != "acphold")


def _of(report: str) -> list[dict[str, Any]]:
    installed: list[dict[str, Any]] = json.loads(report)["install"]
    return installed


def _resource(name: str, version: str) -> str:
    """The block of one package; SystemExit if the index has no sdist of it."""
    index = os.environ.get("ACPHOLD_RELEASE_INDEX", INDEX)
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    answer = httpx2.get(f"{index}/{name.lower()}/", headers=accept, timeout=SECONDS)
    answer.raise_for_status()
    endings = (f"-{version}.tar.gz", f"-{version}.zip")
    for file in answer.json()["files"]:
        if file["filename"].endswith(endings):
            url, digest = file["url"], file["hashes"]["sha256"]
            return RESOURCE.format(name=name, url=url, digest=digest)
    raise SystemExit(f"formula: {index} has no sdist of {name} {version}")


if __name__ == "__main__":
    main()
