"""Simulation of many machines, compared with formulas of queues and laws that hold for every run."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from random import Random

import pytest

from benchmarks.scale.__main__ import shared_share
from benchmarks.scale.balance import POLICIES
from benchmarks.scale.cluster import Change, Cluster, Outcome, Plan
from benchmarks.scale.load import Exponential, Measured, bursty, poisson
from benchmarks.scale.measure import TIMES
from benchmarks.scale.page import PAGE, RESULTS, PageError, Results, rewritten
from benchmarks.scale.scenarios import SCENARIOS, World

SERVICE = Exponential(1.0)


def simulated(plan: Plan, load: float, requests: int = 60_000, seed: int = 7) -> Outcome:
    """Return the outcome of a cluster at a share of its capacity."""
    random = Random(seed)
    rate = load * plan.nodes * plan.slots / plan.service.mean_s()
    until_s = requests / rate
    return Cluster(plan, random, settle_s=until_s / 10).run(poisson(rate, until_s, random))


def plan(nodes: int = 1, policy: str = "random", **more: object) -> Plan:
    return Plan(**{"nodes": nodes, "policy": policy, "service": SERVICE, "max_queue": 10**9, **more})  # type: ignore[arg-type]


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that a request waits in M/M/c."""
    offered = servers * load
    term, total = 1.0, 1.0
    for k in range(1, servers):
        term *= offered / k
        total += term
    last = term * offered / servers / (1 - load)
    return last / (total + last)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_node_is_m_m_1(load: float) -> None:
    found = simulated(plan(), load)
    assert found.mean_s() == pytest.approx(1 / (1 - load), rel=0.08)
    assert found.quantile_s(0.99) == pytest.approx(math.log(100) / (1 - load), rel=0.12)


@pytest.mark.parametrize("servers", [2, 8])
def test_a_node_with_several_runs_at_once_is_m_m_c(servers: int) -> None:
    load = 0.8
    found = simulated(plan(slots=servers), load)
    waiting_s = erlang_c(servers, load) / (servers * (1 - load))
    assert found.mean_s() == pytest.approx(1 + waiting_s, rel=0.05)


def test_constant_and_heavy_tailed_times_wait_as_pollaczek_and_khinchine_say() -> None:
    for times in ([1.0], [0.5] * 19 + [10.5]):
        service = Measured(times)
        load, mean = 0.7, service.mean_s()
        square = sum(each**2 for each in times) / len(times)
        expected = mean + load / mean * square / (2 * (1 - load))
        assert simulated(plan(service=service), load).mean_s() == pytest.approx(expected, rel=0.1)


def test_nodes_chosen_at_random_are_as_many_queues_of_their_own() -> None:
    assert simulated(plan(20), 0.8).mean_s() == pytest.approx(5, rel=0.1)


def test_two_choices_wait_as_mitzenmacher_says_of_many_nodes() -> None:
    load = 0.8
    expected = sum(load ** (2**i - 2) for i in range(1, 12))
    assert simulated(plan(300, "two choices"), load, 150_000).mean_s() == pytest.approx(expected, rel=0.04)


def test_least_request_is_between_one_queue_for_all_and_two_choices() -> None:
    one_queue = 1 + erlang_c(20, 0.8) / (20 * 0.2)
    least = simulated(plan(20, "least request"), 0.8).mean_s()
    assert one_queue * 0.98 < least < simulated(plan(20, "two choices"), 0.8).mean_s()


def test_a_balancer_that_holds_requests_until_a_node_is_free_is_one_queue() -> None:
    found = simulated(plan(8, "least request", limit=1), 0.8)
    assert found.mean_s() == pytest.approx(1 + erlang_c(8, 0.8) / (8 * 0.2), rel=0.05)


def test_arrivals_are_as_many_as_they_should_be_and_bursts_are_bursts() -> None:
    random = Random(3)
    for process in (poisson, bursty):
        assert sum(1 for _ in process(50, 2000, random)) == pytest.approx(100_000, rel=0.06)
    calm, burst = ([sum(1 for each in found if second <= each < second + 1) for second in range(300)]
                   for found in (list(process(20, 300, Random(5))) for process in (poisson, bursty)))  # fmt: skip
    assert max(burst) > 1.5 * max(calm)


