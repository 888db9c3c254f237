"""A Run as text, messages, HTML and JSON."""

import json
from pathlib import Path

from jarvis_agent.core.types import Attempt, Resource, Status, Task, TaskResult
from jarvis_agent.execution.run import Run
from jarvis_agent.planning.plan import Plan

TASKS = [Task(task="openpose-control", id=0), Task(task="object-detection", id=2, dep=[0])]


def result(task: Task, started: float, ended: float, status: Status = "ok") -> TaskResult:
    attempts = [Attempt(model="org/model", backend="local", started=started, ended=ended)]
    done = TaskResult(task=task, status=status, started=started, ended=ended, error="a < b")
    return done.model_copy(update={"attempts": attempts if status == "ok" else []})


RESULTS = [result(TASKS[0], 0.0, 1.0), result(TASKS[1], 1.0, 3.5, "failed")]
RUN = Run(answer="It is <done>.", plan=Plan(tasks=TASKS), results=RESULTS)


def with_image(path: Path) -> Run:
    image = Resource(kind="image", path=path, mime="image/png")
    return RUN.model_copy(
        update={"results": [RESULTS[0].model_copy(update={"resources": [image]}), RESULTS[1]]}
    )


def test_html_escapes_what_models_wrote_and_shows_files(tmp_path: Path) -> None:
    made = tmp_path / "0-pose.png"
    made.write_bytes(b"a picture")
    shown = with_image(made)._repr_html_()
    assert "It is &lt;done&gt;." in shown
    assert "<td>0</td><td>openpose-control</td><td>ok</td>" in shown
    assert "a &lt; b" in shown
    assert "data:image/png;base64," in shown


def test_a_run_is_its_answer_as_text_and_as_a_message(tmp_path: Path) -> None:
    run = with_image(tmp_path / "a.png")
    assert str(run) == "It is <done>."
    (message,) = run.messages
    assert message.text == run.answer
    assert message.additional_kwargs["artifacts"] == [
        {"kind": "image", "path": str(tmp_path / "a.png"), "mime": "image/png", "name": ""}
    ]


def test_the_json_of_a_run_has_the_documented_shape() -> None:
    dumped = json.loads(RUN.model_dump_json())
    assert dumped.keys() == {"answer", "plan", "results", "usage", "timings"}
    assert dumped["plan"]["tasks"][0].keys() == {"task", "id", "dep", "args"}
    assert Run.model_validate_json(RUN.model_dump_json()) == RUN
