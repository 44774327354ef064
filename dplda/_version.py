"""The version, in one place: build, package and release files take it from here."""

__version__ = "0.1.0"
