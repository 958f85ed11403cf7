"""The changes of files and the turns that made them, by the snapshots that were kept."""
