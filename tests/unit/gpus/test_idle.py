"""Idle and under-used devices, and what would do instead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.gpus.idle import DEFAULT_LIMITS, Finding, History, Waste, judge, smallest
from runtime.gpus.reader import Profile, Usage
from stacks.catalogue import catalogue

H100 = catalogue().gpus["h100-sxm-80gb"]
HOLDER = frozenset({("ml", "train-0")})


def profiles() -> list[Profile]:
    assert H100.mig is not None
    return [
        Profile(
            name=profile.name,
            slices=profile.slices,
            profile_id=profile.profile_id or 0,
            number=profile.number,
            starts=profile.starts,
            size=profile.size,
            max_count=profile.max_count,
            sms=profile.sms or 0,
            memory_mib=profile.memory_mib or 0,
            copy_engines=0,
            decoders=0,
            encoders=0,
            jpeg_engines=0,
            ofa_engines=0,
        )
        for profile in H100.mig.profiles.values()
    ]


def history(*, active: float, memory: int | None, sm_active: float | None = None, seconds: int = 3600) -> History:
    found = History()
    for at in range(0, seconds + 1, 60):
        found.add(Usage("GPU-0", memory, active, sm_active, None, None, 1), HOLDER, float(at))
    return found


def found(past: History, *, sms: int | None = 132) -> Finding | None:
    return judge(past.of("GPU-0"), sms=sms, memory_mib=81559, profiles=profiles())


def test_a_gpu_that_is_held_and_does_nothing_is_idle() -> None:
    finding = found(history(active=0.0, memory=30_000))
    assert finding is not None
    assert (finding.waste, finding.fits) == (Waste.IDLE, None)


def test_one_moment_of_work_in_the_window_is_not_idle() -> None:
    past = history(active=0.0, memory=60_000)
    past.add(Usage("GPU-0", 60_000, 0.9, None, None, None, 1), HOLDER, 3601.0)
    assert found(past) is None


def test_a_small_job_on_a_whole_gpu_is_told_the_smallest_profile_with_room() -> None:
    def fits(memory: int, active: float, sm_active: float | None = None) -> str | None:
        finding = found(history(active=active, memory=memory, sm_active=sm_active))
        return finding.fits if finding else None

    assert fits(6_000, 0.05) == "1g.10gb"
    assert fits(12_000, 0.05) == "1g.20gb"  # memory decides, and SMs are few
    assert fits(12_000, 0.18) == "2g.20gb"  # 132 x 0.18 x 1.25 = 30 SMs
    assert fits(12_000, 0.18, sm_active=0.05) == "1g.20gb"  # what was busy counts, where it is told
    assert fits(30_000, 0.05) == "3g.40gb"
    assert fits(60_000, 0.05) is None  # nothing smaller has room


def test_a_busy_gpu_and_one_without_figures_are_left_alone() -> None:
    assert found(history(active=0.5, memory=1_000)) is None
    assert found(history(active=0.05, memory=None)) is None
    assert found(history(active=0.05, memory=1_000), sms=None) is None


def test_nothing_is_said_before_the_window_is_nearly_full() -> None:
    assert found(history(active=0.0, memory=0, seconds=3_000)) is None
    assert found(history(active=0.0, memory=0, seconds=3_300)) is not None


def test_a_new_holder_is_measured_anew_and_nobody_is_not_measured() -> None:
    past = history(active=0.0, memory=0)
    past.add(Usage("GPU-0", 0, 0.0, None, None, None, 1), frozenset({("ml", "other")}), 3660.0)
    assert len(past.of("GPU-0")) == 1
    past.add(Usage("GPU-0", 0, 0.0, None, None, None, 0), frozenset(), 3720.0)
    assert past.of("GPU-0") == ()
    past.keep([])
    assert past.of("GPU-0") == ()


def test_only_the_window_is_kept() -> None:
    past = history(active=0.1, memory=0, seconds=36_000)
    readings = past.of("GPU-0")
    assert readings[-1].at - readings[0].at == DEFAULT_LIMITS.window_seconds


@given(st.floats(0, 100_000), st.floats(0, 200), st.integers(1, 90_000))
def test_a_proposal_always_has_room_and_is_smaller(memory: float, sms: float, below: int) -> None:
    by_name = {profile.name: profile for profile in profiles()}
    name = smallest(profiles(), memory_mib=memory, sms=sms, below_mib=below)
    if name is None:
        assert not any(
            memory <= each.memory_mib < below and each.sms >= sms for each in by_name.values() if "+" not in each.name
        )
    else:
        assert by_name[name].memory_mib >= memory
        assert by_name[name].sms >= sms
        assert by_name[name].memory_mib < below
        assert "+" not in name
