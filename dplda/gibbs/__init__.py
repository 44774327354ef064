"""Gibbs sampling under a fixed table: the baseline, and the parts it shares."""
