"""Agents, as the hub sees them: the interface, and a wrapped program."""

from acphold.live.agents.interface import (
    AgentCall,
    AgentExchange,
    AgentListener,
    AgentRequest,
    Event,
    HubAgent,
    ListenerToMany,
    Notified,
    Unheard,
    Updates,
    ask,
)

__all__ = [
    "AgentCall",
    "AgentExchange",
    "AgentListener",
    "AgentRequest",
    "Event",
    "HubAgent",
    "ListenerToMany",
    "Notified",
    "Unheard",
    "Updates",
    "ask",
]
