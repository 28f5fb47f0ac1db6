"""The contract: one YAML file per environment, and the models that read it.

Everything may import this package; it imports nothing of ours and never pulumi, so that the agent, the policy pack and
the command line share exactly one reading of the file.
"""
