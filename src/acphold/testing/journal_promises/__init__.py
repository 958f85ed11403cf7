"""What every journal promises: see `suite`."""
