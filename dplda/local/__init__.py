"""Local privacy: documents are randomized by their owner; no server is trusted."""
