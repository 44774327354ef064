"""Local privacy: documents are randomized before they leave their owner; no server is
trusted.
"""
