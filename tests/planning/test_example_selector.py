"""Examples and tools are selected by similarity to the request."""

import json
import re
from pathlib import Path
from typing import Any

import notation
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from jarvis_agent import planning_chain
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.example_selector import FixedExamples, NearestExamples, open_selector
from jarvis_agent.planning.examples import Example, load_examples
from jarvis_agent.planning.inputs import PlanRequest, task_specs
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.retrieval import (
    SHOWN_BY_WORDS,
    TextSimilarity,
    select_tools,
)
from jarvis_agent.testing import ScriptedLLM

BANK, HINTS = load_examples("bank"), OfflinePlanner()
ROOT = Path(__file__).parents[2]
EVALUATED = ROOT / "benchmarks/data/plain_requests.json"


@pytest.fixture
def by_words(monkeypatch: pytest.MonkeyPatch) -> TextSimilarity:
    """TextSimilarity without embeddings."""
    monkeypatch.setattr(TextSimilarity, "_embeddings", None)
    return TextSimilarity()


def brief(request: str, specs: Any = TASKS, turns: Any = ()) -> PlanRequest:
    return PlanRequest(request, tuple(named_files(request)), turns, specs)


def nearest(bank: Any, asked: PlanRequest, similarity: Any, count: int) -> Any:
    given = {"input": asked.text, "files": asked.files, "chat_history": asked.turns}
    given |= {"tools": HINTS.recognise(asked.specs), "draft": HINTS.draft(asked)}
    selected = NearestExamples(similarity, bank, count=count).select_examples(given)
    return list(map(Example.of, selected))


def test_every_example_is_a_valid_plan_that_only_names_given_files() -> None:
    for example in BANK:
        plan = Plan.parse(example.to_json())
        assert json.loads(plan.to_json()) == example.plan
        assert plan.notes == []
        assert all(sorted(refs_in(task.args)) == sorted(task.deps) for task in plan.tasks)
        known = {file.name for file in example.files}
        for turn in example.chat:
            known |= {str(resource.path) for resource in turn.resources} | set(turn.request.split())
        assert known >= set(re.findall(r'"([^"<]+\.(?:jpg|png|wav|mp3|mp4|csv))"', example.to_json()))


def test_the_bank_covers_every_task_and_kind_of_request() -> None:
    plans = [demo.plan for demo in BANK]
    assert len(BANK) >= 60
    assert {task["task"] for plan in plans for task in plan} == set(TASKS)
    assert sum(len(plan) > 1 for plan in plans) >= 15
    assert any(len(task["dep"]) > 1 for plan in plans for task in plan)
    assert sum(bool(re.search("[\u4e00-\u9fff]", demo.input)) for demo in BANK) >= 12
    assert sum(bool(demo.chat) for demo in BANK) >= 4
    assert sum(not plan for plan in plans) >= 4
    assert len({demo.input for demo in BANK}) == len(BANK)


def test_no_example_is_an_evaluation_request() -> None:
    def plain(text: str) -> str:
        return "".join(filter(str.isalnum, text.casefold()))

    evaluated = {plain(row["request"]) for row in json.loads(EVALUATED.read_text("utf-8"))}
    assert len(evaluated) > 30
    assert not [demo.input for demo in BANK if plain(demo.input) in evaluated]


def test_the_nearest_example_has_the_requested_task(by_words: TextSimilarity) -> None:
    requests = {
        "How many objects can you see in b.jpg?": "object-detection",
        "Write down what she says in talk.wav": "automatic-speech-recognition",
        "把“晚安”翻译成法文": "translation",
        "Take the depth map of b.jpg and draw a castle after it": "depth-text-to-image",
    }
    for request, task in requests.items():
        assert task in nearest(BANK, brief(request), by_words, 4)[-1].tasks, request


def test_the_selected_examples_vary_and_match_the_script(by_words: TextSimilarity) -> None:
    asked = "Extract the audio of b.mp4, then transcribe the recording"
    chain = ("extract-audio", "automatic-speech-recognition")
    assert nearest(BANK, brief(asked), TextSimilarity(), 1)[0].tasks == chain
    chosen = nearest(BANK, brief("Take the edges of b.jpg and draw a bridge after it"), by_words, 6)
    assert len(chosen) == 6
    tasks = [example.tasks for example in chosen]
    assert all(tasks.count(each) <= 2 for each in tasks)
    assert nearest(BANK, brief("hello"), by_words, 0) == []
    chinese = nearest(BANK, brief("描述 b.jpg 的内容"), by_words, 2)
    assert all(re.search("[\u4e00-\u9fff]", example.input) for example in chinese)


