"""URIs of files, as VS Code and its forks keep them: a string, or its parts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from acphold.imports.missed import Missed
from acphold.imports.records import SMALL_BYTES, document
from acphold.imports.values import text


def path_of(uri: object) -> str:
    """Return the path of a URI; empty if it is no local file."""
    if isinstance(uri, dict):
        if external := text(uri, "external"):
            return path_of(external)
        is_file = text(uri, "scheme") in ("", "file")
        return (text(uri, "fsPath") or text(uri, "path")) if is_file else ""
    if not isinstance(uri, str):
        return ""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    return unquote(parts.path) if parts.scheme == "file" else ""


def opened_folder(storage: Path) -> str:
    """Return the folder that a `workspaceStorage/*` folder belongs to."""
    path = storage / "workspace.json"
    told = document(path, Missed(), SMALL_BYTES) if path.exists() else {}
    return path_of(text(told, "folder"))
