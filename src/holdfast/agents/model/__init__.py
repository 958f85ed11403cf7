"""A coding agent on a language model, for who has a key and no agent: `holdfast[model]`.

Begin with `coding`, then `replying` and `answering`. Nothing else imports pydantic-ai.
"""

from holdfast.agents.model.coding import coding

__all__ = ["coding"]
