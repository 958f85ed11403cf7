"""A journal made of records: bytes under keys, in the order of the keys."""
