"""Gibbs sampling under a table that stands still: the baseline, and what it shares."""
