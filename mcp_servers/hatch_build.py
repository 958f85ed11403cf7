"""How acp-mcp-servers is built: on acp-wire, of the folder beside it or of the same release."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Siblings(MetadataHookInterface):
    """Adds the distributions of this repository to the dependencies.

    In a checkout they are folders. A release names their version, and so does `make`, which
    installs all of them to be edited: then ACPHOLD_PINS is set.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        folder, version = Path(self.root).parent / "wire", metadata["version"]
        is_pinned = os.environ.get("ACPHOLD_PINS") or not folder.is_dir()
        wire = f"acp-wire=={version}" if is_pinned else f"acp-wire @ {folder.as_uri()}"
        metadata["dependencies"] = [wire, *self.config["dependencies"]]
