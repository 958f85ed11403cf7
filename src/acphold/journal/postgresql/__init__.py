"""The journal in a PostgreSQL database, which processes on several machines can use at once."""
