"""Programs that are run beside holdfast: agents, clients and a proxy, mostly on official SDKs."""
