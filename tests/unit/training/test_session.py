"""What training code sees: when it saves, how it is asked and told to stop, what it answers."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime import training
from runtime.training import Saving, Session, Stopped, StoreUnusable, TornCheckpoint
from tests.unit.training.worlds import a_store, names, visible


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A request file and a termination log as kubelet makes them, and the handler of SIGTERM as it was."""
    (tmp_path / "termination-log").touch()
    monkeypatch.setenv("GPUFLEET_TERMINATION_LOG", str(tmp_path / "termination-log"))
    monkeypatch.setenv("GPUFLEET_REQUEST_FILE", str(tmp_path / "podinfo" / "checkpoint-request"))
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == before


def save(saving: Saving) -> None:
    saving.pickle(saving.step)


Save = Callable[[Saving], None]
TERM = "SIGTERM"


def exit_code(directory: Path, *events: str | Save, every_steps: int | None = None) -> object:
    """One attempt: a step for each save function, and a signal where it says so. How it ended; None at its own end."""
    done = 0
    try:
        with training.session(directory, every_steps=every_steps) as session:
            for event in events:
                if isinstance(event, str):
                    os.kill(os.getpid(), signal.Signals[event])
                    continue
                done += 1
                session.step(done, event)
    except Stopped as stopped:
        return stopped.code
    return None


def look_now(session: Session) -> None:
    """As if the time until the next look at the request file had passed."""
    session._look_at = 0.0


def show(tmp_path: Path, content: str) -> None:
    """Change the file as kubelet does: a new directory, and one link swapped."""
    volume = tmp_path / "podinfo"
    volume.mkdir(exist_ok=True)
    fresh = volume / f"..{time.monotonic_ns()}"
    fresh.mkdir()
    (fresh / "checkpoint-request").write_text(content)
    (volume / "..data_tmp").symlink_to(fresh.name)
    (volume / "..data_tmp").rename(volume / "..data")
    if not (volume / "checkpoint-request").is_symlink():
        (volume / "checkpoint-request").symlink_to("..data/checkpoint-request")


def termination(tmp_path: Path) -> dict[str, object]:
    value: dict[str, object] = json.loads((tmp_path / "termination-log").read_text())
    return value


def test_the_first_attempt_starts_from_the_default(tmp_path: Path) -> None:
    with training.session(tmp_path / "c") as session:
        assert session.resume("fresh") == "fresh"
        assert session.done == 0


def test_the_next_attempt_goes_on_where_the_last_save_was(tmp_path: Path) -> None:
    with training.session(tmp_path / "c", every_steps=3) as session:
        for step in range(8):
            session.step(step + 1, save)

    with training.session(tmp_path / "c") as session:
        assert session.resume(0) == 6
        assert session.done == 6
        session.step(7, save)
        assert "gpufleet_training_resumed_step 6\n" in session.metrics()


def test_a_state_may_be_loaded_by_a_function_of_ones_own(tmp_path: Path) -> None:
    with training.session(tmp_path / "c") as session:
        session.save(4, lambda saving: saving.write("weights", b"abc"))

    with training.session(tmp_path / "c") as session:
        assert session.resume(b"", lambda checkpoint: (checkpoint.path / "weights").read_bytes()) == b"abc"


def test_a_state_of_none_is_a_state(tmp_path: Path) -> None:
    with training.session(tmp_path / "c") as session:
        session.save(4, lambda saving: saving.pickle(None))

    with training.session(tmp_path / "c") as session:
        assert session.resume("default") is None


def test_it_saves_when_the_time_has_come(tmp_path: Path) -> None:
    with training.session(tmp_path / "c", every_seconds=0.01) as session:
        session.step(1, save)
        time.sleep(0.02)
        session.step(2, save)

    assert visible(tmp_path / "c") == [*names(2), "latest"]


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with training.session(tmp_path / "c", every_seconds=0.01) as session:
        session.save(1, save)
        monkeypatch.setattr("time.time", lambda: 1.0)
        time.sleep(0.02)
        session.step(2, save)
        assert float(session.metrics().rsplit(" ", 1)[1]) >= 0

    assert visible(tmp_path / "c") == [*names(1, 2), "latest"]


