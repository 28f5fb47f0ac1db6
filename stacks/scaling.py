"""Deployments that grow and shrink with their queue: what becomes KEDA ScaledObjects."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from stacks.model import Model
from stacks.quantities import KubeName, ObjectReference, PositiveDuration

_SQS: Final = r"^https://sqs\.[a-z0-9-]+\.amazonaws\.com/[0-9]{12}/[A-Za-z0-9_.-]+$"


class RabbitMq(Model):
    """The length of a RabbitMQ queue."""

    kind: Literal["rabbitmq"]
    """`rabbitmq`."""

    queue: Annotated[str, Field(min_length=1)]
    """Name of the queue."""

    length: Annotated[int, Field(strict=True, ge=1)]
    """Messages that one replica is good for."""

    connection: KubeName = "rabbitmq"
    """Name of the Kubernetes Secret with the connection string under `host`."""


class Sqs(Model):
    """The length of an Amazon SQS queue."""

    kind: Literal["aws-sqs"]
    """`aws-sqs`."""

    url: Annotated[
        str, Field(pattern=_SQS, examples=["https://sqs.us-east-1.amazonaws.com/123456789012/training-jobs"])
    ]
    """The queue's URL."""

    length: Annotated[int, Field(strict=True, ge=1)]
    """Messages that one replica is good for."""


class PubSub(Model):
    """The length of a Google Cloud Pub/Sub subscription."""

    kind: Literal["gcp-pubsub"]
    """`gcp-pubsub`."""

    subscription: Annotated[str, Field(min_length=1)]
    """Name of the subscription."""

    length: Annotated[int, Field(strict=True, ge=1)]
    """Messages that one replica is good for."""


class Prometheus(Model):
    """The value of a Prometheus query, e.g. requests that wait."""

    kind: Literal["prometheus"]
    """`prometheus`."""

    server: Annotated[str, Field(pattern=r"^https?://[^\s]+$", examples=["http://prometheus.monitoring:9090"])]
    """Address of the Prometheus server."""

    query: Annotated[str, Field(min_length=1)]
    """A query with one number as its result."""

    threshold: Annotated[float, Field(strict=True, gt=0)]
    """The value that one replica is good for."""


Trigger = Annotated[RabbitMq | Sqs | PubSub | Prometheus, Field(discriminator="kind")]
"""What a deployment grows with, told apart by `kind`."""


class Scaling(Model):
    """One deployment that is scaled."""

    target: ObjectReference
    """What is scaled, e.g. `deployment/llm-inference`."""

    namespace: KubeName = "default"
    """Namespace of the target."""

    min_replicas: Annotated[int, Field(strict=True, ge=0, le=10_000)] = 0
    """Fewest replicas; 0 lets it go when nothing waits, at the price of a cold start."""

    max_replicas: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 8
    """Most replicas."""

    cooldown: PositiveDuration = timedelta(minutes=5)
    """How long nothing may wait before it shrinks to the fewest."""

    trigger: Trigger
    """What it grows with."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas: {self.min_replicas} is more than max_replicas {self.max_replicas}")
        return self
