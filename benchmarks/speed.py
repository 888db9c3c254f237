"""All figures for speed and size, in one command: python benchmarks/speed.py [PART …]

Each figure is printed beside its limit; the exit status is 1 if one is missed. Ratios have their baseline in
the same run; times depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import load
import pool
import prefetch
import scheduling
import selection
import server
import startup

PARTS = {
    "startup": startup,
    "scheduling": scheduling,
    "load": load,
    "server": server,
    "pool": pool,
    "prefetch": prefetch,
    "selection": selection,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; none: all")
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    met = True
    for part in given.parts or PARTS:
        for figure in asyncio.run(PARTS[part].figures()):
            print(figure, flush=True)
            met = met and figure.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
