"""Removal of secrets and personal data from exported and imported text."""
