"""From texts to counts: the private vocabulary."""
