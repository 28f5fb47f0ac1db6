"""Everything the agent raises on purpose, in one tree.

    AgentError
    ├── SettingsError     the agent was started with settings it cannot use
    ├── KubeError         the cluster did not do what it was asked
    │   ├── Unreachable   no answer, or an answer that says "later": try again
    │   ├── Expired       the list or watch is older than the server remembers: list again
    │   ├── NotFound      the object is gone, or its kind is not installed
    │   ├── Conflict      the object changed since it was read: read it again
    │   ├── Forbidden     rights, a policy or a webhook deny it
    │   └── Rejected      the server calls the request invalid
    ├── StoreDown         the ledger cannot be read or written: no money may move
    ├── CorruptEntry      one entry of the ledger cannot be read: its job stays at the gate
    └── NotLeading        another replica leads: stop writing

Modules that talk to an outside system wrap its errors into these, so that no other module knows its client.
"""

from __future__ import annotations


class AgentError(Exception):
    """Base of all errors of the agent."""


class SettingsError(AgentError):
    """The agent was started with settings it cannot use."""


class KubeError(AgentError):
    """The cluster did not do what it was asked."""


class Unreachable(KubeError):
    """No answer, or an answer that says "later": after `retry_after` seconds, where the server named a time."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(KubeError):
    """The resource version or continue token is older than the server remembers."""


class NotFound(KubeError):
    """The object is gone, or its kind is not installed."""


class Conflict(KubeError):
    """The object changed since it was read, or exists already."""


class Forbidden(KubeError):
    """Rights, an admission policy or a webhook deny the request."""


class Rejected(KubeError):
    """The server calls the request invalid."""


class StoreDown(AgentError):
    """The ledger cannot be read or written."""


class CorruptEntry(AgentError):
    """One entry of the ledger cannot be read."""


class NotLeading(AgentError):
    """Another replica leads, or the lease could not be renewed in time."""
