"""What planners write, well-formed or not, becomes the intended plan.

The files hold one output per line: its name, its "text" (or "tasks", written as JSON), the "tools" beside
the Hub's tasks, the "plan" as [task, id, dep, args], and words of the "notes".

planner_outputs.jsonl holds outputs of strong and weak planners; plan_rules.jsonl has an example of each rule;
paper_plans.jsonl has the plans of the paper's case studies, as intended and as printed with slips.
"""

import json
from pathlib import Path
from typing import Any

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan

DATA = Path(__file__).parents[1] / "data"


def read(name: str) -> list[dict[str, Any]]:
    outputs = [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]
    return [
        {**output, "text": output["text"] if "text" in output else json.dumps(output["tasks"])}
        for output in outputs
    ]


OUTPUTS = read("planner_outputs.jsonl")
RULES = read("plan_rules.jsonl") + read("paper_plans.jsonl")


def rows(tasks: list[Task]) -> list[list[Any]]:
    return [[task.task, task.id, task.dep, task.args] for task in tasks]


def test_each_output_becomes_the_intended_plan() -> None:
    failures = {}
    for output in OUTPUTS + RULES:
        plan = Plan.parse(output["text"], output.get("tools"))
        missing = [words for words in output.get("notes", ()) if not any(words in n for n in plan.notes)]
        surplus = plan.notes if output in RULES and not output["notes"] else []
        if rows(plan.tasks) != output["plan"] or missing or surplus:
            failures[output["name"]] = plan
    assert failures == {}


def test_chunking_makes_no_difference() -> None:
    cases = [(output, size) for output in OUTPUTS + RULES if "tools" not in output for size in (1, 7)]
    for output, size in cases:
        parser, text = StreamingPlanParser(TASKS), output["text"]
        tasks = [task for at in range(0, len(text), size) for task in parser.feed(text[at : at + size])]
        tasks += parser.finish()
        assert rows(tasks) == output["plan"], output["name"]


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [output["name"] for output in OUTPUTS + RULES]
    assert len(names) == len(set(names))
    assert len(OUTPUTS) >= 200


def test_only_an_empty_list_is_an_empty_plan_without_a_note() -> None:
    notes = {output["name"]: Plan.parse(output["text"]).notes for output in OUTPUTS if not output["plan"]}
    assert notes["nothing: an empty list"] == []
    assert notes["nothing: an empty list of tasks"] == []
    assert notes["nothing: a refusal"]
    assert notes["nothing: HTML"]
