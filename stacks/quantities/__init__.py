"""Typed quantities: each reads forgiving spellings, has one canonical form, and fails with an example.

A bare number is refused wherever it could be misread. The names below are the interface; the modules are not.

Invariants, of every type: parsing raises ValueError and nothing else, whatever the value; values are immutable and
hashable; the canonical form reads back as the same value and is written as the same text.
"""

from __future__ import annotations

from stacks.quantities.asn import Asn, is_private_asn, parse_asn
from stacks.quantities.calendar import (
    Days,
    TimeOfDay,
    TimeZone,
    format_days,
    format_time_of_day,
    parse_days,
    parse_time_of_day,
    parse_time_zone,
)
from stacks.quantities.durations import Duration, PositiveDuration, format_duration, parse_duration
from stacks.quantities.gpus import GpuCount, GpuName, parse_gpu_name
from stacks.quantities.kube_quantity import KubeQuantity, Quantity, parse_kube_quantity
from stacks.quantities.mig import MigItem, MigProfiles, parse_mig_item, parse_mig_profile_name
from stacks.quantities.money import Price, Usd, format_usd, parse_usd
from stacks.quantities.names import (
    KubeDnsName,
    KubeName,
    ObjectReference,
    WorkloadReference,
    parse_kube_dns_name,
    parse_kube_name,
    parse_object_reference,
)
from stacks.quantities.network import (
    Cidr,
    InsideCidr,
    Ipv4Cidr,
    PublicIpAddress,
    parse_cidr,
    parse_inside_cidr,
    parse_ip_address,
    parse_ipv4_cidr,
    parse_public_ip_address,
)
from stacks.quantities.rates import Percentage, Rate, format_percentage, format_rate, parse_percentage, parse_rate
from stacks.quantities.sizes import (
    Memory,
    NodeMemory,
    format_memory,
    parse_memory,
)
from stacks.quantities.window_text import Window, parse_window
from stacks.quantities.windows import WeeklyWindow

__all__ = [
    "Asn",
    "Cidr",
    "Days",
    "Duration",
    "GpuCount",
    "GpuName",
    "InsideCidr",
    "Ipv4Cidr",
    "KubeDnsName",
    "KubeName",
    "KubeQuantity",
    "Memory",
    "MigItem",
    "MigProfiles",
    "NodeMemory",
    "ObjectReference",
    "Percentage",
    "PositiveDuration",
    "Price",
    "PublicIpAddress",
    "Quantity",
    "Rate",
    "TimeOfDay",
    "TimeZone",
    "Usd",
    "WeeklyWindow",
    "Window",
    "WorkloadReference",
    "format_days",
    "format_duration",
    "format_memory",
    "format_percentage",
    "format_rate",
    "format_time_of_day",
    "format_usd",
    "is_private_asn",
    "parse_asn",
    "parse_cidr",
    "parse_days",
    "parse_duration",
    "parse_gpu_name",
    "parse_inside_cidr",
    "parse_ip_address",
    "parse_ipv4_cidr",
    "parse_kube_dns_name",
    "parse_kube_name",
    "parse_kube_quantity",
    "parse_memory",
    "parse_mig_item",
    "parse_mig_profile_name",
    "parse_object_reference",
    "parse_percentage",
    "parse_public_ip_address",
    "parse_rate",
    "parse_time_of_day",
    "parse_time_zone",
    "parse_usd",
    "parse_window",
]
