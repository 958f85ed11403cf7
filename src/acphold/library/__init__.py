"""The library to write an agent with, and the code that serves it."""