def test_only_a_follow_up_request_gets_examples_with_a_chat(by_words: TextSimilarity) -> None:
    turn = ChatTurn("Draw a boat", "Here it is")
    assert nearest(BANK, brief("Now make it red", turns=(turn,)), by_words, 4)[-1].chat
    assert not any(demo.chat for demo in nearest(BANK, brief("Now make it red"), by_words, 20))


def test_examples_use_the_names_and_arguments_of_the_available_tasks(by_words: TextSimilarity) -> None:
    mine = TaskSpec("Object Detection", "tool", "Find objects.", (Arg("image", "image"),), ("image",))
    chosen = nearest(BANK, brief("How many cars are in b.jpg?", {mine.name: mine}), by_words, 3)
    assert {name for demo in chosen for name in demo.tasks} == {"Object Detection"}
    other = TaskSpec("Object Detection", "tool", "Find.", (Arg("video", "video"),), ("image",))
    plans = [demo.plan for demo in nearest(BANK, brief("How many?", {other.name: other}), by_words, 3)]
    assert {"video": "e1.mp4"} in [task["args"] for plan in plans for task in plan]


@tool
def order_pizza(kind: str) -> str:
    """Order a pizza."""
    return kind


@pytest.mark.parametrize("text", ["remind me to call mum at 5", "who wrote Moby Dick?", "谢啦，辛苦了！"])
def test_a_request_that_asks_for_no_task_is_shown_how_that_is_planned(text: str) -> None:
    plans = [example.plan for example in nearest(BANK, brief(text), TextSimilarity(), 3)]
    assert plans[1:] == [[], []]
    with_tool = nearest(BANK, brief(text, task_specs([order_pizza])), TextSimilarity(), 3)
    assert any(example.plan for example in with_tool)


def test_tools_of_any_name_get_examples_by_their_types_and_descriptions() -> None:
    @tool
    def refund_order(order_id: str, picture_file: str, reason: str = "") -> str:
        """Refund an order of the shop."""
        return order_id

    own = {
        "zeta": TaskSpec("zeta", "tool", "Caption an image.", (Arg("photo", "image"),), ("text",)),
        "eta": TaskSpec("eta", "tool", "Translate a text.", (Arg("words", "text"),), ("text",)),
        "theta": TaskSpec("theta", "tool", "Speak a text.", (Arg("said", "text"),), ("audio",)),
        "refund_order": refund_order,
    }
    llm = ScriptedLLM("[]")
    chain = planning_chain(llm, tools=own, prompts="small", hints=HINTS)
    chain.invoke("Describe b.jpg, translate the caption into French and read it aloud")
    plans = [json.loads(m.text) for m in llm.calls[0].messages if m.type == "ai"]
    calls = {task["task"]: [*task["args"]] for plan in plans for task in plan}
    assert calls == {"zeta": ["photo"], "eta": ["words"], "theta": ["said"]}
    assert "Translate a text" not in llm.calls[0].prompt  # It is the bank's example of a translation.
    chain.invoke("Refund the order 4711")
    shown = [m.text for m in llm.calls[1].messages]
    place = shown.index("Refund an order of the shop: A1, e1.jpg")
    assert json.loads(shown[place + 1])[0]["args"] == {"order_id": "A1", "picture_file": "e1.jpg"}


def test_the_nearest_examples_have_the_tasks_that_the_hints_find() -> None:
    requests = {
        "How many people are in a.jpg and b.jpg?": ("object-detection",),
        "描述 a.jpg，然后把描述翻译成法语。": ("image-to-text", "translation"),
        "Clean a.wav, write down what is said and shorten it": ("automatic-speech-recognition",),
    }
    for request, tasks in requests.items():
        assert {*tasks} <= {*nearest(BANK, brief(request), TextSimilarity(), 3)[-1].tasks}


def test_a_filtered_list_keeps_the_order_and_named_tasks_and_a_short_one_is_not_filtered(
    by_words: TextSimilarity,
) -> None:
    shown = list(select_tools(brief("Do an unconditional image generation for me"), by_words))
    assert "unconditional-image-generation" in shown
    assert len(shown) < len(TASKS)
    assert shown == [name for name in TASKS if name in shown]
    few = dict(list(TASKS.items())[:SHOWN_BY_WORDS])
    assert select_tools(brief("Speak", few), by_words) == few


@pytest.mark.starter
def test_a_filtered_list_has_the_facts_of_a_file_of_any_kind() -> None:
    for asked in (
        "What are the dimensions of a.jpg?",
        "How long is a.wav?",
        "How many pages has a.pdf?",
    ):
        assert "media-info" in select_tools(brief(asked), TextSimilarity()), asked


