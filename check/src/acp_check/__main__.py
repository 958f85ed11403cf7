"""`python -m acp_check`, the same as `acp-check`."""

from __future__ import annotations

import sys

from acp_check.command import main

sys.exit(main())
