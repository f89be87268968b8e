"""Scenarios of the simulation: each is a table, its rows made one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from random import Random
from typing import Any, Final

from benchmarks.scale.balance import POLICIES
from benchmarks.scale.cluster import Change, Cluster, Outcome, Plan
from benchmarks.scale.load import Measured, bursty, poisson

Row = dict[str, Any]
SIZES: Final = (1, 10, 100, 1000)
# From one burst to the next; one takes a fifth of it.
CYCLE_S: Final = 1.0
# What a balancer of Kubernetes or HAProxy takes to notice that a node is gone, with the probes of deploy/.
CHECK_S: Final = 4.0
# From more load to a pod that is scheduled: metrics are scraped every 15 s, the autoscaler looks every 15 s, then 5 s.
REACTION_S: Final = 35.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Values that all scenarios share.

    Args:
        heavy, alike: service times; see measure.py.
        shared_share: what of a run is spent once, however many requests share it.
        requests: of one simulation, about.
        hour_cost: of a node, in dollars.
        is_short: whether scenarios that must last a time are cut short: to see that they run, and nothing else.
    """

    heavy: Measured
    alike: Measured
    shared_share: float = 0.6
    requests: int = 200_000
    hour_cost: float = 0.08
    is_short: bool = False


def simulate(world: World, plan: Plan, load: float, *, is_bursty: bool = False, requests: int | None = None) -> Outcome:
    """Return the outcome of a plan at a share of its nodes' serial capacity, without its first tenth."""
    random = Random(1)
    rate = load * plan.nodes / plan.service.mean_s()
    if not is_bursty:
        until_s = (requests or world.requests) / rate
        return Cluster(plan, random, settle_s=until_s / 10).run(poisson(rate, until_s, random))
    # Bursts are as long however many nodes there are, and there should be some.
    until_s = max(0.0 if world.is_short else 10 * CYCLE_S, (requests or world.requests) / rate)
    arrivals = bursty(rate, until_s, random, times=2.0, cycle_s=CYCLE_S)
    return Cluster(plan, random, settle_s=until_s / 10).run(arrivals)


def waits(outcome: Outcome) -> Row:
    """Return the waits that a client sees."""
    return {
        "p50 ms": f"{outcome.quantile_s(0.5) * 1e3:.1f}",
        "p99 ms": f"{outcome.quantile_s(0.99) * 1e3:.1f}",
        "refused %": f"{100 * outcome.refused / max(outcome.asked, 1):.2f}",
    }


def sizes(world: World) -> Iterator[Row]:
    """Nodes, balancing and arrivals at 70 % of the nodes' capacity; bursts reach all nodes at once."""
    for arrivals in ("Poisson", "bursts"):
        for nodes in SIZES:
            most = nodes == SIZES[-1] and arrivals == "bursts"
            for policy in ("-",) if nodes == 1 else ("random", "least request") if most else POLICIES:
                plan = Plan(nodes=nodes, policy="random" if policy == "-" else policy, service=world.heavy)
                found = simulate(world, plan, 0.7, is_bursty=arrivals == "bursts")
                yield {"nodes": nodes, "arrivals": arrivals, "balancing": policy, **waits(found)}


def tails(world: World) -> Iterator[Row]:
    """Effect of heavy tails and of a queue in the balancer: ten nodes."""
    for name, service in (("alike", world.alike), ("heavy-tailed", world.heavy)):
        for load in (0.5, 0.7, 0.85):
            row: Row = {"requests": name, "load": f"{load:.2f}"}
            for policy in POLICIES:
                found = simulate(world, Plan(nodes=10, policy=policy, service=service), load)
                row[f"{policy}: p99"] = f"{found.quantile_s(0.99) * 1e3:.1f}"
            queue = simulate(world, Plan(nodes=10, policy="least request", service=service, limit=2), load)
            yield row | {"least, 2 at once: p99": f"{queue.quantile_s(0.99) * 1e3:.1f}"}


def inflight(world: World) -> Iterator[Row]:
    """Requests in flight a node, of ten nodes on average: the signal of an autoscaler."""
    for load in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        row: Row = {"load": f"{load:.2f}"}
        for policy in ("random", "least request"):
            found = simulate(world, Plan(nodes=10, policy=policy, service=world.heavy), load)
            row[policy] = f"{load * found.mean_s() / world.heavy.mean_s():.2f}"  # Little's law
        yield row


def batches(world: World) -> Iterator[Row]:
    """Effect of batching: ten nodes, up to eight requests a run; load relative to serial capacity."""
    for load in (0.5, 0.8, 1.2, 1.6):
        for batch, limit in ((1, None), (8, None), (8, 2), (8, 16)):
            row: Row = {"load": f"{load:.1f}", "runs of": batch, "at once": limit or "all"}
            for policy in ("round robin", "least request"):
                if limit and policy != "least request":
                    row[f"{policy}: p99"] = "-"
                    continue
                plan = Plan(nodes=10, policy=policy, service=world.alike, max_batch=batch, limit=limit)
                found = simulate(world, replace(plan, shared_share=world.shared_share), load)
                lost = found.refused > 0.01 * found.asked or found.mean_s() > 1
                row[f"{policy}: p99"] = "too much" if lost else f"{found.quantile_s(0.99) * 1e3:.1f}"
            yield row


