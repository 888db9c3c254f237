"""The figures of docs/reliability.md, in one command: python benchmarks/run.py [--write] [part …]

Each is printed beside its target; the status is 1 if one is missed. With --write they go into the page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from pathlib import Path
from time import perf_counter

import durable
import latency
import load
import scheduling
from figures import Figure, write

PARTS = {"scheduling": scheduling, "latency": latency, "load": load, "durable": durable}
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def main() -> int:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; none: all")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/reliability.md")
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if given.write and given.parts:
        parser.error("only all parts together are written")
    began, found = perf_counter(), list[Figure]()
    for part in given.parts or PARTS:
        for figure in asyncio.run(PARTS[part].figures()):
            print(figure, flush=True)
            found.append(figure)
    took = perf_counter() - began
    print(f"in {took:.0f} s")
    if given.write:
        on = f"Measured on {os.cpu_count()} CPU cores, Python {platform.python_version()}, in {took:.0f} s:"
        write(PAGE, found, on)
    return 0 if all(figure.met for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