def test_sigterm_saves_at_the_end_of_the_step_and_exits_with_143(tmp_path: Path) -> None:
    assert exit_code(tmp_path / "c", save, TERM, save, save) == 143
    assert termination(tmp_path) | {"at": 0} == {
        **{"version": 1, "request": "", "step": 2, "at": 0},
        "url": (tmp_path / "c" / names(2)[0]).as_uri(),
    }


def test_a_second_sigterm_in_the_middle_of_a_save_changes_nothing(tmp_path: Path) -> None:
    def save_under_fire(saving: Saving) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        saving.pickle("whole")
        os.kill(os.getpid(), signal.SIGTERM)

    assert exit_code(tmp_path / "c", TERM, save_under_fire, save) == 143
    with training.session(tmp_path / "c") as session:
        assert session.resume("") == "whole"


def test_a_signal_during_a_periodic_save_stops_at_the_next_step(tmp_path: Path) -> None:
    def save_under_fire(saving: Saving) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        saving.pickle(saving.step)

    assert exit_code(tmp_path / "c", save_under_fire, save, save, every_steps=1) == 143
    assert visible(tmp_path / "c") == [*names(1, 2), "latest"]


def test_a_signal_that_nobody_acted_on_reaches_the_handler_before(tmp_path: Path) -> None:
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with training.session(tmp_path / "c"):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_forked_worker_still_ends_by_sigterm(tmp_path: Path) -> None:
    with training.session(tmp_path / "c"):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)

    assert os.WTERMSIG(status) == signal.SIGTERM


def test_a_request_in_the_file_is_answered_once(tmp_path: Path) -> None:
    with training.session(tmp_path / "c") as session:
        session.step(1, save)
        show(tmp_path, '{"version": 1, "request": "a1", "deadline": 1.0, "reason": "spot-interruption"}')
        for step in (2, 3):
            look_now(session)
            session.step(step, save)
        assert visible(tmp_path / "c") == [*names(2), "latest"]
        assert (termination(tmp_path)["request"], termination(tmp_path)["step"]) == ("a1", 2)

        show(tmp_path, '{"version": 1, "request": "a2", "certain": false}')
        look_now(session)
        session.step(4, save)
        assert (termination(tmp_path)["request"], termination(tmp_path)["step"]) == ("a2", 4)


@pytest.mark.parametrize(
    "content",
    [
        *("", "\n", "save", "[]", "{}", '{"request": 7}', '{"request": ""}', '{"request": "a\\u0000"}', "x" * 20_000),
        *('{"request": "a", "deadline": "soon"}', '{"request": "a", "deadline": NaN}', "[" * 16_000, "\ufeff{}"),
    ],
)
def test_a_request_that_makes_no_sense_changes_nothing(tmp_path: Path, content: str) -> None:
    show(tmp_path, content)
    with training.session(tmp_path / "c") as session:
        session.step(1, save)

    assert visible(tmp_path / "c") == []


def test_a_full_disk_does_not_end_the_training(tmp_path: Path) -> None:
    def full(saving: Saving) -> None:
        (saving.path / "half").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with training.session(tmp_path / "c", every_steps=1) as session:
        session.step(1, save)
        session.step(2, full)
        assert "gpufleet_training_save_failures_total 1\n" in session.metrics()
        session.step(3, save)

    assert visible(tmp_path / "c") == [*names(1, 3), "latest"]


def test_a_full_disk_at_sigterm_still_stops_with_143_and_names_the_checkpoint_before(tmp_path: Path) -> None:
    def full(saving: Saving) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert exit_code(tmp_path / "c", save, TERM, full, every_steps=1) == 143
    assert termination(tmp_path)["step"] == 1


def test_a_mistake_in_the_save_function_is_not_hidden(tmp_path: Path) -> None:
    def wrong(saving: Saving) -> None:
        raise KeyError("optimizer")

    with pytest.raises(KeyError), training.session(tmp_path / "c", every_steps=1) as session:
        session.step(1, wrong)