def balancers(world: World) -> Iterator[Row]:
    """A thousand nodes behind several balancers; each sees only the requests it has sent."""
    for count in (1, 10, 100, 1000):
        for policy in ("two choices", "least request"):
            plan = Plan(nodes=1000, policy=policy, service=world.heavy, balancers=count)
            yield {"balancers": count, "balancing": policy, **waits(simulate(world, plan, 0.7))}


def losses(world: World) -> Iterator[Row]:
    """Nodes lost with all their requests, at 60 % load; health checks notice after four seconds."""
    for nodes, lost in ((10, 1), (100, 1), (100, 33), (1000, 1)):
        for errors in (None, 10):
            for tries in (1, 2):
                plan = Plan(
                    nodes=nodes, policy="least request", service=world.heavy, tries=tries, errors=errors,
                    changes=(Change(at_s=1.0, lost=lost),), check_s=CHECK_S,
                )  # fmt: skip
                until_s = 2 * CHECK_S if nodes < SIZES[-1] else 1.2 * CHECK_S
                until_s = until_s if not world.is_short else 0.01
                found = simulate(world, plan, 0.6, requests=int(until_s * 0.6 * nodes / world.heavy.mean_s()))
                yield {"nodes": nodes, "lost": lost, "noticed by": "checks" if errors is None else "checks, 10 errors",
                       "sent at most": tries, "failed": found.failed, "of": found.asked, **waits(found)}  # fmt: skip


def starts(world: World) -> Iterator[Row]:
    """Load doubles to 1.2 of the capacity of ten nodes; ten more come when they have started."""
    step_s, until_s = (10.0, 100.0) if not world.is_short else (0.1, 0.2)
    times = {"1.3 s, code cached": 1.3, "4.2 s, compiling": 4.2, "30 s, a large model": 30.0, "never": None}
    for nodes in (10, 20):
        for name, start_s in times.items() if nodes == 10 else (("16 nodes already there", None),):
            random, there = Random(1), nodes if nodes == 10 else 16
            rate = 0.6 * 10 / world.heavy.mean_s()
            calm = poisson(rate, step_s, random)
            busy = (step_s + each for each in poisson(2 * rate, until_s - step_s, random))
            come = () if start_s is None else (Change(at_s=step_s + REACTION_S + start_s, come=10),)
            plan = Plan(nodes=there, policy="least request", service=world.heavy, changes=come, check_s=1.0)
            found = Cluster(plan, random, settle_s=step_s).run(chain(calm, busy))
            yield {"a start takes": name, "refused": found.refused, "of": found.asked, **waits(found)}


def costs(world: World) -> Iterator[Row]:
    """Highest load for a p99 of five times the mean service time, and the cost of a million requests."""
    limit_s = 5 * world.heavy.mean_s()
    for nodes in SIZES:
        for policy in ("random", "two choices", "least request") if nodes > 1 else ("random",):
            plan = Plan(nodes=nodes, policy=policy, service=world.heavy)
            load = fullest(lambda load, plan=plan: _keeps(world, plan, load, limit_s))  # type: ignore[misc]
            if load is None:
                yield {
                    "nodes": nodes,
                    "balancing": policy if nodes > 1 else "-",
                    "load": "none",
                    "requests/s": "-",
                    "$ a million": "-",
                }
                continue
            rate = load * nodes / world.heavy.mean_s()
            dollars = nodes * world.hour_cost / 3600 / rate * 1e6
            yield {"nodes": nodes, "balancing": policy if nodes > 1 else "-", "load": f"{load:.2f}",
                   "requests/s": f"{rate:.0f}", "$ a million": f"{dollars:.3f}"}  # fmt: skip


def _keeps(world: World, plan: Plan, load: float, limit_s: float) -> bool:
    found = simulate(world, plan, load, requests=world.requests // 4)
    return found.quantile_s(0.99) <= limit_s and found.refused == 0


def fullest(keeps: Callable[[float], bool], steps: int = 6) -> float | None:
    """Return the highest load that keeps a promise, within 2 %; None if none does."""
    low, high = 0.0, 1.0
    for _ in range(steps):
        middle = (low + high) / 2
        if keeps(middle):
            low = middle
        else:
            high = middle
    return low or None


SCENARIOS: Final[dict[str, tuple[str, Callable[[World], Iterator[Row]]]]] = {
    "sizes": ("Nodes, balancing and arrivals", sizes),
    "tails": ("Round robin or least request", tails),
    "inflight": ("In flight", inflight),
    "batches": ("With batching", batches),
    "balancers": ("Several balancers", balancers),
    "losses": ("Nodes that are lost", losses),
    "starts": ("Twice the load, and starts", starts),
    "costs": ("What it costs", costs),
}
