"""Plain requests whose words could be taken for something else."""

from __future__ import annotations

import pytest

from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan

PLANNER = OfflinePlanner(Settings(offline=True))

pytestmark = pytest.mark.starter


async def plan(request: str, *own: TaskSpec) -> Plan:
    specs = {**TASKS, **{spec.name: spec for spec in own}}
    return await PLANNER.plan(
        RunContext(request, tuple(named_files(request)), specs=specs), lambda task: None
    )


async def tasks(request: str) -> list[str]:
    return [task.task for task in (await plan(request)).tasks]


@pytest.mark.parametrize(
    "request_",
    [
        "What language is spoken in a.mp3?",
        "Transcribe a.wav and tell me which language was spoken.",
        "Describe the spoken words in a.wav",
    ],
)
async def test_what_was_spoken_is_not_to_be_spoken(request_: str) -> None:
    assert "text-to-speech" not in await tasks(request_)


async def test_a_spoken_result_is() -> None:
    assert await tasks("Give me a spoken description of a.jpg") == ["image-to-text", "text-to-speech"]


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ("Don't translate it, just describe cat.jpg", ["image-to-text"]),
        ("Do not describe a.jpg; detect the objects in it.", ["object-detection"]),
        ("Detect the objects in a.jpg, but do not describe it.", ["object-detection"]),
        ("Don't describe a.jpg.", []),
        ("Don't forget to describe a.jpg.", ["image-to-text"]),
    ],
)
async def test_what_is_not_to_be_done_is_not_planned(request_: str, wanted: list[str]) -> None:
    assert await tasks(request_) == wanted


@pytest.mark.parametrize(
    "amount", ["in as much detail as possible", "with as many details as you can", "as detailed as possible"]
)
async def test_every_way_to_ask_for_all_details_gets_them(amount: str) -> None:
    made = await tasks(f"Describe the picture a.jpg {amount}.")
    assert made == [
        "image-to-text",
        "image-classification",
        "object-detection",
        "image-segmentation",
        "visual-question-answering",
    ]


@pytest.mark.parametrize("request_", ["Convert data.csv to a chart", "Plot sales.csv"])
async def test_no_task_draws_a_chart_of_a_table(request_: str) -> None:
    made = await plan(request_)
    assert made.tasks == []
    assert "nothing that an expert model does" in made.notes[0]


async def test_a_tool_of_ones_own_may_draw_one() -> None:
    charts = TaskSpec("charts", "tool", "Draws a chart of a table.", (Arg("table", "any"),), ("image",))
    made = await plan("Draw a chart of sales.csv", charts)
    assert [(task.task, task.args) for task in made.tasks] == [("charts", {"table": "sales.csv"})]


@pytest.mark.parametrize(
    ("request_", "maker"),
    [
        ("Classify a.jpg and crop it", "object-detection"),
        ("Is there a dog in a.jpg? If so, crop it.", "object-detection"),
        ("Detect the objects in a.jpg, classify it, and crop the largest object.", "object-detection"),
        ("Classify a.jpg and crop the dog out of it.", "zero-shot-object-detection"),
    ],
)
async def test_an_image_is_cropped_to_boxes_and_nothing_else(request_: str, maker: str) -> None:
    made = (await plan(request_)).tasks
    crop = made[-1]
    assert crop.task == "crop-image"
    assert [made[place].task for place in crop.deps] == [maker]
    assert crop.args["box"] == f"<resource>-{crop.deps[0]}"
