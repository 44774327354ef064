"""Local privacy: owners randomize their documents; no server is trusted."""
