"""Traces of jobs, their replay against a cluster of simulated nodes, and the proof of what happened there.

It decides nothing: the cluster, Kueue and the agent under test do. What is reported at the end comes from the API
server's audit log, the ledger and the objects in the cluster, never from the replay's own memory.
"""
