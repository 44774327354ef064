"""Shared by all models: base class, counts, inference, guarantee of a fit."""
