"""Rules of addresses: ranges that can reach each other do not overlap, and links lead where they should."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from stacks.clusters import EksCluster, ExistingCluster, GkeCluster
from stacks.links import AwsVpn, CloudPair, ExistingLink, GcpVpn
from stacks.model import Path
from stacks.rules.rule import RuleProblem
from stacks.suggest import did_you_mean

if TYPE_CHECKING:
    from stacks.fleet import Fleet

Network = IPv4Network | IPv6Network

_RESERVED: Final[dict[Network, str]] = {
    ip_network("169.254.0.0/16"): "link-local addresses",
    ip_network("127.0.0.0/8"): "loopback",
    ip_network("224.0.0.0/4"): "multicast",
}
_DOCKER: Final = ip_network("172.17.0.0/16")  # GKE nodes use it themselves
_PRIVATE: Final = tuple(IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
_VPC_PREFIXES: Final = range(16, 29)  # what AWS takes for a VPC
_SMALLEST_SUBNET: Final = 16  # addresses; what AWS takes for a subnet
_SERVICE_PREFIXES: Final = range(12, 25)  # what EKS takes for Services


class Range(NamedTuple):
    """One address range of the file."""

    path: Path
    network: Network

    def __str__(self) -> str:
        """For messages: the range and its place."""
        return f"{self.network} ({'.'.join(map(str, self.path))})"


def _own_ranges(fleet: Fleet, name: str) -> list[Range]:
    """The ranges that a cluster itself uses."""
    at: Path = ("clusters", name)
    match fleet.clusters[name]:
        case EksCluster() as eks:
            found = [Range((*at, "network", "vpc"), eks.network.vpc)]
            found.append(Range((*at, "network", "services"), eks.network.services))
            if eks.hybrid:
                found.append(Range((*at, "hybrid", "nodes"), eks.hybrid.nodes))
                found.append(Range((*at, "hybrid", "pods"), eks.hybrid.pods))
            return found
        case GkeCluster() as gke:
            network = gke.network
            parts = (("nodes", network.nodes), ("pods", network.pods), ("services", network.services))
            return [Range((*at, "network", part), value) for part, value in parts]
        case ExistingCluster():
            return []


def _far_ranges(fleet: Fleet, link: str) -> list[Range]:
    """The ranges behind a link."""
    match fleet.links[link]:
        case AwsVpn() | GcpVpn() as vpn:
            return [Range(("links", link, "peer", "cidrs", at), one) for at, one in enumerate(vpn.peer.cidrs)]
        case ExistingLink() as existing:
            return [Range(("links", link, "cidrs", at), one) for at, one in enumerate(existing.cidrs)]
        case CloudPair():
            return []


def _ranges_behind(fleet: Fleet, cluster: str) -> list[Range]:
    """The ranges behind the links of a cluster."""
    links = [name for name, link in fleet.links.items() if not isinstance(link, CloudPair) and link.cluster == cluster]
    return [one for name in links for one in _far_ranges(fleet, name)]


def _overlaps(ranges: list[tuple[Range, Range]]) -> Iterator[RuleProblem]:
    for first, second in ranges:
        if first.network.overlaps(second.network):
            reason = f"{second.network} overlaps {first}; traffic between them could not be routed"
            yield RuleProblem(second.path, str(second.network), reason)


def ranges_of_a_cluster_are_apart(fleet: Fleet) -> Iterator[RuleProblem]:
    """VPC, Services, hybrid nodes and pods of a cluster do not overlap."""
    for name in fleet.clusters:
        yield from _overlaps(list(combinations(_own_ranges(fleet, name), 2)))


def ranges_behind_a_link_are_apart_from_its_cluster(fleet: Fleet) -> Iterator[RuleProblem]:
    """What is behind a link is not in the cluster's network as well; hybrid nodes are behind it and may be."""
    for name, link in fleet.links.items():
        if isinstance(link, CloudPair) or link.cluster not in fleet.clusters:
            continue
        own = [one for one in _own_ranges(fleet, link.cluster) if "hybrid" not in one.path]
        yield from _overlaps([(mine, far) for mine in own for far in _far_ranges(fleet, name)])


def ranges_of_linked_clusters_are_apart(fleet: Fleet) -> Iterator[RuleProblem]:
    """Two clusters that a link joins have no range in common."""
    for link in fleet.links.values():
        if isinstance(link, CloudPair) and {link.aws_cluster, link.gcp_cluster} <= fleet.clusters.keys():
            left, right = _own_ranges(fleet, link.aws_cluster), _own_ranges(fleet, link.gcp_cluster)
            near = _ranges_behind(fleet, link.aws_cluster)
            far = _ranges_behind(fleet, link.gcp_cluster)
            yield from _overlaps([(first, second) for first in left for second in right + far])
            yield from _overlaps([(second, first) for first in near for second in right])


