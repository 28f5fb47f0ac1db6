"""What is wrong with a question about GPUs; each message says what to do."""

from __future__ import annotations

from infra.local.errors import LocalError


class GpuError(LocalError):
    """Base of everything this package raises on purpose: the command line prints it without a traceback."""


class DemandError(GpuError):
    """The demand cannot be read, or no MIG layout can meet it."""


class CaptureError(GpuError):
    """A captured table cannot be read, or no card can."""
