"""Plans which MIG layouts a fleet's GPUs should have, and compares the catalogue with real cards.

It changes nothing on a GPU and nothing in a cluster: the agent does, when the stack file says so. Geometry is
`stacks.mig`'s; here it is put to use.
"""
