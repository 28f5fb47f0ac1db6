"""What a stack file amounts to, worked out from the file alone: objects, money, differences, files for GitOps.

No cluster, no engine, no network: what is there already, and what would change in it, only `pulumi preview` knows.
"""
