"""What evictions cost on the nodes of a recorded spot trace, on fake time, under several ways of dealing with them.

It starts nothing and talks to no cluster. Jobs and nodes are simulated; the steps of our own way come from
`runtime.eviction.sequence.plan`, the code that runs in the agent.
"""
