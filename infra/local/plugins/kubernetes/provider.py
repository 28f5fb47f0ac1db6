"""The engine's calls, translated: protobuf in, manifests to `check`, `diff`, `objects` and `patches`, protobuf out.

It holds no knowledge of Kubernetes. Invariants: every failure of ours reaches the user as one line without a
traceback, and an object that is in the cluster is in the state, ready or not.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from infra.local.plugins.kubernetes import values
from infra.local.plugins.kubernetes.check import Naming, check
from infra.local.plugins.kubernetes.diff import Change, FieldChange, difference, render
from infra.local.plugins.kubernetes.errors import NotReady, ProviderError, ServerUnreachable
from infra.local.plugins.kubernetes.identity import at_id, is_patch, kind_of_token, place_of_id
from infra.local.plugins.kubernetes.objects import outputs
from infra.local.plugins.kubernetes.projection import project
from infra.local.plugins.kubernetes.session import Session, Settings
from infra.local.plugins.kubernetes.waiting import Report

# The engine expects a provider of the very version of the SDK that the program uses.
SDK_DISTRIBUTION = "pulumi-kubernetes"

Response = TypeVar("Response")
_Kind = provider_pb2.PropertyDiff.Kind
_DIFF_KINDS: dict[tuple[Change, bool], _Kind.ValueType] = {
    (Change.ADD, False): _Kind.ADD,
    (Change.ADD, True): _Kind.ADD_REPLACE,
    (Change.UPDATE, False): _Kind.UPDATE,
    (Change.UPDATE, True): _Kind.UPDATE_REPLACE,
    (Change.DELETE, False): _Kind.DELETE,
    (Change.DELETE, True): _Kind.DELETE_REPLACE,
}


def reported(
    call: Callable[[Any, Any, grpc.ServicerContext], Response],
) -> Callable[[Any, Any, grpc.ServicerContext], Response]:
    """Turn an error of ours into a gRPC status with the error's own text."""

    @functools.wraps(call)
    def reporting(self: Any, request: Any, context: grpc.ServicerContext) -> Response:
        try:
            return call(self, request, context)
        except NotReady as error:
            context.set_trailing_metadata((("grpc-status-details-bin", _init_failed(error, request)),))
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except ProviderError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        raise AssertionError("abort always raises")

    return reporting


