"""The promises of every journal: see `suite`."""