@pytest.mark.parametrize(("policy", "limit"), [*((each, None) for each in POLICIES), ("least request", 2)])
def test_every_request_is_answered_refused_or_failed_once(policy: str, limit: int | None) -> None:
    changes = (Change(at_s=20, lost=4), Change(at_s=40, come=3), Change(at_s=60, lost=5))
    found = simulated(plan(5, policy, max_queue=3, balancers=2, limit=limit, changes=changes, max_batch=4), 1.2, 500)
    assert found.asked == len(found.waits_s) + found.refused + found.failed
    assert found.failed and found.retried and (found.refused or limit)


def test_a_lost_node_costs_a_client_that_asks_again_nothing_but_time() -> None:
    lost = plan(50, "least request", changes=(Change(at_s=30, lost=5),), check_s=0.0, tries=9)
    found = simulated(lost, 0.6, 5000)
    assert (found.failed, found.refused) == (0, 0) and 0 < found.retried < 100
    assert simulated(replace(lost, tries=1), 0.6, 5000).failed > 0


def test_a_node_that_refuses_at_once_attracts_requests_until_errors_are_counted() -> None:
    lost = plan(10, "least request", changes=(Change(at_s=100, lost=1),), check_s=20.0, tries=1)
    assert simulated(replace(lost, errors=3), 0.6, 3000).failed < 10 < 30 < simulated(lost, 0.6, 3000).failed


def test_nodes_that_come_take_their_share_once_the_balancers_know() -> None:
    helped = plan(4, "round robin", changes=(Change(at_s=100, come=4),), check_s=5.0)
    assert simulated(helped, 1.5, 6000).mean_s() < 0.5 * simulated(plan(4, "round robin"), 1.5, 6000).mean_s()


def test_shared_runs_answer_as_many_as_their_cost_allows() -> None:
    shared = plan(service=Measured([1.0]), max_batch=8, shared_share=0.5)
    assert simulated(shared, 1.4, 20_000).mean_s() < 8
    assert simulated(shared, 1.9, 20_000).mean_s() > 100  # 8 requests in 4.5 s is the most there is


def test_what_is_spent_once_a_run_follows_from_what_batches_take() -> None:
    assert shared_share({1: 2.0, 2: 3.0, 8: 9.0}) == pytest.approx(0.5)
    assert shared_share({1: 2.0}) == shared_share({}) == shared_share({1: 1.0, 8: 9.0}) == 0.0


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_table_has_rows_with_the_same_columns(name: str) -> None:
    world = World(heavy=Measured([0.002] * 9 + [0.05]), alike=Measured([0.002]), requests=300, is_short=True)
    rows = list(SCENARIOS[name][1](world))
    assert len({tuple(row) for row in rows}) == 1 and len(rows) > 2


def test_a_run_is_the_same_when_it_is_run_again() -> None:
    first, second = (simulated(plan(10, "two choices", balancers=3), 0.9, 2000) for _ in range(2))
    assert first == second and simulated(plan(10, "two choices", balancers=3), 0.9, 2000, seed=8) != first


def test_the_page_has_the_figures_that_were_simulated() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rewritten(text, Results(RESULTS, TIMES)) == text, "python -m benchmarks.scale.page"


def test_other_figures_make_another_page_and_a_sentence_that_is_gone_is_told() -> None:
    text, found = PAGE.read_text(encoding="utf-8"), Results(RESULTS, TIMES)
    wrong = re.sub(r"uniform, 70 % \| [\d.]+", "uniform, 70 % | 0.1", text)
    wrong = re.sub(r"[\d,]+ requests of 530", "4,711 requests of 530", wrong)
    assert wrong != text and rewritten(wrong, found) == text
    with pytest.raises(PageError, match="found 0 times, expected once: .* none if clients retry"):
        rewritten(text.replace("none if clients", "some if clients"), found)
    with pytest.raises(PageError, match="found no table: . load . random"):
        rewritten(text.replace("| load | random (a Service)", "| share | random"), found)
