"""How acp-conversation is built: on two others, of the folders beside it or of the same release."""

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
        beside, version = Path(self.root).parent, metadata["version"]
        is_pinned = os.environ.get("ACPHOLD_PINS") or not (beside / "wire").is_dir()
        siblings = [
            f"acp-{name}=={version}" if is_pinned else f"acp-{name} @ {(beside / name).as_uri()}"
            for name in ("wire", "safety")
        ]
        metadata["dependencies"] = [*siblings, *self.config["dependencies"]]
