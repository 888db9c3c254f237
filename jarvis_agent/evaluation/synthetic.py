"""Made-up requests with their plans, to steer by where no gold plans are at hand.

    for request, gold in sample(load_templates(), random.Random(1), 200, held_out=True): ...

A chain of tools is drawn so that each can take what the one before it makes; each is put in words by a
template of its class, and the clauses are joined as people join them. It is no benchmark: whoever
wrote the templates wrote the planner. It tells whether a change made things worse.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping

from jarvis_agent.backends.starter.embeddings import StarterEmbeddings
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.spec import Arg, Modality, TaskSpec
from jarvis_agent.evaluation.graphs import Node, PlanGraph, graph_of
from jarvis_agent.evaluation.metrics import score
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.offline.marks import mark
from jarvis_agent.planning.offline.workflow.classify import Model
from jarvis_agent.planning.offline.workflow.fit import SEED, Bank, filled, is_held_out, load_templates
from jarvis_agent.planning.offline.workflow.reader import read
from jarvis_agent.planning.plan import Plan

_TEXT: Modality = "text"
_IMAGE: Modality = "image"
_AUDIO: Modality = "audio"
_VIDEO: Modality = "video"
KINDS: Mapping[str, tuple[tuple[Modality, ...], tuple[Modality, ...]]] = {
    "Token Classification": ((_TEXT,), (_TEXT,)),
    "Translation": ((_TEXT,), (_TEXT,)),
    "Summarization": ((_TEXT,), (_TEXT,)),
    "Conversational": ((_TEXT,), (_TEXT,)),
    "Text Generation": ((_TEXT,), (_TEXT,)),
    "Text-to-Image": ((_TEXT,), (_IMAGE,)),
    "Text-to-Video": ((_TEXT,), (_VIDEO,)),
    "Text-to-Speech": ((_TEXT,), (_AUDIO,)),
    "Object Detection": ((_IMAGE,), (_TEXT,)),
    "Image Classification": ((_IMAGE,), (_TEXT,)),
    "Image-to-Text": ((_IMAGE,), (_TEXT,)),
    "Image-to-Image": ((_IMAGE,), (_IMAGE,)),
    "Image Segmentation": ((_IMAGE,), (_IMAGE,)),
    "Depth Estimation": ((_IMAGE,), (_IMAGE,)),
    "Image Editing": ((_TEXT, _IMAGE), (_IMAGE,)),
    "Tabular Classification": ((_IMAGE,), (_TEXT,)),
    "Automatic Speech Recognition": ((_AUDIO,), (_TEXT,)),
    "Audio-to-Audio": ((_AUDIO,), (_AUDIO,)),
    "Audio Classification": ((_AUDIO,), (_TEXT,)),
}
"""What each tool takes and makes."""

_OPENINGS: Mapping[str, tuple[str, ...]] = {
    _IMAGE: (
        "I have an image 'example.jpg'.",
        "I have a picture (example.jpg).",
        "Here is a photo named example.jpg.",
    ),
    _AUDIO: ("I have an audio file 'example.wav'.", "I have a recording, example.wav, of a person speaking."),
    _TEXT: (
        "I have a text: 'The old bridge was closed for repairs on Monday.'",
        "I have this note: 'We meet at ten.'",
    ),
}
_MEANT = {_IMAGE: ("it", "the image"), _AUDIO: ("it", "the audio"), _TEXT: ("it", "the text")}


def toolkit() -> dict[str, TaskSpec]:
    """The tools as task types."""
    return {
        name: TaskSpec(name, "tool", name, tuple(Arg(kind, kind) for kind in takes), makes)
        for name, (takes, makes) in KINDS.items()
    }


def sample(bank: Bank, dice: random.Random, count: int, *, held_out: bool) -> Iterator[tuple[str, PlanGraph]]:
    """Requests, each with its plan; of templates that are held out of the fit, or of the others."""
    for number in range(count):
        chain = _chain(dice)
        clauses = [_clause(tool, bank, dice, held_out=held_out) for tool in chain]
        start = KINDS[chain[0]][0][-1]
        first = {_IMAGE: "example.jpg", _AUDIO: "example.wav"}.get(start, "the text")
        nodes = (
            Node(task=tool, arguments=(f"<node-{i - 1}>" if i else first,)) for i, tool in enumerate(chain)
        )
        text = f"{dice.choice(_OPENINGS[start])} {_joined(clauses, dice)}"
        yield text, PlanGraph(id=str(number), nodes=tuple(nodes))


def try_out(model: Model, embedder: StarterEmbeddings, count: int = 300) -> tuple[float, float]:
    """Node F1 and edge F1 (strict, 0…1) on requests made of templates that are held out."""
    specs = toolkit()
    gold, found = [], {}
    dice = random.Random(SEED)  # noqa: S311 (nothing secret)
    for request, graph in sample(load_templates(), dice, count, held_out=True):
        files = tuple(named_files(request))
        tasks = read(mark(request, files), RunContext(request, files, specs=specs), embedder, model)
        gold.append(graph)
        found[graph.id] = graph_of(Plan(tasks=tasks), specs, graph.id)
    scores = score(gold, found, {name: makes[0] for name, (_, makes) in KINDS.items()})
    return scores.f1("node"), scores.f1("edge")


def _chain(dice: random.Random) -> list[str]:
    length = dice.choice((1, 1, 2, 3, 3, 4, 5))
    chain = [dice.choice([name for name, (takes, _) in KINDS.items() if len(takes) == 1])]
    while len(chain) < length:
        made = KINDS[chain[-1]][1][0]
        fitting = [name for name, (takes, _) in KINDS.items() if made == takes[-1] and name not in chain]
        if not fitting:
            break
        chain.append(dice.choice(fitting))
    return chain


def _clause(tool: str, bank: Bank, dice: random.Random, *, held_out: bool) -> str:
    templates = bank.tasks[tool.lower().replace(" ", "-")]
    verbal = [
        template
        for number, template in enumerate(templates)
        if is_held_out(number) is held_out and re.match(r"(?!an?\b|the\b)\w+ ", template)
    ]
    words = dice.choice(verbal or list(templates))
    for kind, nouns in _MEANT.items():
        words = words.replace(f"{{{kind}}}", dice.choice(nouns), 1)
    return filled(words, bank, dice)


def _joined(clauses: list[str], dice: random.Random) -> str:
    if len(clauses) == 1:
        return dice.choice(("Please {}.", "I want to {}.", "Can you {}?", "I would like you to {}.")).format(
            clauses[0]
        )
    *before, last = clauses
    if dice.random() < 0.5:
        end = dice.choice((", and finally ", ", and then ", " and "))
        return f"{dice.choice(('Please', 'I want to', 'I need to'))} {', '.join(before)}{end}{last}."
    links = dice.choices(
        ("Then, ", "After that, please ", "Next, I want to ", "Afterwards, "), k=len(clauses) - 1
    )
    sentences = [f"{link}{clause}." for link, clause in zip(links, clauses[1:], strict=True)]
    return " ".join([f"First, {clauses[0]}.", *sentences])
