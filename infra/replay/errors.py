"""The exception tree of the replay; each message says what was wrong and how to fix it.

ReplayError
├── TraceError     a trace cannot be read, or holds no usable job
├── SubmitError    the API server refuses the jobs of a replay
└── EvidenceError  the audit log or the ledger cannot be read
"""

from __future__ import annotations


class ReplayError(Exception):
    """Base of everything this package raises on purpose: the command line prints it without a traceback."""


class TraceError(ReplayError):
    """A trace cannot be read, or holds no usable job."""


class SubmitError(ReplayError):
    """The API server refuses the jobs of a replay."""


class EvidenceError(ReplayError):
    """The audit log or the ledger cannot be read, so that nothing can be proved from it."""


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first of our errors in a failed group of tasks, which fail together for one reason; else the group."""
    ours = group.subgroup(ReplayError)
    if ours is None:
        return group
    first = ours.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first
