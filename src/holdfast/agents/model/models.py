"""The models an agent was given: found by their names, loaded when they are first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import DeclarationError

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class Models:
    """Models by name, `provider:model` as pydantic-ai has it, or given ready-made.

    Loading a provider's SDK takes seconds; it happens once for each model, in a thread.
    """

    def __init__(self, given: Sequence[str | Model]) -> None:
        if not given:
            raise DeclarationError("an agent needs a model, such as openai:gpt-5")
        self._loaded: dict[str, Model] = {}
        self._loading: dict[str, asyncio.Future[Model]] = {}
        names = [model if isinstance(model, str) else self._take(model) for model in given]
        self.names = tuple(dict.fromkeys(names))

    async def get(self, name: str) -> Model:
        """The model; raises ModelError, which says what is missing."""
        if name not in self._loaded:
            loading = self._loading.get(name)
            if loading is None:
                loading = asyncio.ensure_future(asyncio.to_thread(_load, name))
                self._loading[name] = loading
            try:
                self._loaded[name] = await asyncio.shield(loading)
            except Exception as error:  # each provider's SDK has its own for what it misses
                from holdfast.agents.model.failing import unusable

                raise unusable(error, name) from None
            finally:
                if loading.done():
                    self._loading.pop(name, None)
        return self._loaded[name]

    def _take(self, model: Model) -> str:
        self._loaded[model.model_name] = model
        return model.model_name


def _load(name: str) -> Model:
    from pydantic_ai.models import infer_model

    return infer_model(name)
