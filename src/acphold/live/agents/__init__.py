"""Agents, as the hub sees them: the interface, and a wrapped program."""
