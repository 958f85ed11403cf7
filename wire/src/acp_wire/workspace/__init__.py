"""The roots of a session, and files and terminals served inside them.

The modules are imported one by one: most sessions have a client that serves both.
"""
