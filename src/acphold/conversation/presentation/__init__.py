"""Scenes in a form for people, shared by all faces: texts, words, marks, diffs."""