def test_a_checkpoint_that_is_pruned_while_it_is_loaded_is_no_reason_to_give_up(tmp_path: Path) -> None:
    store = a_store(tmp_path / "c", 1)
    tried = []

    def load(checkpoint: training.Checkpoint) -> bytes:
        tried.append(checkpoint.step)
        if len(tried) == 1:
            a_store(tmp_path / "c", 2)
            store.set_aside(1)
        return (checkpoint.path / "state").read_bytes()

    with training.session(tmp_path / "c") as session:
        assert session.resume(b"", load) == b"state 2"
    assert tried == [1, 2]


def test_a_state_that_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    a_store(tmp_path / "c", 1)

    with pytest.raises(FileNotFoundError), training.session(tmp_path / "c") as session:
        session.resume(None)


def test_the_metrics_file_is_kept(tmp_path: Path) -> None:
    with training.session(tmp_path / "c", every_steps=1, metrics_file=tmp_path / "m.prom") as session:
        session.step(1, save)

    text = (tmp_path / "m.prom").read_text()
    assert "gpufleet_training_checkpoint_step 1\n" in text
    assert "age" not in text, "a file that nobody writes any more would keep it young"
    assert all(line.startswith("# ") or len(line.split(" ")) == 2 for line in text.splitlines())


def test_the_termination_log_is_never_made_or_replaced(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.write_text("x" * 4_000)
    inode = log.stat().st_ino

    with training.session(tmp_path / "c", every_steps=1) as session:
        session.step(1, save)
        assert log.stat().st_ino == inode
        assert termination(tmp_path)["step"] == 1
        log.unlink()
        session.step(2, save)

    assert not log.exists()


def test_the_directory_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_CHECKPOINT_DIR", (tmp_path / "with space").as_uri())

    with training.session() as session:
        session.save(1, save)

    assert visible(tmp_path / "with space") == [*names(1), "latest"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [("", "no checkpoint directory"), ("s3://bucket/run", "for an object store"), ("file://host/run", "no directory")],
)
def test_a_directory_that_is_none_is_said(value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_CHECKPOINT_DIR", value)

    with pytest.raises(StoreUnusable, match=reason):
        training.session()


@pytest.mark.parametrize("option", [{"every_seconds": 0.0}, {"every_steps": -1}, {"agree_every": 0}])
def test_an_interval_that_is_none_is_refused(tmp_path: Path, option: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        training.session(tmp_path, **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [-1, 10**12])
def test_a_step_that_has_no_name_is_refused(tmp_path: Path, step: int) -> None:
    with pytest.raises(ValueError, match="must be from 0"), training.session(tmp_path / "c") as session:
        session.save(step, save)


def test_importing_the_helper_brings_no_more_than_it_needs() -> None:
    import subprocess
    import sys

    code = "import sys; import runtime.training; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    unwanted = {"torch", "http.server", "asyncio", "pydantic", "yaml", "lightkube", "concurrent.futures", "stacks"}
    assert unwanted.isdisjoint(found)
    assert not [name for name in found if name.startswith("runtime.") and not name.startswith("runtime.training")]


def test_a_copy_of_the_helper_works_alone(tmp_path: Path, repository: Path) -> None:
    import shutil
    import subprocess
    import sys

    shutil.copytree(repository / "runtime" / "training", tmp_path / "ours" / "saving_helper")
    code = (
        "from saving_helper import session, remote, distributed, hook\n"
        "with session('c', every_steps=1) as s: s.step(1, lambda saving: saving.pickle(7))\n"
        "with session('c') as s: assert s.resume(0) == 7\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'ours')!r})\n{code}"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr


def test_a_torn_checkpoint_error_names_the_file(tmp_path: Path) -> None:
    store = a_store(tmp_path / "c", 1)
    (store.path(1) / "state").write_bytes(b"other 1")

    with pytest.raises(TornCheckpoint, match=r"step-000000000001/state: its content is not what was saved"):
        store.open(1).verify()
