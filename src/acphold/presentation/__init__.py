"""A scene as a person sees it, whatever the face: its text, its words, its marks, its diffs."""
