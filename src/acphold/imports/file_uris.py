"""URIs of files, as editors made of VS Code keep them: a string, or its parts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from acphold.imports.missed import Missed
from acphold.imports.records import SMALL_BYTES, document
from acphold.imports.values import text


def path_of(uri: object) -> str:
    """The path that a URI names; empty for what is no file here."""
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
    """The folder that an editor keeps things for in this one: `workspaceStorage/*`."""
    path = storage / "workspace.json"
    told = document(path, Missed(), SMALL_BYTES) if path.exists() else {}
    return path_of(text(told, "folder"))
