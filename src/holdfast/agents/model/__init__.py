"""A coding agent on a language model, for who has a key and no agent: `holdfast[model]`.

Begin with `coding`, then `answering`. Everything here imports pydantic-ai; nothing else does.
"""

from holdfast.agents.model.coding import coding

__all__ = ["coding"]
