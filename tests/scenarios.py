"""The case studies of the HuggingGPT paper: requests with their plans, also as the paper printed them.

    SCENARIOS["read-aloud"].plan        the intended plan
    SCENARIOS["read-aloud"].printed     the plan in the paper, with its errors
    SCENARIOS["read-aloud"].graph       the graph of `printed`, where it differs from that of `plan`

`EXPERTS` are fake experts: raw outputs in the forms of real models.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import small_agents
from PIL import Image

from jarvis_agent.backends.base import Call
from jarvis_agent.core.references import refs_in, substitute
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

CAPTION = "a girl is reading a book on a bench"
PRINTED_TEXT = "NO SWIMMING. The water is deep."
ZEBRAS = {"a.jpg": 2, "b.jpg": 3, "c.jpg": 1}


@dataclass(frozen=True, slots=True)
class Of:
    """Stands for the principal result of this task in the expected inputs of an expert."""

    task: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One case study.

    Attributes:
        request: the text of the user.
        plan: the tasks as (name, deps, args), numbered from 0.
        printed: the plan in the paper; "" if it is the intended plan.
        graph: the plan with the graph of `printed`; None: that of `plan`.
        received: the expected inputs of experts, by task.
    """

    request: str
    plan: tuple[tuple[str, list[int], dict[str, Any]], ...]
    printed: str = ""
    graph: tuple[tuple[str, list[int], dict[str, Any]], ...] | None = None
    received: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The plan as a language model writes it."""
        return small_agents.plan(*self.plan)

    @property
    def files(self) -> list[str]:
        """The files that the request names."""
        return sorted(set(re.findall(r"\w+\.jpg", self.request)))


SCENARIOS: dict[str, Scenario] = {
    "girl-in-the-boys-pose": Scenario(
        request=(
            "Please generate an image where a girl is reading a book, and her pose is the same as the boy "
            "in the image example.jpg, then please describe the new image with your voice."
        ),
        plan=(
            ("openpose-control", [], {"image": "example.jpg"}),
            ("openpose-text-to-image", [0], {"text": "a girl is reading a book", "image": "<resource>-0"}),
            ("image-classification", [1], {"image": "<resource>-1"}),
            ("object-detection", [1], {"image": "<resource>-1"}),
            ("image-to-text", [1], {"image": "<resource>-1"}),
            ("text-to-speech", [4], {"text": "<resource>-4"}),
        ),
        printed="""[{"task": "pose-control", "id": 0, "dep": [-1], "args": {"image": "example.jpg"}},
            {"task": "pose-to-image", "id": 1, "dep": [0],
             "args": {"text": "a girl is reading a book", "image": "<resource>-0"}},
            {"task": "image-cls", "id": 2, "dep": [1], "args": {"image": "<resource>-1"}},
            {"task": "object-det", "id": 3, "dep": [1], "args": {"image": "<resource>-1"}},
            {"task": "image-to-text", "id": 4, "dep": [1], "args": {"image": "<resource>-1"}},
            {"task": "text-to-speech", "id": 5, "dep": [4], "args": {"text": "<resource>-4"}}]""",
        received={
            "openpose-control": {"image": "example.jpg"},
            "openpose-text-to-image": {"text": "a girl is reading a book", "image": Of("openpose-control")},
            "image-classification": {"image": Of("openpose-text-to-image")},
            "object-detection": {"image": Of("openpose-text-to-image")},
            "image-to-text": {"image": Of("openpose-text-to-image")},
            "text-to-speech": {"text": CAPTION},
        },
    ),
    "pose-and-description": Scenario(
        request=(
            "Based on the pose of example1.jpg and the description of example2.jpg, "
            "please generate a new image."
        ),
        plan=(
            ("openpose-control", [], {"image": "example1.jpg"}),
            ("image-to-text", [], {"image": "example2.jpg"}),
            ("openpose-text-to-image", [0, 1], {"text": "<resource>-1", "image": "<resource>-0"}),
        ),
        printed="""[{"task": "openpose-control", "id": 0, "dep": [-1], "args": {"image": "example1.jpg"}},
            {"task": "image-to-text", "id": 1, "dep": [-1], "args": {"image": "example2.jpg"}},
            {"task": "openpose-text-to-image", "id": 2, "dep": [0, 1],
             "args": {"text": "<resource>-0", "image": "<resource>-1"}}]""",
        received={
            "openpose-control": {"image": "example1.jpg"},
            "image-to-text": {"image": "example2.jpg"},
            "openpose-text-to-image": {"text": CAPTION, "image": Of("openpose-control")},
        },
    ),
    "dubbed-video": Scenario(
        request="Generate a video titled 'Astronaut walking in space' and dub it.",
        plan=(
            ("text-to-video", [], {"text": "Astronaut walking in space"}),
            ("text-to-speech", [], {"text": "Astronaut walking in space"}),
            ("combine-video-audio", [0, 1], {"video": "<resource>-0", "audio": "<resource>-1"}),
        ),
        printed="""[{"task": "text-to-video", "id": 0, "dep": [-1],
             "args": {"text": "Astronaut walking in space"}},
            {"task": "text-to-speech", "id": 1, "dep": [-1],
             "args": {"text": "Astronaut walking in space"}}]""",
        graph=(
            ("text-to-video", [], {"text": "Astronaut walking in space"}),
            ("text-to-speech", [], {"text": "Astronaut walking in space"}),
        ),
        received={
            "text-to-video": {"text": "Astronaut walking in space"},
            "text-to-speech": {"text": "Astronaut walking in space"},
            "combine-video-audio": {"video": Of("text-to-video"), "audio": Of("text-to-speech")},
        },
    ),
    "read-aloud": Scenario(
        request="Help me read the image example.jpg.",
        plan=(
            ("image-to-text", [], {"image": "example.jpg"}),
            ("text-to-speech", [0], {"text": "<resource>-0"}),
        ),
        printed="""[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "example.jpg"}},
            {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<resource-1>"}}]""",
        # The paper's plan does not say that the text is wanted, so that the picture is described.
        received={"image-to-text": {"image": "example.jpg"}, "text-to-speech": {"text": CAPTION}},
    ),
    "zebras": Scenario(
        request=(
            "Given a set of images A: a.jpg, B: b.jpg, C: c.jpg, how many zebras are there in these pictures?"
        ),
        plan=(
            ("image-to-text", [], {"image": "a.jpg"}),
            ("object-detection", [], {"image": "a.jpg"}),
            ("image-to-text", [], {"image": "b.jpg"}),
            ("object-detection", [], {"image": "b.jpg"}),
            ("image-to-text", [], {"image": "c.jpg"}),
            ("object-detection", [], {"image": "c.jpg"}),
        ),
        printed="""[{"task": "image-to-text", "id": 0, "dep": [-1],
             "args": {"image": ["a.jpg", "b.jpg", "c.jpg"]}},
            {"task": "object-detection", "id": 1, "dep": [-1],
             "args": {"image": ["a.jpg", "b.jpg", "c.jpg"]}}]""",
    ),
    "document-question": Scenario(
        request="What is the total in doc.jpg?",
        plan=(("document-question-answering", [], {"text": "What is the total?", "image": "doc.jpg"}),),
        printed="""{"task": "DQA", "id": 0, "dep": [-1],
            "args": {"question": "What is the total?", "image": "doc.jpg"}}""",
        received={"document-question-answering": {"text": "What is the total?", "image": "doc.jpg"}},
    ),
    "in-detail": Scenario(
        request="Describe this picture in as much detail as possible. example.jpg",
        plan=(
            ("image-to-text", [], {"image": "example.jpg"}),
            ("image-classification", [], {"image": "example.jpg"}),
            ("object-detection", [], {"image": "example.jpg"}),
            ("image-segmentation", [], {"image": "example.jpg"}),
            ("visual-question-answering", [], {"text": "What is in the picture?", "image": "example.jpg"}),
        ),
        printed="""[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "examples.jpg"}},
            {"task": "image-cls", "id": 1, "dep": [-1], "args": {"image": "examples.jpg"}},
            {"task": "object-detection", "id": 2, "dep": [-1], "args": {"image": "examples.jpg"}},
            {"task": "segmentation", "id": 3, "dep": [-1], "args": {"image": "examples.jpg"}},
            {"task": "VQA", "id": 4, "dep": [-1],
             "args": {"text": "What is in the picture?", "image": "examples.jpg"}}]""",
        received={"visual-question-answering": {"text": "What is in the picture?", "image": "example.jpg"}},
    ),
}


