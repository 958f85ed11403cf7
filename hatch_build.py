"""What a wheel has beside the code: the documents, for `acphold help`, man pages of them, and the
page in a browser, where `make page` has built it."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/acphold/web/page/built"


class Documents(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # which reads them where they are written
            return
        sys.path.insert(0, self.root)
        from docs.man_pages import man_pages

        for page in sorted(Path(self.root, "docs").glob("*.md")):
            build_data["force_include"][str(page)] = f"acphold/docs/{page.name}"
        for file in sorted(Path(self.root, PAGE).glob("*")):
            build_data["force_include"][str(file)] = f"acphold/web/page/built/{file.name}"
        self._made = Path(mkdtemp())
        for name, text in man_pages(self.metadata.version).items():
            file = self._made / name
            file.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(file)] = f"share/man/man1/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            rmtree(self._made)
