"""Lines: a connection with the sessions that a client has open over it. Without I/O."""
