"""Custom task types: what `register_task` accepts and refuses."""

from dataclasses import replace
from typing import Any

import pytest
from task_report import missing

from jarvis_agent.core.tasks.registry import TASKS, find_task, register_task
from jarvis_agent.core.tasks.spec import Arg, TaskSpec

TIDY = TaskSpec("tidy_up-2", "vision", "Tidy a sketch.", (Arg("image", "image"),), ("image",))


def test_a_task_type_is_found_by_any_spelling_of_its_name() -> None:
    try:
        assert register_task(TIDY) is TIDY
        assert find_task("Tidy up 2") is TIDY
    finally:
        del TASKS[TIDY.name]


def test_the_fields_of_a_spec_may_be_lists() -> None:
    tidy = replace(TIDY, listing=(("filter", "tidy"),))
    lists: dict[str, Any] = {
        "inputs": [Arg("image", "image")],
        "outputs": ["image"],
        "listing": [["filter", "tidy"]],
    }
    spec = replace(TIDY, **lists)
    assert spec == tidy
    assert hash(spec) == hash(tidy)


def test_the_report_says_what_a_new_task_type_lacks() -> None:
    assert list(missing([TIDY, TASKS["token-classification"]]).values()) == [[TIDY.name]] * 5
    assert "recommended" not in str(missing([replace(TIDY, needs_model=False)]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "X Y"}, r"letters \(a-z\), digits, - and _, not 'X Y'"),
        ({"name": ""}, "not ''"),
        ({"name": "x" * 65}, "up to 64"),
        ({"name": "tidy\n"}, "letters"),
        (
            {"outputs": ("image", "picture")},
            "tidy_up-2: 'picture' is no kind of output; there are text, image",
        ),
        ({"outputs": ("any",)}, "'any' is no kind of output"),
        ({"inputs": (Arg("image", "photo"),)}, "'photo' is no kind of input; there are .*file, any"),
        ({"category": "visual"}, "'visual' is no category; there are text, vision"),
        ({"aliases": ("ASR",)}, "the alias 'ASR' .* belongs to 'automatic-speech-recognition'"),
    ],
)
def test_an_unusable_task_type_is_refused(change: dict[str, Any], message: str) -> None:
    before = dict(TASKS)
    with pytest.raises(ValueError, match=message):
        register_task(replace(TIDY, **change))
    assert before == TASKS
