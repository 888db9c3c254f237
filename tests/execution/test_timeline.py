"""A run as pictures: bars where its tasks ran, arrows from what each needs."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

from jarvis_agent.planning.plan import Plan
from jarvis_agent.execution.run import Run
from jarvis_agent.execution.timeline import COLOURS, plan_svg
from jarvis_agent.core.types import Resource, Status, Task, TaskResult

TASKS = [
    Task(task="openpose-control", id=0),
    Task(task="openpose-text-to-image", id=1, dep=[0], args={"image": "<resource>-0"}),
    Task(task="object-detection", id=2, args={"image": "<resource>-1"}),
    Task(task="image-to-text", id=3, dep=[1]),
]


def result(
    task: Task, started: float, ended: float, status: Status = "ok", error: str | None = None
) -> TaskResult:
    return TaskResult(task=task, status=status, started=started, ended=ended, error=error)


RUN = Run(
    answer="It is <done>.",
    plan=Plan(tasks=TASKS),
    results=[
        result(TASKS[0], 0.0, 1.0),
        result(TASKS[1], 1.0, 3.0),
        result(TASKS[2], 3.0, 4.0, "failed", "a < b"),
        result(TASKS[3], 3.0, 3.0, "skipped"),
    ],
)


def test_a_bar_stands_where_its_task_ran() -> None:
    lines = RUN.timeline().text(width=40).splitlines()
    bars = [line.split("|")[1] for line in lines[:4]]
    assert bars[0] == "█" * 10 + " " * 30
    assert bars[1] == " " * 10 + "█" * 20 + " " * 10
    assert bars[2] == " " * 30 + "▒" * 10
    assert bars[3] == " " * 30 + "·" + " " * 9
    assert lines[2].startswith("✗ 2 object-detection")
    assert lines[4].split() == ["0", "s", "4.0", "s"]


def test_a_narrow_chart_has_its_bars_too() -> None:
    assert RUN.timeline().text(width=1).splitlines()[0].split("|")[1] == "█"


def test_the_scale_of_the_chart_lies_below_its_bars() -> None:
    kinds = [element.tag.rpartition("}")[2] for element in ElementTree.fromstring(RUN.timeline().svg())]
    last_line = len(kinds) - 1 - kinds[::-1].index("line")
    assert last_line < kinds.index("rect")


def test_the_chart_is_svg_with_a_bar_a_task_in_the_colour_of_its_end() -> None:
    chart = ElementTree.fromstring(RUN.timeline().svg())
    bars = [element for element in chart if element.tag.endswith("rect")]
    colours = [COLOURS[status] for status in ("ok", "ok", "failed", "skipped")]
    assert [bar.get("fill") for bar in bars] == colours
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert widths[1] == 2 * widths[0]
    assert "a < b" in "".join(bars[2].itertext())


def test_what_commands_a_terminal_is_in_no_picture() -> None:
    task = Task(task="\x1b]0;mine\x07odd\x00", id=0)
    run = Run(answer="", plan=Plan(tasks=[task]), results=[result(task, 0, 1, "failed", "\x1b[31mred")])
    assert "odd" in run.timeline().text()
    assert "\x1b" not in run.timeline().text()
    for picture in (run.timeline().svg(), plan_svg(run.plan)):
        assert "mine" not in "".join(ElementTree.fromstring(picture).itertext())


def test_the_graph_has_a_column_for_each_step_of_the_way() -> None:
    graph = ElementTree.fromstring(plan_svg(RUN.plan, RUN.results))
    boxes = [element for element in graph if element.tag.endswith("rect")]
    columns = [float(box.get("x", 0)) for box in boxes]
    assert columns[0] < columns[1] < columns[2] == columns[3]
    arrows = [element for element in graph if element.get("fill") == "none"]
    assert len(arrows) == 3


def test_a_notebook_shows_the_answer_the_plan_what_was_made_and_when(tmp_path: Path) -> None:
    made = tmp_path / "0-pose.png"
    made.write_bytes(b"a picture")
    pose = RUN.results[0].model_copy(
        update={"resources": [Resource(kind="image", path=made, mime="image/png")]}
    )
    shown = RUN.model_copy(update={"results": [pose, *RUN.results[1:]]})._repr_html_()
    parts = ["It is &lt;done&gt;.", plan_svg(RUN.plan, RUN.results), str(made), RUN.timeline().svg()]
    places = [shown.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert f'src="data:image/png;base64,{base64.b64encode(b"a picture").decode()}"' in shown


def test_names_and_answers_are_escaped() -> None:
    evil = Task(task="<script>alert(1)</script>", id=0)
    run = Run(answer="<b>", plan=Plan(tasks=[evil]), results=[result(evil, 0, 1, "failed", "<i>")])
    shown = run._repr_html_()
    assert not re.search(r"<(script|b|i)>", shown)


def test_a_plan_that_waits_for_itself_is_drawn_too() -> None:
    circle = [Task(task="a", id=0, dep=[1]), Task(task="b", id=1, dep=[0])]
    assert plan_svg(Plan(tasks=circle)).count("<rect") == 2


def test_a_run_without_tasks_has_an_empty_timeline() -> None:
    assert Run(answer="Hi").timeline().text() == "No task was run."
    assert "<svg" not in Run(answer="Hi")._repr_html_()
