"""Connected clients: requests of the protocol come in, calls of the hub go out."""
