"""What is read of fitted models: words, scores and counts of topics."""
