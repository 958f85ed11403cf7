"""Programs that are run beside acphold: agents, clients and a proxy, mostly on official SDKs."""
