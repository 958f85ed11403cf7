"""What answers prompts: a wrapped program."""

from holdfast.agents.interface import Agent, Listener
from holdfast.agents.process import ProcessAgent

__all__ = ["Agent", "Listener", "ProcessAgent"]
