"""From the notice that a node will go to jobs that lost almost nothing.

`notice` and `sources` say what is known of nodes, and need nothing but the standard library, because the node agent
runs them on every node; everything else here is the agent's.
"""
