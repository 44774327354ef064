"""Tools without topic models: files, threads, progress, log, checks."""
