"""The ledger in an object store: entries that are written once, days that are packed together, and a check of it all.

Layout, below `v1/`:

- `owner.json`: whose ledger it is;
- `<YYYY-MM>/<workload uid>.<attempt>.open.json` and `….close.json`: single entries, by the month of the opening in
  fleet time (UTC);
- `days/<YYYY-MM-DD>.jsonl`: every attempt opened on one day, once all of them are closed (runtime.store.days);
- `top-ups/<id>.json`;
- `losses/<YYYY-MM>/<DD>/<workload uid>.<number>.json`: work that an eviction cost, by the day on which the job was
  stopped, and `losses/days/<YYYY-MM-DD>.jsonl` once that day has rested (runtime.store.losses).

Objects are created once, by conditional put, and never changed; whoever comes second reads what stands there. Single
entries are deleted once their day file stands and was read back. What an entry holds is runtime.cost.entries' business;
runtime.store.bucket is the only importer of the object-store client.
"""

from __future__ import annotations

from runtime.store.bucket import Bucket, check_url
from runtime.store.compaction import Compactor
from runtime.store.copy import RECENT_SECONDS
from runtime.store.ledger import Store
from runtime.store.owner import Owner, read_owner
from runtime.store.verification import Finding, Report, verify
from runtime.store.walk import history

__all__ = [
    "RECENT_SECONDS",
    "Bucket",
    "Compactor",
    "Finding",
    "Owner",
    "Report",
    "Store",
    "check_url",
    "history",
    "read_owner",
    "verify",
]
