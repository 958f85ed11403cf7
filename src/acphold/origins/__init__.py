"""Where changes of files come from: the turns that made them, by the snapshots that were kept."""
