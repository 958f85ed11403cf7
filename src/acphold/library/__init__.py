"""What an author writes an agent with, and what serves it."""
