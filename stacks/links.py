"""Links: how a cloud network and the one at home reach each other.

Pre-shared keys are never in the file: each tunnel names the Pulumi secret that holds its key.
Source of the limits: AWS Site-to-Site VPN and Google HA VPN documentation; `terraform-provider-aws` validators.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, assert_never

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import Asn, Cidr, InsideCidr, KubeName, PublicIpAddress, Rate, is_private_asn


class Peer(Model):
    """The far end: the router at home."""

    address: PublicIpAddress
    """Its public address."""

    asn: Asn | None = None
    """Its BGP autonomous system number. Required with `routing: bgp`."""

    cidrs: Annotated[tuple[Cidr, ...], Field(min_length=1)]
    """Address ranges behind it that the cloud should reach."""


class Tunnel(Model):
    """One of the tunnels of a link."""

    inside: InsideCidr | None = None
    """Inside addresses, a /30 in 169.254.0.0/16. Default: the cloud chooses."""

    key: Annotated[str, Field(min_length=1)] | None = None
    """Name of the Pulumi secret with the pre-shared key (`pulumi config set --secret gpufleet:NAME`).
    Default: the cloud makes a key, which Pulumi keeps as a secret."""


class _Vpn(Model):
    cluster: KubeName
    """The cluster whose network it joins."""

    peer: Peer
    """The far end."""

    routing: Literal["bgp", "static"] = "bgp"
    """`bgp` moves traffic to the second tunnel by itself and can use both; `static` for routers that cannot."""

    asn: Asn = 64_512
    """BGP autonomous system number of our side; a private one that is not the peer's."""

    tunnels: Annotated[tuple[Tunnel, ...], Field(min_length=2, max_length=2)] = (Tunnel(), Tunnel())
    """The two tunnels. The cloud ends one for maintenance now and then; both must be set up."""

    @model_validator(mode="after")
    def _asns(self) -> Self:
        if self.routing == "static":
            if self.peer.asn is not None:
                raise ValueError("peer.asn: has no effect with routing: static; leave it out")
            return self
        if self.peer.asn is None:
            raise ValueError("peer.asn: routing bgp needs it, the router's number (e.g. asn: 65010)")
        if self.peer.asn == self.asn:
            raise ValueError(
                f"asn: {self.asn} is the peer's number as well; BGP between the two ends needs different ones"
            )
        if not is_private_asn(self.asn):  # neither a transit gateway nor a Cloud Router takes another
            raise ValueError(f"asn: {self.asn} is not private; use 64512 to 65534 or 4200000000 to 4294967294")
        return self

    @model_validator(mode="after")
    def _tunnels_differ(self) -> Self:
        first, second = self.tunnels
        if first.inside is not None and first.inside == second.inside:
            raise ValueError(f"tunnels.1.inside: {first.inside} is the first tunnel's already; give each its own /30")
        if first.key is not None and first.key == second.key:
            raise ValueError("tunnels.1.key: names the first tunnel's key; give each its own secret")
        return self


class AwsVpn(_Vpn):
    """A site-to-site VPN to a cluster on AWS, on a transit gateway."""

    kind: Literal["aws-vpn"]
    """`aws-vpn`."""

    bandwidth: Literal["standard", "large"] = "standard"
    """`standard` is 1.25 Gbps a tunnel; `large` is 5 Gbps, not in every region, and a change may replace the
    connection. One flow never uses more than one tunnel."""


class GcpVpn(_Vpn):
    """An HA VPN to a cluster on Google Cloud; about 2.8 Gbps a tunnel (250,000 packets/s)."""

    kind: Literal["gcp-vpn"]
    """`gcp-vpn`."""

    @model_validator(mode="after")
    def _bgp_only(self) -> Self:
        if self.routing == "static":
            raise ValueError("routing: static is not for gcp-vpn, as HA VPN works with BGP only; use bgp")
        return self


class CloudPair(Model):
    """A VPN between a cluster on AWS and one on Google Cloud: two connections, four tunnels."""

    kind: Literal["aws-gcp"]
    """`aws-gcp`."""

    aws_cluster: KubeName
    """The cluster on AWS."""

    gcp_cluster: KubeName
    """The cluster on Google Cloud."""

    aws_asn: Asn = 64_512
    """BGP autonomous system number of the transit gateway."""

    gcp_asn: Asn = 64_514
    """BGP autonomous system number of the Cloud Router."""

    @model_validator(mode="after")
    def _asns_differ(self) -> Self:
        if self.aws_asn == self.gcp_asn:
            raise ValueError(f"gcp_asn: {self.aws_asn} is aws_asn as well; BGP needs different ones")
        for field in ("aws_asn", "gcp_asn"):
            if not is_private_asn(getattr(self, field)):
                raise ValueError(f"{field}: is not private; use 64512 to 65534 or 4200000000 to 4294967294")
        return self


class ExistingLink(Model):
    """A link that somebody else made (Direct Connect, Interconnect, a VPN appliance): used to estimate staging time."""

    kind: Literal["existing"]
    """`existing`."""

    cluster: KubeName
    """The cluster it leads to."""

    cidrs: tuple[Cidr, ...] = ()
    """Address ranges at the far end, so that overlaps are found."""

    bandwidth: Rate
    """What it carries, e.g. `10 Gbps`."""


Link = Annotated[AwsVpn | GcpVpn | CloudPair | ExistingLink, Field(discriminator="kind")]
"""One link, told apart by `kind`."""


_STANDARD_TUNNEL: Final = 1_250_000_000
_LARGE_TUNNEL: Final = 5_000_000_000
_GCP_TUNNEL: Final = 2_800_000_000  # 250,000 packets/s at an MTU of 1,460


def link_rate(link: Link) -> int:
    """What a link carries for one flow, in bits per second: one tunnel of a VPN, since a flow never uses two."""
    match link:
        case ExistingLink():
            return link.bandwidth
        case AwsVpn():
            return _LARGE_TUNNEL if link.bandwidth == "large" else _STANDARD_TUNNEL
        case GcpVpn():
            return _GCP_TUNNEL
        case CloudPair():
            return _STANDARD_TUNNEL
        case _:
            assert_never(link)
