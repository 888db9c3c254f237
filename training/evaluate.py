"""Score the offline planner on voices: exact plans by language and kind, and wrong ones without a note.

python training/evaluate.py --sample 600         # of the voices that are set aside, in total figures
python training/evaluate.py --voices training/requests/zh_senior.txt --failures
"""

import argparse
import time
from collections import defaultdict
from pathlib import Path
from random import Random

from augment import read_examples
from notation import FILES, PLANNER

from jarvis_agent.core.settings import Settings
from jarvis_agent.evaluation.requests import judge
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.network import open_network
from jarvis_agent.planning.offline.planner import SURE, plan_request


def main() -> None:
    """Print a table, and with --failures every wrong plan; never for voices that are set aside."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weights", type=Path, default=PLANNER)
    parser.add_argument("--voices", type=Path, nargs="*", default=sorted((FILES / "held_out").glob("*.txt")))
    parser.add_argument("--sample", type=int, help="score so many requests only, chosen at random")
    parser.add_argument("--failures", action="store_true")
    given = parser.parse_args()
    settings = Settings(offline=True)
    network = open_network(settings, given.weights)
    groups: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    scored: list[tuple[float, bool, bool]] = []
    examples = [(voice, example.asked) for voice in given.voices for example in read_examples([voice])]
    if given.sample:
        examples = Random(1).sample(examples, given.sample)
    began = time.process_time()
    for voice, asked in examples:
        made, probability = plan_request(PlanRequest.of(asked.inputs), settings, network)
        right = judge(asked, made.tasks).exact
        quiet = not right and not made.notes
        kind = "follow-up" if asked.turns else asked.kind
        is_guess = any("is a guess" in note for note in made.notes)
        for group in ("all", asked.language, kind, f"{asked.language} {kind}"):
            groups[group].append((right, quiet, right and is_guess))
        scored.append((probability, right, len(made.notes) > is_guess))
        if given.failures and not right and "held_out" not in voice.parts:
            print(f"{probability:.2f}", judge(asked, made.tasks).as_failure(), *made.notes)
    print(f"{(time.process_time() - began) / max(len(scored), 1):.3f} CPU seconds a plan")
    print(f"{'':20}{'requests':>9}{'exact':>8}{'wrong, no note':>16}{'right, a guess':>16}")
    for group in sorted(groups, key=lambda name: (name != "all", len(name) > 2, name)):
        rows = groups[group]
        exact, quiet_share, guessed = (sum(row[i] for row in rows) / len(rows) for i in range(3))
        print(f"{group:20}{len(rows):9}{exact:8.1%}{quiet_share:16.1%}{guessed:16.1%}")
    print(f"plans without a note, by the least probability that they need (now {SURE:.0%}):")
    for limit in (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        sure = [right for probability, right, noted in scored if probability >= limit and not noted]
        wrong = sum(not right for right in sure) / len(scored)
        print(f"≥ {limit:.2f}: {len(sure) / len(scored):6.1%} of all; wrong {wrong:6.1%} of all")


if __name__ == "__main__":
    main()
