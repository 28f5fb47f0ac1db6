"""Edits of YAML text that keep its comments and its layout."""
