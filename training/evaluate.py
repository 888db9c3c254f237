"""Score a planner on voices: exact plans by language and kind, and wrong ones without a note.

    python training/evaluate.py --planner rules             # the voices that are set aside, in total figures
    python training/evaluate.py --planner pointer --weights build/planner.npz
    python training/evaluate.py --planner pointer --voices training/requests/zh_senior.txt --failures

A wrong plan has a note if the planner said that something is missing or unsure. Plans of the pointer planner
with a probability below `--unsure` count as noted.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from augment import read_examples
from notation import FILES
from pointer import PointerPlanner

from jarvis_agent.core.settings import Settings
from jarvis_agent.evaluation.requests import OwnRequest, judge
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.planner import OfflinePlanner
from jarvis_agent.planning.plan import Plan

Planner = Callable[[OwnRequest], tuple[Plan, float]]
"""Gives a plan, and the logarithm of its probability."""


def rules() -> Planner:
    """The planner of the package."""
    planner = OfflinePlanner(settings=Settings())
    return lambda asked: (planner.invoke(asked.inputs), 0.0)


def pointer(weights: Path) -> Planner:
    """The trained planner."""
    planner = PointerPlanner(weights)
    return lambda asked: planner.plan(PlanRequest.of(asked.inputs))


def main() -> None:
    """Print a table, and with --failures every wrong plan; never for voices that are set aside."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--planner", choices=("rules", "pointer"), default="rules")
    parser.add_argument("--weights", type=Path, default=Path("build/planner.npz"))
    parser.add_argument("--voices", type=Path, nargs="*", default=sorted((FILES / "held_out").glob("*.txt")))
    parser.add_argument("--unsure", type=float, default=0.5, help="probability below which a plan is noted")
    parser.add_argument("--failures", action="store_true")
    given = parser.parse_args()
    plan = rules() if given.planner == "rules" else pointer(given.weights)
    groups: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    scored: list[tuple[float, bool]] = []
    began = time.process_time()
    for voice in given.voices:
        for example in read_examples([voice]):
            asked = example.asked
            made, score = plan(asked)
            right = judge(asked, made.tasks).exact
            quiet = not right and not made.removed and score >= math.log(given.unsure)
            kind = "follow-up" if asked.turns else asked.kind
            for group in ("all", asked.language, kind, f"{asked.language} {kind}"):
                groups[group].append((right, quiet))
            scored.append((score, right))
            if given.failures and not right and "held_out" not in voice.parts:
                print(f"{math.exp(score):.2f}", judge(asked, made.tasks).as_failure())
    seconds = (time.process_time() - began) / max(len(scored), 1)
    print(f"{given.planner}: {seconds:.3f} CPU seconds a plan")
    print(f"{'':20}{'requests':>9}{'exact':>8}{'wrong, no note':>16}")
    for group in sorted(groups, key=lambda name: (name != "all", len(name) > 2, name)):
        rows = groups[group]
        exact, quiet = (sum(row[i] for row in rows) / len(rows) for i in (0, 1))
        print(f"{group:20}{len(rows):9}{exact:8.1%}{quiet:16.1%}")
    if given.planner == "pointer":
        for limit in (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95):
            sure = [right for score, right in scored if score >= math.log(limit or 1e-30)]
            wrong = sum(not right for right in sure) / len(scored)
            share = len(sure) / len(scored)
            print(f"probability ≥ {limit:.2f}: {share:6.1%} of the plans, {wrong:6.1%} of all are wrong")


if __name__ == "__main__":
    main()
