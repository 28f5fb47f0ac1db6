"""Starts the provider; the engine passes its own address as the last argument."""

from __future__ import annotations

import sys

from infra.local.plugins import serving

serving.import_protocol_only()

from pulumi.runtime.proto import provider_pb2_grpc  # noqa: E402 the line above must be first

from infra.local.plugins.kubernetes.provider import KubernetesProvider  # noqa: E402


def main() -> None:
    """Serve until the engine stops this process."""
    provider = KubernetesProvider(sys.argv[-1])
    serving.serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))


if __name__ == "__main__":
    main()
