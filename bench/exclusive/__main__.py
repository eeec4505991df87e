"""Runs the day, prints the watcher's report, and exits with 1 when a promise was broken or something was left."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from typing import Any

from tests.cri.containerd import missing

from bench.exclusive.house import REAL, SIMULATED, running_house
from bench.exclusive.trouble import Troublemaker
from bench.exclusive.users import KINDS, REAL_KINDS, Users, prepare
from bench.machine import describe
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES
from kubeqos.codec import decode_json

STARTING_SECONDS = 90.0
VISITORS = 3
"""Of each kind, one pod after the other."""


def main(arguments: list[str]) -> int:
    """Live through the day; the exit code says whether everything promised was kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.exclusive", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pods", type=int, default=1_000_000, help="end earlier, after so many pod starts")
    parser.add_argument("--starts", type=int, default=2_000, help="how many pods are to start in ten minutes")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--simulated", action="store_true", help="no nodes on containerd")
    parser.add_argument("--quiet", action="store_true", help="no trouble, only pods")
    options = parser.parse_args(arguments)
    print(f"{describe()}\nseed {options.seed}: again with --seed {options.seed}", flush=True)
    return asyncio.run(day(options))


async def day(options: argparse.Namespace) -> int:
    why = "--simulated was asked for" if options.simulated else missing()
    nodes = SIMULATED if why else {**SIMULATED, **REAL}
    print(f"no nodes on containerd: {why}" if why else f"on containerd and its kernel: {', '.join(REAL)}", flush=True)
    kinds = [*VISITORS * KINDS, *(() if why else REAL_KINDS)]
    async with running_house(nodes) as house:
        api = HttpApi.from_kubeconfig(house.kubeconfig)
        await nodes_ready(api, len(nodes))
        await prepare(api)
        watcher = await asyncio.create_subprocess_exec(*house.watcher(), stdout=asyncio.subprocess.PIPE)
        wanted = round(options.starts * options.minutes / 10)
        users = Users(api, kinds, options.seed, options.pods, time.monotonic() + options.minutes * 60, wanted)
        informing = asyncio.create_task(users.pods.run())
        reporting = asyncio.create_task(reported(users))
        try:
            await users.pods.synced.wait()
            trouble = Troublemaker(house, users.tally, options.seed)
            async with asyncio.TaskGroup() as busy:
                visitors = [busy.create_task(users.visitor(number)) for number in range(len(kinds))]
                trouble_task = None if options.quiet else busy.create_task(trouble.run(users.ends))
                await asyncio.wait(visitors)
                if trouble_task is not None:
                    await trouble.calm(trouble_task)
        finally:
            informing.cancel()
            reporting.cancel()
            watcher.send_signal(signal.SIGTERM)
            said, _ = await watcher.communicate()
            await api.close()
        return verdict(users, json.loads(said))


async def nodes_ready(api: HttpApi, count: int) -> None:
    """Wait until every node says that it is ready."""
    async with asyncio.timeout(STARTING_SECONDS):
        while True:
            nodes = [decode_json(raw) for raw in (await api.list(NODES)).items]
            conditions = [one for node in nodes for one in node.get("status", {}).get("conditions", ())]
            if sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions) == count:
                return
            await asyncio.sleep(0.2)


async def reported(users: Users) -> None:
    """A line a minute, for who looks on."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(60)
        tally = users.tally
        print(f"{(time.monotonic() - began) / 60:5.1f} min  {tally.started:5} pods started", flush=True)


def verdict(users: Users, nodes: dict[str, dict[str, Any]]) -> int:
    """Print what was seen; 1 if something was wrong."""
    tally = users.tally
    print(f"\n{tally.started:,} pods started, {tally.created - tally.started:,} were refused or waited in vain")
    if tally.started < users.starts and users.starts <= users.most:
        print(f"  {users.starts:,} were to start: this machine was too busy or too slow for that")
    print("  " + ", ".join(f"{reason} {count}" for reason, count in sorted(tally.refused.items())))
    print("  " + ", ".join(f"{what} {count}" for what, count in sorted(tally.troubles.items())))
    heads = {"samples": 9, "per second": 12, "longest gap": 13, "containers": 12, "owners": 8, "at once": 9, "moves": 8}
    print(f"\n{'node':10}" + "".join(f"{head:>{width}}" for head, width in heads.items()))
    for name, one in nodes.items():
        print(
            f"{name:10}{one['samples']:>9,}{one['perSecond']:>12}{one['longestGapSeconds']:>11} s"
            f"{one['containers']:>12,}{one['owners']:>8,}"
            f"{one['mostAtOnce']:>9}{one['cpusetChanges']:>8,}"
        )
    checks = {
        "no two containers ever shared a core that one of them owns, and no promise was unpinned": [
            f"{name}: {what}" for name, one in nodes.items() for what in one["violations"]
        ],
        "every pod that was deleted went": tally.wrong,
        "every node was looked at": [name for name, one in nodes.items() if not one["samples"]],
        "owners ran on every node": [name for name, one in nodes.items() if not one["owners"]],
    }
    print()
    for what, wrong in checks.items():
        print(f"{'FAILED' if wrong else 'ok':6}  {what}")
        for line in wrong[:20]:
            print(f"        {line}")
    return int(any(checks.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
