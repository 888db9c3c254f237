"""The bank's examples are valid and varied, and those that suit a request are found."""

import json
import re
from pathlib import Path

import pytest

from jarvis_agent.core.context import ChatTurn, RunContext
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.example_selector import load_bank, nearest
from jarvis_agent.planning.narrowing import SHOWN_BY_WORDS, narrowed
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.retrieval import Similarity

BANK = load_bank()
ROOT = Path(__file__).parents[2]
EVALUATED = [ROOT / "tests/data/offline_requests.json", ROOT / "benchmarks/data/plain_requests.json"]


@pytest.fixture
def by_words(monkeypatch):
    """Similarity where the embeddings are not installed."""
    monkeypatch.setattr(Similarity, "_embedder", None)
    return Similarity(Settings())


def brief(request, specs=TASKS, turns=()):
    return RunContext(request, tuple(named_files(request)), turns, specs)


@pytest.mark.parametrize("demo", BANK, ids=lambda demo: demo.request[:40])
def test_every_example_is_a_plan_that_needs_no_mending(demo):
    plan = Plan.parse(demo.written)
    assert json.loads(plan.to_json()) == demo.plan
    assert plan.notes == []
    for task in plan.tasks:
        assert sorted(refs_in(task.args)) == sorted(task.deps)
    named = {file.name for file in demo.files} | {str(r.path) for turn in demo.chat for r in turn.resources}
    given = set(re.findall(r'"([^"<]+\.(?:jpg|png|wav|mp3|mp4|csv))"', demo.written))
    assert given <= named | {name for turn in demo.chat for name in turn.request.split()}


def test_the_bank_shows_every_task_chains_graphs_chinese_follow_ups_and_nothing_to_do():
    plans = [demo.plan for demo in BANK]
    assert len(BANK) >= 60
    assert {task["task"] for plan in plans for task in plan} == set(TASKS)
    assert sum(len(plan) > 1 for plan in plans) >= 15
    assert any(len(task["dep"]) > 1 for plan in plans for task in plan)
    assert sum(bool(re.search("[\u4e00-\u9fff]", demo.request)) for demo in BANK) >= 12
    assert sum(bool(demo.chat) for demo in BANK) >= 4
    assert sum(not plan for plan in plans) >= 4
    assert len({demo.request for demo in BANK}) == len(BANK)


def test_no_example_is_a_request_of_an_evaluation():
    def plain(text):
        return "".join(filter(str.isalnum, text.casefold()))

    evaluated = {plain(row["request"]) for file in EVALUATED for row in json.loads(file.read_text("utf-8"))}
    assert len(evaluated) > 200
    assert not [demo.request for demo in BANK if plain(demo.request) in evaluated]


@pytest.mark.parametrize(
    ("request_", "task"),
    [
        ("How many objects can you see in b.jpg?", "object-detection"),
        ("Write down what she says in talk.wav", "automatic-speech-recognition"),
        ("把“晚安”翻译成法文", "translation"),
        ("Take the depth map of b.jpg and draw a castle after it", "depth-text-to-image"),
    ],
)
def test_the_nearest_example_shows_the_task_that_is_asked_for(request_, task, by_words):
    assert task in nearest(BANK, brief(request_), by_words, 4)[-1].tasks


def test_the_chosen_are_varied_and_no_more_than_asked_for(by_words):
    chosen = nearest(BANK, brief("Take the edges of b.jpg and draw a bridge after it"), by_words, 6)
    assert len(chosen) == 6
    tasks = [demo.tasks for demo in chosen]
    assert all(tasks.count(each) <= 2 for each in tasks)
    assert nearest(BANK, brief("hello"), by_words, 0) == []


def test_chinese_requests_are_shown_chinese_examples(by_words):
    nearest_two = nearest(BANK, brief("描述 b.jpg 的内容"), by_words, 2)
    assert all(re.search("[\u4e00-\u9fff]", demo.request) for demo in nearest_two)


def test_a_chain_is_shown_a_chain_of_the_same_tasks(by_words):
    asked = "Extract the audio of b.mp4, then transcribe the recording"
    assert nearest(BANK, brief(asked), by_words, 1)[0].tasks == (
        "extract-audio",
        "automatic-speech-recognition",
    )


def test_each_step_of_a_request_is_compared_with_the_ways_to_ask_for_each_task(by_words):
    first, second = by_words.tasks(brief('Describe b.jpg and translate "hello" to German'))
    assert max(first, key=first.get) == "image-to-text"
    assert max(second, key=second.get) == "translation"
    assert by_words.tasks(brief("")) == []


def test_a_follow_up_turn_is_shown_one_and_other_requests_are_not(by_words):
    turn = ChatTurn("Draw a boat", "Here it is")
    assert nearest(BANK, brief("Now make it red", turns=(turn,)), by_words, 4)[-1].chat
    assert not any(demo.chat for demo in nearest(BANK, brief("Now make it red"), by_words, 20))


def test_examples_use_the_names_and_arguments_under_which_tasks_are_offered(by_words):
    mine = TaskSpec("Object Detection", "tool", "Find objects.", (Arg("image", "image"),), ("image",))
    chosen = nearest(BANK, brief("How many cars are in b.jpg?", {mine.name: mine}), by_words, 3)
    assert {name for demo in chosen for name in demo.tasks} == {"Object Detection"}
    other = TaskSpec("Object Detection", "tool", "Find.", (Arg("video", "video"),), ("image",))
    assert not any(demo.plan for demo in nearest(BANK, brief("How many?", {other.name: other}), by_words, 3))


def test_a_narrowed_list_keeps_the_order_and_what_the_request_names(by_words):
    shown = list(narrowed(brief("Do an unconditional image generation for me"), by_words, BANK))
    assert "unconditional-image-generation" in shown
    assert len(shown) < len(TASKS)
    assert shown == [name for name in TASKS if name in shown]


def test_a_short_list_is_not_narrowed(by_words):
    few = dict(list(TASKS.items())[:SHOWN_BY_WORDS])
    assert narrowed(brief("Speak", few), by_words, BANK) == few


def test_the_right_tasks_are_nearly_always_among_those_shown(by_words):
    rows = [row for file in EVALUATED for row in json.loads(file.read_text("utf-8"))]
    missed = [
        row["request"]
        for row in rows
        if not {name for name, _ in (row.get("plans") or [row["plan"]])[0]}
        <= set(narrowed(brief(row["request"]), by_words, BANK))
    ]
    assert len(missed) <= 0.05 * len(rows), missed
