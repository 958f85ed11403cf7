"""The screen on which a person talks to an agent in a terminal, for `chat` and `attach`."""
