"""Burst routing: observe a snapshot, decide purely, act on the decision."""
