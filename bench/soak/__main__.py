"""Runs the soak, prints what it saw, and exits with 1 when a check did not hold."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

from bench.machine import describe
from bench.soak import proof
from bench.soak.cluster import Cluster, cluster, stop
from bench.soak.load import Pods, Tally, Users
from bench.soak.watching import Sample, Watchman, sampled
from kubeqos.client.http import HttpApi, HttpTransport
from kubeqos.client.kubeconfig import load

PATIENCE_SECONDS = 120.0
JUDGED_MINUTES = 16.0
"""A shorter run ends before history has its full length: its memory is printed, not judged."""


def main(arguments: list[str]) -> int:
    """Soak; the exit code says whether everything held."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args(arguments)
    print(describe())
    with cluster(options.nodes, options.port) as running:
        found = asyncio.run(soak(running, options.minutes * 60))
        stop(running.data_dir)
        found["no error in any log"] = proof.complaints(running)
        found["every ledger empty"] = proof.ledgers_left(running)
    print()
    for what, wrong in found.items():
        print(f"{'FAILED' if wrong else 'ok':6}  {what}")
        for line in wrong[:10]:
            print(f"        {line}")
    return any(found.values())


def patient(running: Cluster) -> HttpApi:
    """A client that waits for a busy machine: how fast it is, others measure."""
    return HttpApi(HttpTransport(load(running.kubeconfig), deadline=PATIENCE_SECONDS))


async def soak(running: Cluster, seconds: float) -> dict[str, list[str]]:
    """Churn, then delete everything; what was checked, and what was wrong with it."""
    api = patient(running)
    tally, samples, watchman = Tally(), list[Sample](), Watchman(api)
    pods = Pods(api, tally)
    users = Users(api, pods, tally, time.monotonic() + seconds)
    async with asyncio.TaskGroup() as beside:
        watchers = [
            beside.create_task(work) for work in (pods.informer.run(), sampled(api, running, samples), watchman.run())
        ]
        await pods.informer.synced.wait()
        await users.prepare()
        reporter = beside.create_task(reported(samples, tally, pods))
        async with asyncio.TaskGroup() as busy:
            for work in users.all(running.nodes):
                busy.create_task(work)
        reporter.cancel()
        churned = list(samples)
        found = await proven(api, running)
        for task in watchers:
            task.cancel()
    print_windows(churned, tally)
    found = {
        f"every wait of a user ended ({tally.started:,} pods started, {tally.refused:,} refused by quota)": tally.late,
        f"quota, slots and cores exact at {watchman.looks} moments": watchman.wrong,
        **found,
    }
    if seconds >= JUDGED_MINUTES * 60:
        found["memory, files and database flat"] = proof.growing(churned)
    await api.close()
    return found


async def proven(api: HttpApi, running: Cluster) -> dict[str, list[str]]:
    """In this order: later checks rest on the earlier ones."""
    return {
        "everything can be deleted": await proof.all_deleted(api),
        "no quota used": await proof.quotas_unused(api),
        "no core owned": await proof.nothing_owned(api),
        "every node can be filled again": await proof.every_slot_is_free(api, running.nodes),
        "and emptied again": await proof.all_deleted(api),
        "still no core owned": await proof.nothing_owned(api),
        "no unexpected warning event": await proof.unexpected_warnings(api),
        "namespaces can be deleted": await proof.namespaces_gone(api),
    }


async def reported(samples: list[Sample], tally: Tally, pods: Pods) -> None:
    """A line a minute, for who looks on."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(60)
        now = samples[-1]
        print(
            f"{(now.at - began) / 60:5.1f} min  {len(pods.informer):5} pods  {tally.started:7,} started"
            f"  {now.memory / 1e6:6.0f} MB  {now.database / 1e6:6.0f} MB database"
            f"  slowest answer {max(s.answer for s in samples if s.at > now.at - 60):.2f} s",
            flush=True,
        )


def print_windows(samples: list[Sample], tally: Tally) -> None:
    """Medians after the warm-up."""
    print("\nminutes       memory   plugins  database   CPU  files  threads  started/s  wait p50   p99  slowest answer")
    for window in proof.windows(samples):
        start, end = window[0].at, window[-1].at
        waits = sorted(wait for at, wait in tally.waits if start <= at < end) or [0.0]
        usual, slow = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        took = window[-1].cpu_seconds - window[0].cpu_seconds
        middle = {
            name: statistics.median(getattr(s, name) for s in window)
            for name in ("memory", "beside", "database", "files", "threads")
        }
        print(
            f"{(start - samples[0].at) / 60:4.1f} – {(end - samples[0].at) / 60:4.1f}"
            f"  {middle['memory'] / 1e6:5.0f} MB  {middle['beside'] / 1e6:5.0f} MB  {middle['database'] / 1e6:5.0f} MB"
            f"  {took / (end - start):3.0%}  {middle['files']:5.0f}  {middle['threads']:7.0f}"
            f"  {len(waits) / (end - start):9.1f}  {usual:6.2f} s {slow:5.2f} s"
            f"  {max(each.answer for each in window):5.2f} s"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
