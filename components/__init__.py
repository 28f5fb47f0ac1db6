"""Pulumi component resources: each turns one model of the fleet file into cloud or Kubernetes objects.

Components hold no policy of their own and do no I/O. Kubernetes objects come from pure functions of the fleet
(`components/kubernetes/*.py`, `manifests(...) -> {role: manifest}`), which the components, `gpufleet plan`,
`gpufleet render` and the golden files read alike.
"""
