"""Small Python stand-ins for the Pulumi plugins that are distributed as binaries only.

They exist for the embedded control plane and the tests, where nothing can be downloaded. They are not a
replacement of the official plugins: `infra.local.engine` installs one only where the official one is absent.
"""
