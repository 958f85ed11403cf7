"""The files of a project at a moment, kept in a store of our own."""
