"""What answers prompts, as the hub sees it: the interface, and a wrapped program."""

from acphold.agents.interface import Agent, Listener

__all__ = ["Agent", "Listener"]
