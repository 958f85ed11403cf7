"""Agents, as the hub sees them: the interface, and a wrapped program."""

from acphold.agents.interface import (
    Agent,
    Answered,
    Asked,
    Call,
    Event,
    Exchange,
    Listener,
    ListenerToMany,
    Notified,
    Unheard,
    Updates,
    ask,
)

__all__ = [
    "Agent",
    "Answered",
    "Asked",
    "Call",
    "Event",
    "Exchange",
    "Listener",
    "ListenerToMany",
    "Notified",
    "Unheard",
    "Updates",
    "ask",
]
