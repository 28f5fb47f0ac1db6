"""Whom a node agent asks: by its Node, else by what answers at the places where metadata services are.

Used with `--provider auto` only; what is deployed with the fleet says the provider itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runtime.eviction.notice import Notice
from runtime.eviction.sources import Source, SourceDown
from runtime.node.kube import Raw
from runtime.node.settings import Settings
from stacks.labels import LOCATION_LABEL

PROBE_SECONDS: Final = 1.0

_BY_PROVIDER_ID: Final = {"aws": "aws", "gce": "gcp", "azure": "azure"}


def provider_of(raw_node: Raw) -> str:
    """The provider by spec.providerID, which the cloud's controller sets, or by our label; `none` elsewhere."""
    scheme = str((raw_node.get("spec") or {}).get("providerID") or "").partition(":")[0]
    location = str(((raw_node.get("metadata") or {}).get("labels") or {}).get(LOCATION_LABEL) or "")
    return _BY_PROVIDER_ID.get(scheme) or (location if location in _BY_PROVIDER_ID.values() else "none")


def probe(metadata_url: str | None) -> str | None:
    """The provider whose metadata service answers; None when there is none."""
    from runtime.eviction.sources import azure, gcp, imds
    from runtime.eviction.sources.connection import Connection

    probes = (
        ("gcp", gcp.METADATA_URL, "GET", "/computeMetadata/v1/instance/id", {"Metadata-Flavor": "Google"}),
        ("azure", azure.METADATA_URL, "GET", "/metadata/versions", {"Metadata": "true"}),
        ("aws", imds.METADATA_URL, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}),
    )
    for provider, usual, method, path, headers in probes:
        connection = Connection(metadata_url or usual)
        try:
            response = connection.request(method, path, headers, timeout=PROBE_SECONDS)
        except SourceDown:
            continue
        finally:
            connection.close()
        if response.status == 200 and (provider != "gcp" or response.headers.get("metadata-flavor") == "Google"):
            return provider
    return None


def sources_for(provider: str, settings: Settings, known: Sequence[Notice]) -> tuple[Source, ...]:
    """The sources of a node; `known` is what its Node says already.

    Raises:
        ValueError: when a URL or path cannot be used.
    """
    url = settings.metadata_url
    found: tuple[Source, ...] = ()
    if provider == "aws":
        from runtime.eviction.sources.aws import aws_sources

        found = aws_sources(url, known=known, lead_seconds=settings.lead_seconds)
    elif provider == "gcp":
        from runtime.eviction.sources.gcp import gcp_sources

        found = gcp_sources(url, known=known, notice_seconds=settings.gcp_notice_seconds)
    elif provider == "azure":
        from runtime.eviction.sources.azure import AzureSource

        found = (AzureSource(url, known=known),)
    if settings.notices:
        from runtime.eviction.sources.file import FileSource

        found = (*found, FileSource(settings.notices, settings.node, known=known))
    return found
