"""The agent: it watches, decides and acts, so that jobs wait, burst and stop at the budget as the fleet file says.

It keeps no state of its own. Killed at any line, a fresh one reaches the same end from the cluster and the ledger.
"""
