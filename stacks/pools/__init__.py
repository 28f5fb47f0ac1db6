"""GPU pools: groups of equal nodes, on-prem or rented.

A pool says how many GPUs there are and what they cost; who may use them is the teams' matter.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stacks.pools.aws import AwsExistingPool, KarpenterPool, NodeGroupPool
from stacks.pools.broker import BrokerPool
from stacks.pools.cloud import CloudPool, Market
from stacks.pools.gcp import GcpExistingPool, GkePool
from stacks.pools.instances import InstancePool
from stacks.pools.onprem import OnPremPool

AwsPool = Annotated[AwsExistingPool | KarpenterPool | NodeGroupPool, Field(discriminator="provisioner")]
"""A pool on AWS, told apart by `provisioner`."""

GcpPool = Annotated[GcpExistingPool | GkePool, Field(discriminator="provisioner")]
"""A pool on Google Cloud, told apart by `provisioner`."""

Pool = Annotated[OnPremPool | AwsPool | GcpPool | BrokerPool, Field(discriminator="location")]
"""One pool, told apart by `location`, and by `provisioner` within a cloud."""

PartitionedPool = OnPremPool | KarpenterPool | NodeGroupPool | GkePool
"""The pools that can have MIG layouts and sharing."""

__all__ = [
    "AwsExistingPool",
    "BrokerPool",
    "CloudPool",
    "GcpExistingPool",
    "GkePool",
    "InstancePool",
    "KarpenterPool",
    "Market",
    "NodeGroupPool",
    "OnPremPool",
    "PartitionedPool",
    "Pool",
]
