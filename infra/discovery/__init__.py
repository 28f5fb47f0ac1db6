"""Turns what a cluster holds, and what a person says, into the first stack file.

`reader` reads the cluster; everything else is pure: objects → findings → draft → text. It changes nothing in a cluster
and writes no file.
"""
