"""A provider that agrees to everything at once, so that a preview costs what Pulumi and the program cost.

It stands in for the Kubernetes provider in tests/bench/plan.py: no API server is asked, and both programs meet the same.
"""

from __future__ import annotations

import importlib.metadata

import grpc
from google.protobuf import empty_pb2

from infra.local.plugins import serving

serving.import_protocol_only()

from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc  # noqa: E402 the line above must be first


class AgreeingProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The calls of a preview of new resources, each answered with what was asked for."""

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi-kubernetes"))

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        return provider_pb2.CreateResponse(properties=request.properties)

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()


if __name__ == "__main__":
    provider = AgreeingProvider()
    serving.serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))
