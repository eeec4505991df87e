"""`python -m tools.vm MACHINE COMMAND…` runs a command in a machine of the table; without words it lists the table."""

from __future__ import annotations

import sys

from tools.vm import images
from tools.vm.machines import MACHINES, NOT_SHOWN
from tools.vm.vm import booted


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in MACHINES:
        print("usage: python -m tools.vm MACHINE COMMAND…\n")
        for machine in MACHINES.values():
            print(f"{machine.name:14} {machine.about}")
        for what, why in NOT_SHOWN.items():
            print(f"{'(none)':14} {what}: {why}")
        return 2
    why = images.missing()
    if why is not None:
        print(f"no machine can be booted here: {why}", file=sys.stderr)
        return 1
    with booted(sys.argv[1]) as vm:
        print(f"booted in {vm.boot_seconds:.0f} s", file=sys.stderr)
        code, said = vm.attempt("sh", "-c", " ".join(sys.argv[2:]), seconds=600)
    print(said, end="")
    return code


if __name__ == "__main__":
    sys.exit(main())
