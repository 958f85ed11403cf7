"""Safety around an agent, without sessions: what it asks, what it gives away, what it changes."""
