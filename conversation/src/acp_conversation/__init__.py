"""A conversation of ACP as values: recorded, folded, shown, and written to files."""
