"""What is read of fitted models: words, pictures, scores and counts of topics."""
