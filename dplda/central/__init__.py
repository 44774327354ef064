"""Central privacy: one trusted process sees the documents; the fitted model may be published."""
