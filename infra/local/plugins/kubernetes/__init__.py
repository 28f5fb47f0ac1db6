"""A resource provider for Kubernetes objects, used where Pulumi's own `pulumi-resource-kubernetes` is absent.

It speaks to a real API server with server-side apply. It does not render charts, decode YAML or host components
(`Invoke` and `Construct` stay unimplemented): the program writes plain objects.
"""
