"""Agents with one fault each, by the id of the rule that they break."""

from __future__ import annotations

from collections.abc import Callable

from acphold.conformance.exemplar import Exemplar
from acphold.conformance.exemplar_turns import Script

Broken = type[Exemplar]


class Faults(dict[str, Broken]):
    """Agents with one fault each, by the id of the rule that they break.

    Where one rule is broken in several ways, `:` and a word stand behind the id.
    """

    def scripted(self, name: str) -> Callable[[type[Script]], type[Script]]:
        """The decorated script is that of an agent that breaks this rule."""

        def declare(script: type[Script]) -> type[Script]:
            self[name] = type(script.__name__, (Exemplar,), {"script_type": script})
            return script

        return declare

    def breaks(self, name: str) -> Callable[[Broken], Broken]:
        """The decorated class breaks this rule."""

        def declare(agent: Broken) -> Broken:
            self[name] = agent
            return agent

        return declare