@pytest.mark.slow
def test_filtering_keeps_the_right_tasks_of_90_percent_of_the_requests(by_words: TextSimilarity) -> None:
    voices = (notation.FILES / f"{name}.txt" for name in ("plain_sentences", "zh_plain_sentences"))
    asked = [record for voice in voices for record in notation.read_records(voice)]
    missed = [
        one.request
        for one in asked
        if not {task.task for task in one.plans[0]} <= set(select_tools(brief(one.request), by_words))
    ]
    assert len(missed) <= 0.1 * len(asked), missed


def test_examples_are_selected_by_any_embeddings_and_their_vectors_computed_once() -> None:
    class Letters(Embeddings):
        asked = 0

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.asked += len(texts)
            return [[float(text.lower().count(letter)) for letter in "abcdefghij"] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return [float(text.lower().count(letter)) for letter in "abcdefghij"]

    letters = Letters()
    bank: list[Any] = [{"input": word, "plan": []} for word in ("cabbage", "hhhh")]
    selector = NearestExamples(TextSimilarity(letters), bank, count=1)
    assert [example["input"] for example in selector.select_examples({"input": "bagbac"})] == ["cabbage"]
    selector.add_example({"input": "bagbac", "plan": "[]"})
    before = letters.asked
    assert [example["input"] for example in selector.select_examples({"input": "bagbac"})] == ["bagbac"]
    assert letters.asked == before + 1
    # Only the default embeddings know no Chinese.
    assert TextSimilarity(letters).scores("羊 abc", ["羊", "abc"]) == [0.0, pytest.approx(1.0)]
    chain: Any = planning_chain(ScriptedLLM("[]"), embeddings=letters)
    assert chain.selector.similarity is chain.similarity
    chain.invoke("Describe a.jpg")
    assert letters.asked > before + 1


def test_an_example_selector_a_list_or_a_name_replaces_the_examples(tmp_path: Path) -> None:
    own = {
        "input": "Do the thing to z.jpg",
        "plan": [{"task": "image-to-text", "id": 0, "args": {"image": "z.jpg"}}],
        "chat_history": [HumanMessage("before"), AIMessage("after")],
    }

    class Mine(BaseExampleSelector):
        def add_example(self, example: Any) -> None:
            raise NotImplementedError

        def select_examples(self, input_variables: Any) -> Any:
            assert input_variables["input"] == "Describe a.jpg"
            return [own]

    file = tmp_path / "examples.json"
    file.write_text(json.dumps([{"input": "From a file", "plan": []}]))
    (tmp_path / "plan.md").write_text("Rules\n---\n{{ User Input }}")
    cases = {
        "Do the thing to z.jpg": {"examples": Mine()},
        "Do the thing to z.jpg\n": {"examples": [own]},
        "how many objects in e1.jpg": {"examples": "paper"},
        "Astronaut walking in space": {"examples": "default"},
        "From a file": {"prompts": tmp_path},
        "pose-text-to-image": {"prompts": "paper"},
    }
    for text, options in cases.items():
        llm = ScriptedLLM("[]")
        planning_chain(llm, **options).invoke("Describe a.jpg")
        assert text.strip() in llm.calls[0].prompt, options


def test_examples_of_another_form_are_a_config_error(tmp_path: Path) -> None:
    for wrong, message in (
        (7, "a BaseExampleSelector, not 7"),
        ("knn", '"nearest"'),
        ([{"plan": []}], "input"),
        ([{"input": 7, "plan": []}], "7 is not text"),
        ([{"input": "fly", "plan": [{"id": 0}]}], "task: Field required"),
        ([{"input": "fly", "plan": "["}], "Expecting value"),
        ([{"input": "fly", "plan": [], "chat_history": ["hi"]}], "an example is"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_selector(wrong, TextSimilarity(), count=1)
    (tmp_path / "examples.json").write_text("{")
    with pytest.raises(ConfigError, match=r"examples\.json cannot be read"):
        open_selector(tmp_path / "examples.json", TextSimilarity(), count=1)
    assert FixedExamples([]).select_examples({}) == []


def test_without_embeddings_shared_letters_are_compared(by_words: TextSimilarity) -> None:
    others = ["Count the sheep in b.jpg", "Counting to ten", "数一数图里的羊"]
    near, far, other = by_words.scores("Count my sheep in a.jpg", others)
    assert 1 == near > far > other == 0
    assert by_words.scores("数一数图里的羊", ["数一数图里的牛", "朗读这段文字"])[0] > 0.7
