"""Objects inside a cluster, the same on every platform."""
