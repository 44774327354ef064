"""Counts of words: one word of a document is protected."""
