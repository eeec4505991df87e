"""Runs inside the guest, on Debian's own Python: says what the kernel says. It imports nothing of kubeqos.

`checker.py WHAT [JSON]` prints one JSON answer. Containers are found by the id that the API shows, in /proc/*/cgroup;
values come from /sys/fs/cgroup (version 2) and /proc.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def main_process(container_id: str) -> int:
    """The first process of a container: the oldest in its cgroup."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if container_id in (entry / "cgroup").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    if not found:
        raise SystemExit(f"no process of {container_id} runs")
    return min(found)


def cgroup_of(container_id: str) -> Path:
    """The container's cgroup, as its main process says it."""
    lines = Path(f"/proc/{main_process(container_id)}/cgroup").read_text().splitlines()
    return CGROUPS / next(line for line in lines if line.startswith("0::"))[3:].strip("/")


def process(asked: dict) -> dict:
    """Where the container's process may run and keep memory, and what it may not do."""
    pid = main_process(asked["id"])
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    limits = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        name, soft, hard = re.match(r"(.+?)\s{2,}(\S+)\s+(\S+)", line).groups()
        limits[name] = [soft, hard]
    return {
        "pid": pid,
        "cpus": status["Cpus_allowed_list"],
        "mems": status["Mems_allowed_list"],
        "oomScoreAdj": int(Path(f"/proc/{pid}/oom_score_adj").read_text()),
        "limits": limits,
    }


def pages(asked: dict) -> dict:
    """How many pages of the container's anonymous memory lie on which NUMA node, over all of its processes."""
    group, found = cgroup_of(asked["id"]), {}
    for pid in (group / "cgroup.procs").read_text().split():
        for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
            if " anon=" in line and " file=" not in line:  # pages of a file lie where it was first read
                for node, count in re.findall(r" N(\d+)=(\d+)", line):
                    found[node] = found.get(node, 0) + int(count)
    return found


def files(asked: dict) -> dict:
    """Every readable value of a cgroup and of its ancestors: by path, then by file."""
    path = cgroup_of(asked["id"]) if "id" in asked else CGROUPS / asked["path"].strip("/")
    found = {}
    while path != CGROUPS:
        values = {}
        for file in path.iterdir():
            if file.is_file() and file.name.split(".")[0] in ("cpu", "cpuset", "memory", "io", "hugetlb", "pids"):
                try:
                    values[file.name] = file.read_text().strip()
                except OSError:
                    continue
        found["/" + str(path.relative_to(CGROUPS))] = values
        path = path.parent
    return found


def tree(asked: dict) -> list:
    """Every cgroup below a path."""
    root = CGROUPS / asked["path"].strip("/")
    return sorted("/" + str(path.relative_to(CGROUPS)) for path in root.rglob("*") if path.is_dir())


def usage(asked: dict) -> dict:
    """CPU time and memory of several containers, read together: what each has used so far."""
    found = {}
    for one in asked["ids"]:
        group = cgroup_of(one)
        cpu = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        memory = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        io = {"rbytes": 0, "wbytes": 0}
        for pair in (group / "io.stat").read_text().split():
            name, _, value = pair.partition("=")
            if name in io:
                io[name] += int(value)
        found[one] = {
            "cpuMicroseconds": int(cpu["usage_usec"]),
            "memory": int((group / "memory.current").read_text()),
            "anon": int(memory["anon"]),
            "file": int(memory["file"]),
            "shmem": int(memory["shmem"]),
            **io,
        }
    return found


def rates(asked: dict) -> dict:
    """How much of each several containers used while `seconds` went by."""
    before = usage(asked)
    time.sleep(asked["seconds"])
    after = usage(asked)
    return {one: {name: after[one][name] - before[one][name] for name in after[one]} for one in after}


def reclaim(asked: dict) -> dict:
    """Ask the kernel to take so many bytes from a cgroup and all below it; what was left to take is no error."""
    try:
        (CGROUPS / asked["path"].strip("/") / "memory.reclaim").write_text(str(asked["bytes"]))
    except OSError as error:
        return {"stopped": str(error)}
    return {}


def write(asked: dict) -> dict:
    """Change a file of a container's cgroup, as somebody might who should not."""
    (cgroup_of(asked["id"]) / asked["file"]).write_text(asked["text"])
    return {}


def hardware(asked: dict) -> dict:
    """What lscpu and numactl say of this machine, and at which NUMA node the kernel has its network cards."""
    rows = subprocess.run(
        ["lscpu", "--all", "--parse=CPU,CORE,SOCKET,NODE,ONLINE"], capture_output=True, text=True, check=True
    ).stdout
    cpus = {}
    for line in rows.splitlines():
        if not line.startswith("#"):
            number, core, socket, node, online = line.split(",")
            cpus[number] = {"core": core, "socket": socket, "node": node, "online": online == "Y"}
    said = subprocess.run(["numactl", "-H"], capture_output=True, text=True, check=True).stdout
    nodes = {}
    for node, list_ in re.findall(r"^node (\d+) cpus:(.*)$", said, re.MULTILINE):
        nodes[node] = {"cpus": list_.split()}
    for node, size in re.findall(r"^node (\d+) size: (\d+) MB$", said, re.MULTILINE):
        nodes[node]["MB"] = int(size)
    for node, row in re.findall(r"^\s+(\d+):\s+(.*)$", said, re.MULTILINE):
        nodes[node]["distances"] = [int(one) for one in row.split()]
    pages_of = {}
    for path in Path("/sys/devices/system/node").glob("node*/hugepages/hugepages-*kB/nr_hugepages"):
        key = f"{path.parts[-4].removeprefix('node')}/{path.parts[-2].removeprefix('hugepages-').removesuffix('kB')}"
        pages_of[key] = int(path.read_text())
    cards = {}
    for path in Path("/sys/bus/pci/devices").iterdir():
        for name in (*path.glob("net/*"), *path.glob("virtio*/net/*")):
            cards[name.name] = int((path / "numa_node").read_text())
    return {"cpus": cpus, "nodes": nodes, "hugepages": pages_of, "nics": cards}


def pressure(asked: dict) -> dict:
    """PSI of the machine's memory, as the kernel counts it."""
    lines = Path("/proc/pressure/memory").read_text().splitlines()
    return {line.split()[0]: dict(pair.split("=") for pair in line.split()[1:]) for line in lines}


QUESTIONS = {
    one.__name__: one for one in (process, pages, files, tree, usage, rates, reclaim, write, hardware, pressure)
}

if __name__ == "__main__":
    print(json.dumps(QUESTIONS[sys.argv[1]](json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})))
