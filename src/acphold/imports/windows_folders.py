"""Folders as programs of Windows write them, and where they are in WSL.

WSL mounts the drives of Windows below the `root` of `/etc/wsl.conf`, `/mnt/` by default; Windows
sees the files of a distribution as `\\\\wsl.localhost\\NAME` or, before, `\\\\wsl$\\NAME`. Source:
https://learn.microsoft.com/windows/wsl, "Advanced settings" and "File systems".
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import PureWindowsPath
from typing import Final

CONFIGURATION: Final = "/etc/wsl.conf"
MOUNTED: Final = "/mnt/"

_DRIVE: Final = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)
_SHARE: Final = re.compile(r"[\\/]{2}wsl(?:\$|\.localhost)[\\/]([^\\/]+)(.*)", re.I | re.DOTALL)
_ROOT: Final = re.compile(r"(?ims)^\[automount\](?:(?!^\[).)*?^\s*root\s*=\s*[\"']?(/[^\n\"'#]*)")


def is_of_windows(folder: str) -> bool:
    """Return True for an absolute path of Windows."""
    return PureWindowsPath(folder).is_absolute()


@lru_cache(maxsize=1024)
def folder_here(folder: str) -> str:
    """Return the path here of a folder of Windows if it exists, else the folder as it is."""
    if found := _DRIVE.fullmatch(folder):
        path = os.path.join(_root(), found[1].lower(), found[2].replace("\\", "/"))
    elif (found := _SHARE.fullmatch(folder)) and _is_this(found[1]):
        path = found[2].replace("\\", "/") or "/"
    else:
        return folder
    return os.path.normpath(path) if os.path.isdir(path) else folder


def _is_this(distribution: str) -> bool:
    return distribution.lower() == os.environ.get("WSL_DISTRO_NAME", "").lower()


def _root() -> str:
    """Return the folder in which the drives are."""
    try:
        with open(CONFIGURATION, encoding="utf-8", errors="replace") as file:
            found = _ROOT.search(file.read(64 << 10))
    except OSError:
        found = None
    return found[1].strip() if found else MOUNTED
