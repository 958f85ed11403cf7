"""The terminal screen for talking to an agent, used by `chat` and `continue`."""
