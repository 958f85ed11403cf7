"""Byte streams to the outside: stdio, child processes, sockets, memory. Each is an `rpc.Transport`.

Import the modules one by one: each imports only the parts of asyncio that it needs.
"""
