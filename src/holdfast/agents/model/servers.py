"""The tools of a session's MCP servers, for a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets.abstract import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from holdfast.agents.model.sketches import Sketch, sketch
from holdfast.agents.model.work import PLAN, Work

if TYPE_CHECKING:
    from pydantic_ai import RunContext

    from holdfast.mcp import Tool

LONGEST_NAME = 64
"""Characters of a tool's name that every service takes."""

ANYTHING = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The server checks its arguments itself, and says better what is wrong."""
