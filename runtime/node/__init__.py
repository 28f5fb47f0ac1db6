"""The node agent: it reads, on a node itself, that the node will go, and says so on its Node object.

It decides nothing and asks nobody else: the agent does (runtime.eviction). It runs on every GPU and spot node, so it
needs nothing but the standard library, and little memory.
"""
