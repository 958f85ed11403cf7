"""The origins of changes in files: the turns that made them, by the snapshots that were kept."""
