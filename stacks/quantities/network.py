"""Networks and addresses: `10.0.0.0/16`, `203.0.113.7`, `169.254.6.0/30`.

It checks one value at a time; overlaps between networks belong to the cross-field validators. A network is never
widened or moved silently: host bits are an error that names the network that was probably meant.
"""

from __future__ import annotations

import ipaddress
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator

from stacks.quantities.text import text_of, text_schema

_PREFIX: Final = re.compile(r"[0-9]{1,3}")
_DOCUMENTATION: Final = tuple(  # RFC 5737 and RFC 3849; our examples are written with them
    ipaddress.ip_network(text) for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
)
_LINK_LOCAL: Final = IPv4Network("169.254.0.0/16")
_TUNNEL_PREFIX: Final = 30  # two hosts: the two ends of one tunnel
_RESERVED_BY_AWS: Final = frozenset(  # AWS Site-to-Site VPN, tunnel options: inside IPv4 CIDR
    IPv4Network(f"169.254.{text}/30") for text in ("0.0", "1.0", "2.0", "3.0", "4.0", "5.0", "169.252")
)
_IPV4_PATTERN: Final = r"([0-9]{1,3}\.){3}[0-9]{1,3}"
_ANY_PATTERN: Final = rf"({_IPV4_PATTERN}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)"


def parse_cidr(value: object) -> IPv4Network | IPv6Network:
    """Read `10.0.0.0/16` or `fd00::/8`.

    Raises:
        ValueError: for a bare address, host bits, and text that is no network; each with the form that was meant.
    """
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    text = text_of(value, "a network in CIDR form", "10.0.0.0/16")
    address_text, slash, prefix = (part.strip() for part in text.partition("/"))
    address = _address(address_text)
    if address is None:
        raise ValueError("not a network in CIDR form; write address and prefix length, for example 10.0.0.0/16")
    if not slash:
        raise ValueError(
            f"is one address, not a network; add its prefix length, for example 10.0.0.0/16, or "
            f"{address}/{address.max_prefixlen} for this address alone"
        )
    if not _PREFIX.fullmatch(prefix) or int(prefix) > address.max_prefixlen:
        raise ValueError(f"the prefix length must be from 0 to {address.max_prefixlen}, for example 10.0.0.0/16")
    network = ipaddress.ip_network(f"{address}/{int(prefix)}", strict=False)
    if network.network_address != address:
        raise ValueError(f"{address}/{int(prefix)} is an address inside a network; the network is {network}")
    return network


def parse_ipv4_cidr(value: object) -> IPv4Network:
    """Read an IPv4 network, for example `10.0.0.0/16`.

    Raises:
        ValueError: as parse_cidr, and for an IPv6 network.
    """
    network = parse_cidr(value)
    if not isinstance(network, IPv4Network):
        raise ValueError(f"{network} is IPv6; an IPv4 network is needed here, for example 10.0.0.0/16")
    return network


def parse_inside_cidr(value: object) -> IPv4Network:
    """Read the network inside a VPN tunnel: a /30 of 169.254.0.0/16 that AWS has not reserved.

    Raises:
        ValueError: for any other network, naming the rule it breaks.
    """
    network = parse_ipv4_cidr(value)
    if network.prefixlen != _TUNNEL_PREFIX or not network.subnet_of(_LINK_LOCAL):
        raise ValueError(f"{network} is not a /30 inside {_LINK_LOCAL}; write one, for example 169.254.6.0/30")
    if network in _RESERVED_BY_AWS:
        raise ValueError(f"{network} is reserved by AWS; take another /30, for example 169.254.6.0/30")
    return network


def parse_ip_address(value: object) -> IPv4Address | IPv6Address:
    """Read `203.0.113.7` or `2001:db8::7`.

    Raises:
        ValueError: for a network, a number, or text that is no address.
    """
    if isinstance(value, IPv4Address | IPv6Address):
        return value
    text = text_of(value, "an address", "203.0.113.7")
    if "/" in text and _address(text.partition("/")[0]) is not None:
        raise ValueError("is a network; write one address without the prefix length, for example 203.0.113.7")
    address = _address(text)
    if address is None:
        raise ValueError("not an IP address; write four numbers from 0 to 255, for example 203.0.113.7")
    return address


def parse_public_ip_address(value: object) -> IPv4Address | IPv6Address:
    """Read an address that the internet can reach; the ranges reserved for documentation count as such.

    Raises:
        ValueError: for an address that is private, shared, link-local, multicast or otherwise not routed.
    """
    address = parse_ip_address(value)
    documented = any(address in network for network in _DOCUMENTATION)
    if not documented and (not address.is_global or address.is_multicast):
        raise ValueError(f"{address} cannot be reached over the internet; write a public address, such as 203.0.113.7")
    return address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    if "%" in text:  # a zone index is meaningful on one machine only
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


Cidr = Annotated[
    IPv4Network | IPv6Network,
    PlainValidator(parse_cidr),
    PlainSerializer(str, return_type=str),
    text_schema("A network in CIDR form.", ["10.0.0.0/16", "fd00::/8"], rf"^\s*{_ANY_PATTERN}\s*/\s*[0-9]{{1,3}}\s*$"),
]
"""An IPv4 or IPv6 network without host bits; canonical form `10.0.0.0/16`."""

Ipv4Cidr = Annotated[
    IPv4Network,
    PlainValidator(parse_ipv4_cidr),
    PlainSerializer(str, return_type=str),
    text_schema("An IPv4 network in CIDR form.", ["10.0.0.0/16"], rf"^\s*{_IPV4_PATTERN}\s*/\s*[0-9]{{1,2}}\s*$"),
]
"""An IPv4 network without host bits."""

InsideCidr = Annotated[
    IPv4Network,
    PlainValidator(parse_inside_cidr),
    PlainSerializer(str, return_type=str),
    text_schema(
        "The network inside a VPN tunnel: a /30 of 169.254.0.0/16 that AWS has not reserved.",
        ["169.254.6.0/30"],
        r"^\s*169\.254\.[0-9]{1,3}\.[0-9]{1,3}\s*/\s*30\s*$",
    ),
]
"""The two ends of one VPN tunnel."""

PublicIpAddress = Annotated[
    IPv4Address | IPv6Address,
    PlainValidator(parse_public_ip_address),
    PlainSerializer(str, return_type=str),
    text_schema("An IP address that the internet can reach.", ["203.0.113.7"], rf"^\s*{_ANY_PATTERN}\s*$"),
]
"""A globally routable address, or one of the documentation ranges."""
