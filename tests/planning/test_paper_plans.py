"""The plans of the paper's case studies (data/paper_plans.jsonl), as intended and as printed with slips."""

import json
from pathlib import Path

import pytest

from jarvis_agent.planning.plan import Plan

FILE = Path(__file__).parents[1] / "data" / "paper_plans.jsonl"
CASES = {case["name"]: case for case in map(json.loads, FILE.read_text("utf-8").splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_of_the_paper_becomes_the_intended_one(name):
    case = CASES[name]
    plan = Plan.parse(case["text"] if "text" in case else json.dumps(case["tasks"]))
    assert [[task.task, task.id, task.dep, task.args] for task in plan.tasks] == case["plan"]
    assert plan.notes == case["notes"]
