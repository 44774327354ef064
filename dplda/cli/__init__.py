"""The commands of `dplda`."""
