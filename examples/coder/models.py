"""The models by name: loaded once, their keys put away, what is wrong with them in plain words."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import acphold

if TYPE_CHECKING:
    from pydantic_ai.models import Model

SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD)(_|$)", re.IGNORECASE)
"""Names of variables that hold secrets; vendors' libraries read them, other programs need not."""

withdrawn: dict[str, str] = {}
"""Such variables of our environment, once they have been taken out of it."""


class Models:
    """The models an agent was given, by name.

    Loading them imports pydantic-ai and the vendors' libraries, which takes seconds: a thread does
    it. The libraries read their keys meanwhile. Then the keys leave our environment, so that no
    program we start gets them; every turn waits for that.
    """

    def __init__(self, given: Sequence[str | Model]) -> None:
        self._given = {it if isinstance(it, str) else it.model_name: it for it in given}
        self.names = list(self._given)
        self._loading: asyncio.Task[dict[str, Model | Exception]] | None = None

    def load(self) -> asyncio.Task[dict[str, Model | Exception]]:
        """Begin to load them, if that has not begun."""
        if self._loading is None:  # nobody ends it: a thread that imports cannot be stopped
            self._loading = asyncio.create_task(self._load(), name="load models")
        return self._loading

    async def get(self, name: object) -> Model:
        """The model of this name; raises AcpError, which says what is missing."""
        found = (await asyncio.shield(self.load())).get(str(name))
        if found is None:
            raise acphold.AcpError("no model: use `--model openai:gpt-5`, or set CODER_MODEL")
        if isinstance(found, Exception):
            raise acphold.AcpError(f"{name} cannot be used: {_missing(str(found))}")
        return found

    async def _load(self) -> dict[str, Model | Exception]:
        loaded = await asyncio.to_thread(_load_all, self._given)
        for name in [name for name in os.environ if SECRET.search(name)]:
            withdrawn[name] = os.environ.pop(name)
        return loaded


def _load_all(given: dict[str, str | Model]) -> dict[str, Model | Exception]:
    loaded: dict[str, Model | Exception] = {}
    for name, model in given.items():
        try:
            from pydantic_ai.models import infer_model

            import answer  # noqa: F401 # pyright: ignore[reportUnusedImport] # every turn needs it

            loaded[name] = infer_model(model)
        except Exception as error:  # each vendor's library has its own for what it misses
            loaded[name] = error
    return loaded


def _missing(said: str) -> str:
    """What pydantic-ai misses, in fewer words than its own."""
    if variables := re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", said):
        return f"set {' or '.join(variables)} in the environment of this agent"
    if install := re.search(r"`(pip install [^`]+)`", said):
        return f"the library of its vendor is missing, {install[1]}"
    return said.replace("Unknown model", "a name is vendor:model, such as openai:gpt-5; unknown")


def in_plain_words(error: Exception, model: Model) -> acphold.AcpError:
    """What the service of a model did, for the person; without the keys that it may repeat."""
    from pydantic_ai import exceptions as errors

    url = urlsplit(model.base_url or "the service")
    place = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()  # without a password
    match error:
        case errors.ModelContextWindowExceededError():
            said = "the conversation is too long for it, /clear makes room"
        case errors.ModelConnectionError():
            said = f"no answer from {place}, is the URL right and the service there? ({error})"
        case errors.ModelAPIError():
            said = f"{place} answered: {error}"
        case _:
            said = str(error)
    for name, value in withdrawn.items():
        said = said.replace(value, f"[{name}]") if len(value) > 7 else said  # no "1" is a key
    return acphold.AcpError(f"{model.model_name}: {said}")
