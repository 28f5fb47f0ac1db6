"""One attempt of a training job, from resuming to its end: the part that training code talks to.

It saves at the end of a step only, where the state is whole: when it is time, when somebody asks, and when it is told
to stop. It starts no thread, unless a hook is wanted. A save that fails is counted and said, and the training goes on;
the checkpoint before it stands.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .checkpoint import Checkpoint
from .errors import Stopped, StoreUnusable, TornCheckpoint, TrainingError
from .inbox import Inbox
from .messages import Answer
from .options import Options, Timetable
from .progress import Progress
from .ranks import ALONE, Ranks
from .signals import Signals
from .store import Checkpoints, Save
from .telling import tell_metrics, tell_termination
from .together import everyone, save_together

if TYPE_CHECKING:
    from .hook import Hook
    from .remote import Remote

LOOK_SECONDS: Final = 0.5
"""How often the request file is read: small beside what kubelet takes to write it, and 5 µs each."""

_RESUME_TRIES: Final = 5
"""A checkpoint may be pruned by another attempt while it is loaded; a newer one is there then."""

log = logging.getLogger(__name__)
_State = TypeVar("_State")


class _Wish(IntEnum):
    """What a rank wants at the end of a step; ranks agree on the largest."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


class Session:
    """Use it as a context manager; see `runtime.training.session` for what it is made of."""

    def __init__(
        self, checkpoints: Checkpoints, options: Options, ranks: Ranks = ALONE, remote: Remote | None = None
    ) -> None:
        self.checkpoints = checkpoints
        self.progress = Progress()
        self.done = 0
        """Steps that are done: where to go on from, after `resume`."""

        self.hook: Hook | None = None
        self._options = options
        self._ranks = ranks
        self._remote = remote
        self._signals = Signals()
        self._inbox = Inbox(options.request_file)
        self._alone = ranks.world == 1
        self._saved_step: int | None = None
        self._url = ""
        self._look_at = 0.0
        self._look_seconds = min(LOOK_SECONDS, options.every_seconds or LOOK_SECONDS)
        self._timetable = Timetable(options)

    def __enter__(self) -> Session:
        self._signals.listen()
        try:
            everyone(self._ranks, lambda: self.checkpoints.prepare() if self._ranks.first else None)
            self._open_hook()
        except BaseException:
            self._signals.restore()
            raise
        self._timetable.saved(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.hook is not None:
            self._inbox.settle(self._inbox.open_requests(), None, "")
            self.hook.close()
        self._signals.restore()
        if error is None and self._signals.stop:
            self._signals.send_again()

    def resume(self, default: _State, load: Callable[[Checkpoint], _State] | None = None) -> _State:
        """The state of the newest whole checkpoint, or `default` where there is none. `done` says how far it had come.

        `load` makes the state from a checkpoint's files; without it, from what `Saving.pickle` saved.
        """
        start = time.monotonic()
        for _ in range(_RESUME_TRIES):
            found = everyone(self._ranks, self._find)
            step = self._ranks.agree(0 if found is None else found.step + 1) - 1
            if step < 0:
                return default
            state = everyone(self._ranks, partial(self._load, step, load))
            if self._ranks.all_well(state is not None) and state is not None:
                return self._resumed(step, state[0], time.monotonic() - start)
        raise StoreUnusable(f"{self.checkpoints.root}: each checkpoint vanished while it was loaded")

    def _resumed(self, step: int, state: _State, seconds: float) -> _State:
        self.done = self._saved_step = step
        self.progress.resumed_step = self.progress.step = step
        self.progress.resume_seconds = seconds
        self._url = self._address(self.checkpoints.open(step))
        log.info("resumed at step %d in %.2f s", step, seconds)
        self._timetable.saved(step)
        return state

    def step(self, done: int, save: Save) -> None:
        """Say that `done` steps are done; saves if it is time to. All ranks call it for every step.

        Raises:
            Stopped: the session was told to stop, and has saved. Let it pass.
        """
        self.done = done
        if self._alone:
            if (
                time.monotonic() < self._look_at
                and done < self._timetable.due_step
                and not self._signals.stop
                and not self._inbox.waiting
            ):
                return
        elif done % self._options.agree_every:
            return
        self._attend(done, save)

    def save(self, done: int, save: Save) -> None:
        """Save now, because training code wants it: at the end of an epoch, before an evaluation. All ranks call it."""
        self.done = done
        self._save(done, save)

    def metrics(self) -> str:
        """Progress in Prometheus' text format, with the age of the last checkpoint."""
        self.progress.step = self.done
        return self.progress.text(self._timetable.age())

    def _attend(self, done: int, save: Save) -> None:
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + self._look_seconds
            self._inbox.look()
            self._tell()
        wish = self._ranks.agree(self._wish(done, now))
        if wish == _Wish.NOTHING:
            return
        self._save(done, save)
        if wish == _Wish.STOP:
            log.info("told to stop at step %d; the last checkpoint is of step %s", done, self._saved_step)
            raise Stopped

    def _wish(self, done: int, now: float) -> _Wish:
        if self._signals.stop:
            return _Wish.STOP
        # Time is what rank 0's clock says, so that ranks whose clocks differ do not save twice.
        due = self._ranks.first and self._timetable.due(done, now)
        return _Wish.SAVE if due or self._inbox.waiting else _Wish.NOTHING

    def _save(self, done: int, save: Save) -> None:
        requests = self._inbox.open_requests()
        if done != self._saved_step:
            try:
                self._make(done, save)
            except (OSError, TrainingError) as error:
                self._failed(done, error)
                self._inbox.settle(requests, None, "")
                return
            except BaseException:
                self._inbox.settle(requests, None, "")
                raise
        self._inbox.settle(requests, done, self._url)
        answer = Answer(self._inbox.last_request, done, self._url, time.time())
        tell_termination(self._options.termination_log, answer)
        self._tell()

    def _make(self, done: int, save: Save) -> None:
        saved = save_together(self.checkpoints, done, save, self._ranks)
        self._url = everyone(self._ranks, lambda: self._keep(saved.checkpoint))
        self._saved_step = done
        self.progress.saved(done, saved.checkpoint.manifest.size, saved.linked_bytes, saved.seconds)
        log.info("saved step %d in %.2f s to %s", done, saved.seconds, self._url)
        self._timetable.saved(done)

    def _keep(self, checkpoint: Checkpoint) -> str:
        """What rank 0 does once a checkpoint is complete; every rank returns where it is."""
        if self._ranks.first:
            if self._remote is not None:
                self._remote.push(checkpoint)
            try:
                self.checkpoints.advance(checkpoint)
                self.checkpoints.prune()
            except OSError as error:
                log.warning("step %d is saved, but %s", checkpoint.step, error)
        return self._address(checkpoint)

    def _address(self, checkpoint: Checkpoint) -> str:
        return self._remote.url(checkpoint.step) if self._remote is not None else checkpoint.path.absolute().as_uri()

    def _failed(self, done: int, error: Exception) -> None:
        self.progress.save_failures_total += 1
        log.error("step %d was not saved; the checkpoint of step %s stands: %s", done, self._saved_step, error)
        self._timetable.failed(done)
        self._tell()

    def _tell(self) -> None:
        if self._ranks.first:
            self.progress.step = self.done
            tell_metrics(self._options.metrics_file, self.progress.text())

    def _find(self) -> Checkpoint | None:
        if not self._ranks.first:
            return None
        return self._remote.pull(self.checkpoints) if self._remote is not None else self.checkpoints.newest()

    def _load(self, step: int, load: Callable[[Checkpoint], _State] | None) -> tuple[_State] | None:
        """The state, in a tuple because it may be None itself; None where the checkpoint vanished meanwhile."""
        path = self.checkpoints.path(step)
        try:
            checkpoint = self.checkpoints.open(step)
            self.checkpoints.learn(checkpoint)
            return ((load or _unpickle)(checkpoint),)
        except (OSError, TornCheckpoint):
            if path.exists():
                raise
            return None

    def _open_hook(self) -> None:
        if self._options.hook_port is None:
            return
        from .hook import Hook  # http.server takes longer to import than all the rest

        self.hook = Hook(self._inbox, self.metrics, self._options.hook_port)


def _unpickle(checkpoint: Checkpoint) -> Any:
    return checkpoint.unpickle()
