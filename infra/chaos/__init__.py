"""Drills: nodes of a cluster are told that they will go, and what becomes of their jobs is measured.

It says a notice as the node agent would and watches; it asks, stops and moves no job, since that is what is tried.
"""
