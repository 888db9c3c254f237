"""The mode `compat` gives TaskBench's own figures: they are worked out here again, in its script's way."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from jarvis_agent.evaluation.graphs import read_graph
from jarvis_agent.evaluation.metrics import METRICS, score

pytest.importorskip("sklearn")

MAKES = {"Translation": "text", "Text-to-Speech": "audio", "Image Editing": "image", "Rank": "none"}
NAMES = [*MAKES, "Magic", "Image_Editing"]
VALUES = [
    "Hello",
    "example.jpg",
    "b.mp4",
    "'x.wav'",
    "你好",
    "",
    "a\u2028b",
    {"text": "Hello"},
    ["a", "b.png"],
]


def nodes(dice: random.Random, names: Sequence[str]) -> list[dict[str, Any]]:
    """The nodes of a plan, in which references are to other nodes, before or after."""
    count = dice.choice((0, 1, 1, 2, 3, 4))
    made = []
    for place in range(count):
        others = [f"<node-{other}>" for other in range(count) if other != place]
        arguments = [
            dice.choice(others if others and dice.random() < 0.5 else VALUES)
            for _ in range(dice.choice((0, 1, 1, 2)))
        ]
        made.append({"task": dice.choice(names), "arguments": arguments})
    return made


def facts(plan: Sequence[dict[str, Any]]) -> tuple[list[str], list[Any], list[str], list[str]]:
    """Tools, links, tools with the kinds of their arguments, and with their values."""
    names = [node["task"].replace("_", " ") for node in plan]
    found: tuple[list[str], list[Any], list[str], list[str]] = (names, [], [], [])
    for name, node in zip(names, plan, strict=True):
        for argument in node["arguments"]:
            value = next(iter(argument.values())) if isinstance(argument, dict) else argument
            value = " ".join(value) if isinstance(value, list) else value
            if "<node-" in value:
                value = names[int(value[6:-1])]
                kind = MAKES.get(value, "other")
                found[1].append((value, name))
            else:
                kinds = {".jpg": "image", ".png": "image", ".wav": "audio", ".mp4": "video"}
                kind = next((kind for end, kind in kinds.items() if end in value), "text")
            found[2].append(f"{name}-{kind}")
            found[3].append(f"{name}-{kind}-{value}")
    return found


def f1(gold: Iterable[Sequence[Any]], said: Iterable[Sequence[Any]], known: Sequence[str] = ()) -> float:
    """As sklearn computes it from the union of the facts of each request."""
    from sklearn.metrics import f1_score

    union = [
        (fact in right, fact in found)
        for right, found in zip(gold, said, strict=True)
        for fact in {*right, *found}
        if not known or fact in known
    ]
    return float(f1_score(*zip(*union, strict=True))) if union else 1.0


@pytest.mark.parametrize("seed", range(60))
def test_compat_gives_the_figures_of_taskbenchs_script(seed: int) -> None:
    dice = random.Random(seed)
    gold = {str(n): nodes(dice, list(MAKES)) for n in range(12)}
    said = {record: nodes(dice, NAMES) for record in gold if dice.random() < 0.9}
    said |= {record: gold[record] for record in said if dice.random() < 0.5}
    graphs = [
        {record: read_graph({"id": record, "task_nodes": plan}) for record, plan in run.items()}
        for run in (gold, said)
    ]
    found = score(graphs[0].values(), graphs[1], MAKES, "compat")
    right, told = ([facts(run[record]) for record in said] for run in (gold, said))
    expected = [
        f1([one[part] for one in right], [one[part] for one in told], list(MAKES) if part == 0 else ())
        for part in range(4)
    ]
    assert [found.f1(metric) for metric in METRICS] == pytest.approx(expected)
