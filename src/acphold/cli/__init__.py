"""The command line: one small module for each command, imported when it is called."""
