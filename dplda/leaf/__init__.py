"""What knows nothing of topic models: files, threads, progress, log, checks."""
