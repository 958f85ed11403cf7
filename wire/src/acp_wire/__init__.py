"""The Agent Client Protocol without sessions: its types, JSON-RPC, transports and programs."""
