"""Nodes that the company owns."""
