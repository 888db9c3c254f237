"""Requests with many files, without a language model: one task a file for every file."""

import pytest

from jarvis_agent.core.types import Resource, Task
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.offline.planner import repeat_tasks, shorten_rows

NAMES = [f"p{number}.png" for number in range(1, 10)]


def pictures(names: list[str]) -> tuple[Resource, ...]:
    return tuple(Resource(kind="image", name=name) for name in names)


@pytest.mark.parametrize(
    ("text", "names", "task"),
    [
        ("Describe " + ", ".join(NAMES[:6]) + " and p7.png", NAMES[:7], "image-to-text"),
        ("Read the text in " + ", ".join(NAMES), NAMES, "image-to-text"),
        ("How large are they?", NAMES, "media-info"),
        ("描述" + "、".join(NAMES), NAMES, "image-to-text"),
        ("Describe all pictures in my in/", [f"my in/{name}" for name in NAMES], "image-to-text"),
        ("Describe *.png", NAMES, "image-to-text"),
        ("How large are *.png?", NAMES, "media-info"),
        ("Describe photos/**/*.png", [f"photos/a/{name}" for name in NAMES[:3]], "image-to-text"),
        ("Describe in/* and 1.png", [*(f"in/{name}" for name in NAMES[:3]), "1.png"], "image-to-text"),
    ],
)
def test_every_file_gets_its_task_once(text: str, names: list[str], task: str) -> None:
    plan = OfflinePlanner().invoke({"input": text, "files": pictures(names)})
    assert [one.task for one in plan.tasks] == [task] * len(names)
    assert [value for one in plan.tasks for value in one.args.values() if value in names] == names
    assert plan.notes == []


def test_a_short_row_is_planned_as_it_is() -> None:
    request = PlanRequest("Describe p1.png, p2.png and p3.png", pictures(NAMES[:3]))
    assert shorten_rows(request) == (request, {})
    request = PlanRequest("Describe p1.png?", pictures(["p1.png", "other.png"]))
    assert shorten_rows(request) == (request, {})


def test_what_follows_from_a_file_is_repeated_and_what_takes_all_files_is_not() -> None:
    tasks = [
        Task(task="image-to-text", id=0, args={"image": "a.png"}),
        Task(task="image-to-text", id=1, args={"image": "b.png"}),
        Task(task="text-to-speech", id=2, dep=[1], args={"text": "<resource>-1"}),
        Task(task="summarization", id=3, dep=[0, 1], args={"text": "<resource>-0, <resource>-1"}),
        Task(task="visual-document-retrieval", id=4, args={"images": ["a.png", "b.png"], "text": "cats"}),
    ]
    repeated = repeat_tasks(tasks, ["b.png", "c.png", "d.png"])
    assert [task.id for task in repeated] == list(range(9))
    assert [(task.task, *task.args.values()) for task in repeated] == [
        *(("image-to-text", name) for name in ("a.png", "b.png", "c.png", "d.png")),
        *(("text-to-speech", f"<resource>-{number}") for number in (1, 2, 3)),
        ("summarization", "<resource>-0, <resource>-1, <resource>-2, <resource>-3"),
        ("visual-document-retrieval", ["a.png", "b.png", "c.png", "d.png"], "cats"),
    ]
