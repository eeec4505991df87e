"""How large pools should be."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.hardware.named import kep80
from kubeqos.qrm.plugins.cpu.advisor import Advice, AdvisorConfig, Policy, PoolFacts, advise
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.cpu.usage import UsageReader
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.sdk.values import Request

FEEDBACK = AdvisorConfig(policy=Policy.FEEDBACK)


def test_fixed_pools_stay() -> None:
    assert advise(AdvisorConfig(), {"a": PoolFacts(4, requested=100)}, 8) is None


def test_proportional_pools_follow_requests_above_their_floors() -> None:
    pools = {"a": PoolFacts(40, floor=4, requested=30), "b": PoolFacts(40, floor=4, requested=10)}
    advice = advise(AdvisorConfig(policy=Policy.PROPORTIONAL), pools, 80)
    assert advice is not None and advice.sizes == {"a": 58, "b": 22}


def test_feedback_grows_a_busy_pool_at_once() -> None:
    pools = {"online": PoolFacts(20, used=19), "offline": PoolFacts(60, used=10)}
    advice = advise(FEEDBACK, pools, 80)
    assert advice is not None and advice.sizes == {"online": 28, "offline": 52}
    assert advice.because == "online uses 19.0 of 20 CPUs and waits 0 %"


def test_feedback_grows_a_pool_whose_tasks_wait() -> None:
    pools = {"online": PoolFacts(20, used=13, pressure=25), "offline": PoolFacts(60)}
    advice = advise(FEEDBACK, pools, 80)
    assert advice is not None and advice.sizes["online"] == 23


def test_feedback_shrinks_only_after_patience_and_never_below_the_floor() -> None:
    pools = {"online": PoolFacts(40, floor=6, used=1), "offline": PoolFacts(40)}
    votes: dict[str, int] = {}
    sizes = []
    for _ in range(3):
        advice = advise(FEEDBACK, pools, 80, votes)
        assert isinstance(advice, Advice)
        votes = dict(advice.shrinking)
        sizes.append(advice.sizes["online"])
    assert sizes == [40, 40, 6]


def test_small_differences_are_noise() -> None:
    pools = {"online": PoolFacts(20, used=14.5), "offline": PoolFacts(60)}
    assert advise(FEEDBACK, pools, 80) is None


facts = st.builds(
    lambda floor, extra, requested, used, pressure: PoolFacts(floor + extra, floor, requested, used, pressure),
    *(st.integers(1, 4), st.integers(0, 30), st.floats(0, 50), st.floats(0, 90), st.floats(0, 100)),
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([Policy.PROPORTIONAL, Policy.FEEDBACK]), st.lists(facts, min_size=1, max_size=4))
def test_advice_spends_exactly_what_there_is_and_keeps_floors(policy: Policy, found: list[PoolFacts]) -> None:
    pools = {f"p{at}": one for at, one in enumerate(found)}
    total = sum(one.size for one in found)
    advice = advise(AdvisorConfig(policy=policy, patience=1), pools, total)
    if advice is not None:
        assert sum(advice.sizes.values()) == total
        assert all(size >= pools[name].floor for name, size in advice.sizes.items())


def write_usage(root: Path, uid: str, seconds: float, pressure: float) -> None:
    group = root / "kubepods" / f"pod{uid}"
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.stat").write_text(f"usage_usec {int(seconds * 1e6)}\nuser_usec 0\n")
    (group / "cpu.pressure").write_text(f"some avg10={pressure} avg60=0.00 avg300=0.00 total=0\n")


def test_the_plugin_follows_real_usage(tmp_path: Path) -> None:
    now = [0.0]
    text = """
pools: {online: {size: 20}, offline: {size: 60}}
roles: {web: {pool: online}}
advisor: {policy: feedback}
"""
    usage = UsageReader(tmp_path, clock=lambda: now[0])
    plugin = CpuPlugin(kep80(), read_config(text, CpuConfig, "cpu.yaml"), usage)
    plugin.allocate(Request("uid-1", "cpu", 4, role="web"))
    write_usage(tmp_path, "uid-1", 100, 0)
    plugin.follow_advice()
    assert len(plugin.state.pools.named["online"]) == 20
    now[0] = 10.0
    write_usage(tmp_path, "uid-1", 100 + 190, 0)
    plugin.follow_advice()
    assert {name: str(cpus) for name, cpus in plugin.state.pools.named.items()} == {
        "online": "0-13,40-53",
        "offline": "14-39,54-79",
    }
