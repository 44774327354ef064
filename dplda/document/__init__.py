"""Sums over documents: one document, or one person, is protected."""