def graph(plan: Plan) -> list[str]:
    """A plan without ids and order: each task with its arguments and its dependencies in full."""
    known: dict[int, str] = {}
    for task in plan.tasks:
        args = substitute(task.args, known.__getitem__)
        deps = sorted(known[i] for i in {*task.deps, *refs_in(task.args)})
        known[task.id] = json.dumps([task.task, args, deps], sort_keys=True)
    return sorted(known.values())


def make_files(folder: Path, *names: str) -> None:
    """Write small images."""
    for place, name in enumerate(names):
        Image.new("RGB", (32, 24), (40 * place % 255, 120, 200)).save(folder / name)


def _drawn(call: Call) -> Image.Image:
    return Image.new("RGB", (32, 24), "white")


def _spoken(call: Call) -> dict[str, Any]:
    return {"audio": np.zeros(8000, dtype=np.float32), "sampling_rate": 16_000}


def _filmed(call: Call) -> dict[str, Any]:
    return {"frames": [Image.new("RGB", (32, 24), "white")] * 4, "fps": 4.0}


def _detected(call: Call) -> list[dict[str, Any]]:
    """Zebras as counted in `ZEBRAS`; two other objects in any other image."""
    count = ZEBRAS.get(call.inputs["image"].name)
    labels = ["zebra"] * count if count else ["girl", "book"]
    return [
        {"label": label, "score": 0.91 - n / 10, "box": {"xmin": n, "ymin": 1, "xmax": 20, "ymax": 20}}
        for n, label in enumerate(labels)
    ]