def ranges_are_usable(fleet: Fleet) -> Iterator[RuleProblem]:
    """No range is one that hosts keep for themselves."""
    ranges = [one for name in fleet.clusters for one in _own_ranges(fleet, name)]
    ranges += [one for name in fleet.links for one in _far_ranges(fleet, name)]
    for one in ranges:
        for reserved, what in _RESERVED.items():
            if one.network.overlaps(reserved):
                yield RuleProblem(one.path, str(one.network), f"{one.network} contains {what}; choose another range")
        on_gke = one.path[0] == "clusters" and isinstance(fleet.clusters[str(one.path[1])], GkeCluster)
        if on_gke and one.network.overlaps(_DOCKER):
            yield RuleProblem(one.path, str(one.network), f"GKE nodes use {_DOCKER} themselves; choose another range")


def networks_have_a_size_that_the_cloud_takes(fleet: Fleet) -> Iterator[RuleProblem]:
    """A VPC is a /16 to /28; hybrid nodes and pods have private addresses."""
    for name, cluster in fleet.clusters.items():
        if not isinstance(cluster, EksCluster):
            continue
        vpc, services = cluster.network.vpc, cluster.network.services
        if vpc.prefixlen not in _VPC_PREFIXES:
            reason = f"a VPC is a range from /16 to /28, e.g. {vpc.network_address}/16"
            yield RuleProblem(("clusters", name, "network", "vpc"), str(vpc), reason)
        elif vpc.num_addresses < 2 * cluster.network.availability_zones * _SMALLEST_SUBNET:
            zones = cluster.network.availability_zones
            reason = f"has no room for a public and a private subnet in each of {zones} zones; use a larger range"
            yield RuleProblem(("clusters", name, "network", "vpc"), str(vpc), reason)
        if services.prefixlen not in _SERVICE_PREFIXES or not any(services.subnet_of(one) for one in _PRIVATE):
            reason = "Services of EKS are a private range from /12 to /24, e.g. 172.20.0.0/16"
            yield RuleProblem(("clusters", name, "network", "services"), str(services), reason)
        for part in ("nodes", "pods") if cluster.hybrid else ():
            network = getattr(cluster.hybrid, part)
            if not any(network.subnet_of(private) for private in _PRIVATE):
                reason = "hybrid nodes and pods need private addresses (10/8, 172.16/12 or 192.168/16)"
                yield RuleProblem(("clusters", name, "hybrid", part), str(network), reason)


def links_name_a_cluster_of_their_cloud(fleet: Fleet) -> Iterator[RuleProblem]:
    """Every end of a link is a cluster that is defined, on the cloud of that end."""
    for name, link in fleet.links.items():
        match link:
            case CloudPair():
                ends = [("aws_cluster", link.aws_cluster, "eks"), ("gcp_cluster", link.gcp_cluster, "gke")]
            case AwsVpn():
                ends = [("cluster", link.cluster, "eks")]
            case GcpVpn():
                ends = [("cluster", link.cluster, "gke")]
            case ExistingLink():
                ends = [("cluster", link.cluster, "")]
        for field, cluster, wanted in ends:
            path = ("links", name, field)
            if cluster not in fleet.clusters:
                yield RuleProblem(path, cluster, f"no such cluster{did_you_mean(cluster, fleet.clusters)}")
            elif wanted and fleet.clusters[cluster].kind != wanted:
                reason = (
                    f"{cluster} is of kind {fleet.clusters[cluster].kind}; {link.kind} needs a cluster of kind {wanted}"
                )
                yield RuleProblem(path, cluster, reason)


def inside_addresses_are_unique(fleet: Fleet) -> Iterator[RuleProblem]:
    """No two tunnels share inside addresses."""
    owner: dict[Network, str] = {}
    for name, link in fleet.links.items():
        if not isinstance(link, AwsVpn | GcpVpn):
            continue
        for at, tunnel in enumerate(link.tunnels):
            if tunnel.inside is None:
                continue
            if owner.get(tunnel.inside, name) != name:
                reason = f"{tunnel.inside} is used by link {owner[tunnel.inside]} already; give each tunnel its own /30"
                yield RuleProblem(("links", name, "tunnels", at, "inside"), str(tunnel.inside), reason)
            owner.setdefault(tunnel.inside, name)


def hybrid_nodes_are_behind_a_link(fleet: Fleet) -> Iterator[RuleProblem]:
    """The ranges of hybrid nodes and pods can be reached through a link of their cluster."""
    ends = [link.cluster for link in fleet.links.values() if not isinstance(link, CloudPair)]
    astray = any(cluster not in fleet.clusters for cluster in ends)  # that is said already, and may be the reason
    for name, cluster in fleet.clusters.items():
        if not isinstance(cluster, EksCluster) or cluster.hybrid is None or astray:
            continue
        far = [one.network for one in _ranges_behind(fleet, name)]
        for part in ("nodes", "pods"):
            network = getattr(cluster.hybrid, part)
            if not any(one.version == 4 and network.subnet_of(one) for one in far):
                reason = f"no link of {name} leads to {network}; add it to the cidrs of a link"
                yield RuleProblem(("clusters", name, "hybrid", part), str(network), reason)


def burst_data_names_a_link(fleet: Fleet) -> Iterator[RuleProblem]:
    """The link that burst data crosses is defined."""
    data = fleet.burst.data
    if data is not None and data.link not in fleet.links:
        yield RuleProblem(("burst", "data", "link"), data.link, f"no such link{did_you_mean(data.link, fleet.links)}")
