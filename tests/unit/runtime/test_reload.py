from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest

from runtime.errors import SettingsError
from runtime.kube import CONFIG_MAPS
from runtime.reload import Reload, judge
from stacks.agent_config import AgentConfig, dump
from stacks.labels import AGENT_NAME
from tests.builders import a_config, a_team
from tests.fakes.cluster import FakeCluster
from tests.fakes.furniture import put_config

PATIENCE_SECONDS = 30.0


def test_a_good_change_is_taken_and_the_same_text_changes_nothing() -> None:
    changed = a_config(interval="9s", teams={"vision": a_team("vision")})
    assert judge(dump(changed), a_config()) == changed
    assert judge(dump(a_config()), a_config()) == a_config()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"gate": "another"}, "gate"),
        ({"ledger": {"kind": "object-store", "url": "s3://bucket/ledger"}}, "ledger"),
        ({"replay_speed": 60.0}, "replay_speed"),
    ],
)
def test_what_may_not_change_while_an_agent_runs_is_refused_with_what_to_do(
    change: dict[str, object], name: str
) -> None:
    with pytest.raises(SettingsError, match=f"{name} cannot change .* kubectl rollout restart"):
        judge(dump(a_config(**change)), a_config())


GARBAGE = random.Random(1).randbytes(300_000).decode("latin-1")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no entry"),
        pytest.param("", id="empty"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a list"),
        pytest.param("organization: acme", id="nearly everything is missing"),
        pytest.param("a: [", id="not YAML"),
        pytest.param(GARBAGE, id="garbage"),
        pytest.param("x" * 1_048_576, id="a megabyte of text"),
        pytest.param("[" * 1_500, id="brackets"),
        pytest.param("a: 2026-99-99", id="a date that is none"),
        pytest.param("? {}\n: 1", id="a key that is a map"),
        pytest.param("!!python/object/apply:os.system ['true']", id="code"),
        pytest.param("a: &a [*a]", id="itself"),
        pytest.param(dump(a_config()) + "unknown: 1\n", id="of a newer version"),
        pytest.param("\n".join(f"k{number}: v" for number in range(3_000)), id="thousands of reasons"),
    ],
)
def test_what_is_no_configuration_is_refused_in_one_short_line(text: str | None) -> None:
    started = time.monotonic()
    with pytest.raises(SettingsError, match="ConfigMap gpufleet-router") as caught:
        judge(text, a_config())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_500
    assert time.monotonic() - started < 10


def following(story: Callable[[FakeCluster, Reload, list[AgentConfig]], Awaitable[None]]) -> None:
    async def tell() -> None:
        cluster = FakeCluster()
        accepted: list[AgentConfig] = []
        reload = Reload(cluster.kube(), "system", a_config(), accepted.append)
        running = asyncio.create_task(reload.run())
        try:
            await story(cluster, reload, accepted)
        finally:
            assert not running.done(), running.exception()
            running.cancel()

    asyncio.run(tell())


async def until(happened: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not happened():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def test_a_bad_configuration_stands_refused_until_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: FakeCluster, reload: Reload, accepted: list[AgentConfig]) -> None:
        put_config(cluster, dump(a_config()))
        await asyncio.sleep(0.05)
        assert accepted == []
        put_config(cluster, "organization: [")
        await until(lambda: reload.refused)
        cluster.change(CONFIG_MAPS, AGENT_NAME, "system", lambda raw: raw["metadata"].update(labels={"a": "b"}))
        cluster.end_watches()
        await asyncio.sleep(0.4)
        assert len([record for record in caplog.records if "refused" in record.message]) == 1
        put_config(cluster, dump(a_config()))
        await until(lambda: reload.refused is None)
        assert accepted == [], "it is the one in force"
        put_config(cluster, dump(a_config(interval="7s")))
        await until(lambda: accepted)
        assert accepted == [a_config(interval="7s")]

    following(story)


def test_a_configmap_that_is_gone_changes_nothing_and_raises_no_alarm() -> None:
    async def story(cluster: FakeCluster, reload: Reload, accepted: list[AgentConfig]) -> None:
        put_config(cluster, dump(a_config(interval="7s")))
        await until(lambda: accepted)
        cluster.remove(CONFIG_MAPS, AGENT_NAME, "system")
        await asyncio.sleep(0.05)
        assert (reload.refused, len(accepted)) == (None, 1)
        put_config(cluster, dump(a_config(interval="8s")))
        await until(lambda: len(accepted) == 2)

    following(story)


def test_a_configmap_of_that_name_elsewhere_is_not_ours() -> None:
    async def story(cluster: FakeCluster, reload: Reload, accepted: list[AgentConfig]) -> None:
        put_config(cluster, "garbage: [", namespace="other")
        await asyncio.sleep(0.05)
        assert (reload.refused, accepted) == (None, [])

    following(story)