def _in_words(call: Call) -> dict[str, str]:
    return {"generated_text": PRINTED_TEXT if "reader" in call.candidate.id else CAPTION}


EXPERTS: dict[str, Any] = {
    "openpose-control": _drawn,
    "openpose-text-to-image": _drawn,
    "canny-control": _drawn,
    "canny-text-to-image": _drawn,
    "image-to-image": _drawn,
    "text-to-video": _filmed,
    "combine-video-audio": _filmed,
    "text-to-speech": _spoken,
    "image-to-text": _in_words,
    "image-classification": [{"label": "reading", "score": 0.83}, {"label": "sitting", "score": 0.11}],
    "object-detection": _detected,
    "image-segmentation": [{"label": "grass", "score": None, "mask": Image.new("L", (32, 24), 255)}],
    "visual-question-answering": [{"answer": "it is grazing", "score": 0.64}],
    "document-question-answering": [{"answer": "$ 42.00", "score": 0.77}],
}


def make_experts(**changed: Any) -> tuple[FakeSource, FakeBackend]:
    """Two models for each task; for image-to-text one for captions and one for OCR.

    `changed` replaces experts by task, with underscores for dashes.
    """
    models = [
        fake_candidate(task, f"org/{task}-{letter}", downloads=downloads)
        for task in EXPERTS
        if task != "image-to-text"
        for letter, downloads in (("a", 20), ("b", 10))
    ]
    models += [
        fake_candidate("image-to-text", "org/captioner", traits=("caption",), downloads=20),
        fake_candidate("image-to-text", "org/reader", traits=("ocr",), downloads=10),
    ]
    others = {name.replace("_", "-"): result for name, result in changed.items()}
    return FakeSource(models), FakeBackend({**EXPERTS, **others})