class KubernetesProvider(provider_pb2_grpc.ResourceProviderServicer):
    """A Pulumi resource provider for one cluster."""

    def __init__(self, engine_address: str) -> None:
        self._session = Session(Settings())
        self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine_address))

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        """Ask for plain values: the engine itself marks outputs whose inputs were secret."""
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=False)

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Say which version this provider stands in for."""
        return plugin_pb2.PluginInfo(version=importlib.metadata.version(SDK_DISTRIBUTION))

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Accept the provider's arguments as they are; they are read when a cluster is first needed."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Let a changed argument change the provider in place: it may be a new path to the same cluster."""
        changed = values.plain(request.old_inputs) != values.plain(request.news)
        kinds = provider_pb2.DiffResponse
        return kinds(changes=kinds.DIFF_SOME if changed else kinds.DIFF_NONE)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Take the provider's arguments."""
        self._session = Session(Settings.of(values.plain(request.args)))
        return provider_pb2.ConfigureResponse(supportsPreview=True, acceptSecrets=False)

    @reported
    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Complete the inputs."""
        options = request.autonaming
        naming = Naming(
            resource_name=request.name,
            seed=request.randomSeed,
            proposed=options.proposed_name or None,
            forbidden=options.mode == provider_pb2.CheckRequest.AutonamingOptions.DISABLE,
        )
        session = self._session
        old, new = values.plain(request.olds), values.plain(request.news)
        checked = check(request.type, old, new, naming, session.discovery, session.default_namespace)
        failures = [provider_pb2.CheckFailure(property=each.path, reason=each.reason) for each in checked.failures]
        return provider_pb2.CheckResponse(inputs=values.struct(checked.inputs), failures=failures)

    @reported
    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Compare the inputs in the state with the program's."""
        old, new = values.plain(request.old_inputs), values.plain(request.news)
        found = difference(old, new, place_of_id(request.id)[0])
        kinds = provider_pb2.DiffResponse
        return kinds(
            changes=kinds.DIFF_SOME if found.fields else kinds.DIFF_NONE,
            diffs=sorted({str(field.path[0]) for field in found.fields}),
            replaces=[render(field.path) for field in found.fields if field.replaces],
            deleteBeforeReplace=found.delete_first,
            detailedDiff={render(field.path): _property_diff(field) for field in found.fields},
            hasDetailedDiff=True,
        )

    @reported
    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Make the object, or foretell it."""
        manifest, session = values.plain(request.properties), self._session
        if is_patch(request.type, manifest):
            live = session.patches.write(request.urn, manifest, preview=request.preview)
        elif request.preview:
            live = session.objects.preview_create(request.urn, manifest)
        else:
            live = session.objects.create(request.urn, manifest, self._reporter(request.urn))
        identity = "" if request.preview else session.objects.locate(manifest)[0].resource_id
        return provider_pb2.CreateResponse(id=identity, properties=values.struct(outputs(live)))

    @reported
    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Change the object, or foretell it."""
        session = self._session
        manifest = values.plain(request.news)
        if not request.preview:
            manifest = at_id(manifest, request.id)
        if is_patch(request.type, manifest):
            live = session.patches.write(request.urn, manifest, preview=request.preview)
        elif request.preview:
            live = session.objects.preview_update(request.urn, manifest)
        else:
            live = session.objects.update(request.urn, manifest, self._reporter(request.urn))
        return provider_pb2.UpdateResponse(properties=values.struct(outputs(live)))

    @reported
    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Delete the object, or release the patch's fields."""
        manifest = at_id(values.plain(request.old_inputs or request.properties), request.id)
        session = self._session
        try:
            if is_patch(request.type, manifest):
                session.patches.release(request.urn, manifest)
            else:
                session.objects.delete(manifest, self._reporter(request.urn))
        except ServerUnreachable:
            if not session.settings.delete_unreachable:
                raise
        return empty_pb2.Empty()

    @reported
    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """The object as it is, in full and as the program's inputs would show it."""
        inputs = values.plain(request.inputs)
        api_version, kind = kind_of_token(request.type)
        namespace, name = place_of_id(request.id)
        live = self._session.objects.read(
            str(inputs.get("apiVersion") or api_version), str(inputs.get("kind") or kind), namespace, name
        )
        if live is None:
            return provider_pb2.ReadResponse()
        seen = outputs(live)
        return provider_pb2.ReadResponse(
            id=request.id,
            properties=values.struct(seen),
            inputs=values.struct(project(inputs, seen) if inputs else seen),
        )

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """End every wait."""
        self._session.cancel()
        return empty_pb2.Empty()

    def _reporter(self, urn: str) -> Report:
        """A function that shows one line beside the resource while it is being worked on."""

        def report(line: str) -> None:
            message = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=line, urn=urn, ephemeral=True)
            with contextlib.suppress(grpc.RpcError):  # an engine that is shutting down need not hear it
                self._engine.Log(message)

        return report


def _property_diff(field: FieldChange) -> provider_pb2.PropertyDiff:
    return provider_pb2.PropertyDiff(kind=_DIFF_KINDS[field.change, field.replaces], inputDiff=True)


def _init_failed(error: NotReady, request: Any) -> bytes:
    """The protocol's way to say "it exists, keep it, but it is not ready": the next `up` then updates it."""
    manifest: Mapping[str, Any] = values.plain(getattr(request, "properties", None) or request.news)
    metadata = error.live["metadata"]
    namespace = metadata.get("namespace")
    detail = provider_pb2.ErrorResourceInitFailed(
        id=f"{namespace}/{metadata['name']}" if namespace else metadata["name"],
        properties=values.struct(outputs(error.live)),
        reasons=[str(error)],
        inputs=values.struct(manifest),
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[packed])
    return status.SerializeToString()
