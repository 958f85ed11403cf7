"""Byte streams to the outside: stdio, child processes, sockets, memory. Each is an `rpc.Transport`.

The modules are imported one by one: each brings what it needs of asyncio.
"""
