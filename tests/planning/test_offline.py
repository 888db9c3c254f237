"""The offline planner: plain requests become the right plan, and nothing else is dropped without a note."""

import asyncio
import math
import pickle
import threading
import tracemalloc
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import notation
import pytest
from cost import cost_of
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from processes import run_python

from jarvis_agent.backends.starter.backend import MINILM, STARTERS, find_weights
from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.notes import template_of
from jarvis_agent.core.phrases import CHINESE
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.evaluation.requests import judge
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.offline.network import PLANNER as PLANNER_ROW
from jarvis_agent.planning.offline.network import NetworkPlan, PointerNetwork, open_network
from jarvis_agent.planning.offline.planner import plan_request
from jarvis_agent.planning.offline.sequences import END, TokenizedRequest
from jarvis_agent.planning.plan import NO_FILE, Plan

PLANNER = OfflinePlanner(settings=Settings(offline=True))
BOOK = "The sea was calm and the ships lay still in the harbour. " * 2000

pytestmark = pytest.mark.starter


def image(path: str) -> Resource:
    return Resource(kind="image", path=Path(path), name=Path(path).name)


def plan(request: str, **rest: Any) -> Plan:
    return PLANNER.invoke({"input": request, **rest})


def graph(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    return [(task.task, task.args) for task in plan.tasks]


def scores(*voices: str) -> tuple[float, float]:
    """The shares of exact plans, and of wrong ones without a note, of every fourth record."""
    exact = quiet = count = 0
    for voice in voices:
        for record in notation.read_records(notation.FILES / f"{voice}.txt")[::4]:
            asked = record.as_request("zh" if voice.startswith("zh") else "en")
            made = PLANNER.invoke(asked.inputs)
            is_right = judge(asked, made.tasks).exact
            exact, quiet, count = exact + is_right, quiet + (not is_right and not made.notes), count + 1
    return exact / count, quiet / count


@pytest.mark.slow
def test_sentences_that_were_learned_get_their_plans() -> None:
    assert scores("plain_sentences", "zh_plain_sentences")[0] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("voice", ["hurried_student", "security_guard", "zh_first_time_user", "zh_senior"])
def test_most_sentences_of_people_that_were_not_learned_from_get_their_plans_or_a_note(voice: str) -> None:
    exact, quiet = scores(voice)
    assert exact > 0.4
    assert quiet < 0.15


def test_a_task_that_is_not_offered_is_named() -> None:
    @tool
    def count_words(text: str) -> str:
        """Count the words of a text."""
        return str(len(text.split()))

    reasons = {"one of the tools": ["image-to-text", count_words], "`jarvis models": ["image-to-text"]}
    for reason, tools in reasons.items():
        made = OfflinePlanner(tools).invoke("Transcribe b.wav")
        assert made.tasks == []
        assert reason in " ".join(made.notes)


def test_what_works_on_the_result_of_a_missing_task_is_left_out_and_says_so() -> None:
    planner = OfflinePlanner(["image-to-text", "text-to-speech", "automatic-speech-recognition"])
    made = planner.invoke(
        "Transcribe b.wav, translate the transcript to German and read the translation aloud"
    )
    assert [task.task for task in made.tasks] == ["automatic-speech-recognition"]
    assert any("needs translation" in note for note in made.notes)
    assert any(
        note.startswith("text-to-speech is left out: it depends on translation") for note in made.notes
    )
    for note in made.notes:
        assert CHINESE.translated(note) != note


def test_the_planner_is_a_runnable_and_a_fallback() -> None:
    def fails(value: Any) -> Plan:
        raise ValueError("no key")

    chain = RunnableLambda(fails).with_fallbacks([PLANNER], exception_key="error")
    made = chain.invoke({"input": "Describe cat.jpg"})
    assert graph(made) == [("image-to-text", {"image": "cat.jpg"})]
    assert made.notes == ["the language model could not plan: ValueError: no key"]
    assert graph(PLANNER.invoke("Describe cat.jpg")) == graph(made)
    assert graph(asyncio.run(PLANNER.ainvoke("Describe cat.jpg"))) == graph(made)
    german = plan("Translate your answer to German", chat_history=[HumanMessage("?"), AIMessage("A cat.")])
    assert graph(german) == [("translation", {"text": "A cat.", "tgt_lang": "German"})]
    assert plan("Describe a.jpg", tools={}).notes == ["no task is offered"]
    only = OfflinePlanner(["object-detection"], settings=Settings(offline=True))
    assert [task.task for task in only.invoke("Detect the objects in cat.jpg").tasks] == ["object-detection"]


WORDS = (
    "a.jpg", "b.wav", "and", "then,", "it", ".", "?", ":", "\n", "“x”", "'y'", "translate", "describe", "to",
    "how", "many", "French", "aloud", "the", "image", "text", "context:", "labels:", "summary", "of", "make",
    "draw", "，", "transcribe", "翻译", "描述", "with", "using", "mask", "canny", "pose", "dub", "in detail",
    "<resource>-0", "<resource>-7", "\ue000", "🦊", "\ud83d", "-90", "1,920",
)  # fmt: skip


@given(words=st.lists(st.sampled_from(WORDS), max_size=25))
@hypothesis_settings(max_examples=30)
def test_every_request_gets_a_valid_plan(words: list[str]) -> None:
    made = plan(" ".join(words))
    assert made.tasks or made.notes
    for place, task in enumerate(made.tasks):
        spec = TASKS[task.task]
        assert task.id == place
        assert all(0 <= dep < place for dep in task.deps)
        assert set(spec.required) <= task.args.keys() <= {arg.name for arg in spec.inputs}


def test_planning_loads_no_torch_and_no_client_of_a_language_model() -> None:
    code = """if True:
        import sys
        from jarvis_agent import OfflinePlanner
        print(OfflinePlanner().invoke("Draw a cat").tasks[0].task)
        heavy = {"torch", "transformers", "sentence_transformers", "onnxruntime", "openai"}
        print(*(heavy | {"numpy"}) & set(sys.modules))
    """
    assert run_python(code).split() == ["text-to-image", "numpy"]


def test_the_network_is_read_once_in_a_process() -> None:
    assert len({open_network(Settings(offline=True, seed=number)) for number in range(3)}) == 1


def test_a_changed_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, digest),) = PLANNER_ROW.files.items()
    changed = replace(PLANNER_ROW, files={name: "0" * 64})
    monkeypatch.setattr("jarvis_agent.planning.offline.network.PLANNER", changed)
    with pytest.raises(ConfigError, match=rf"SHA-256 of .*planner\.npz is {digest}, not 0"):
        open_network(Settings(offline=True))


def test_most_weights_stay_in_8_bits() -> None:
    encoder = find_weights(STARTERS[MINILM])
    assert encoder is not None
    weights = encoder.parents[1] / "planner.npz"
    tracemalloc.start()
    try:
        network = PointerNetwork(weights, encoder.parent)
        assert tracemalloc.get_traced_memory()[0] < 2.5 * weights.stat().st_size  # all in 32 bits take 4
        assert network.known_tasks
    finally:
        tracemalloc.stop()


def test_an_attached_file_that_no_task_uses_becomes_a_note() -> None:
    files = [image("cat.jpg"), image("dog.jpg")]
    assert plan("Describe cat.jpg", files=files).notes == ["no task uses “dog.jpg”"]
    inside = [image("at.jpg"), image("cat.jpg")]
    assert plan("Describe cat.jpg", files=inside).notes == ["no task uses “at.jpg”"]
    assert not plan("Describe the picture", files=files[:1]).notes


def test_a_file_that_cannot_be_read_is_why_nothing_is_planned() -> None:
    file = Resource(kind="file", path=Path("old.doc"), name="old.doc")
    advice = "the content of “old.doc” cannot be read; save it in another format, such as PDF"
    assert advice in plan("Read old.doc aloud.", files=[file]).removed


def test_a_document_of_which_a_part_is_meant_gets_a_note() -> None:
    for asked, part in (("Summarize page 2 of report.pdf", "page 2 of"), ("总结report.pdf的第2页", "第2页")):
        assert f"no task type does this: “{part}”" in plan(asked).notes
    assert not plan("Summarize report2.pdf").notes


def test_a_request_that_asks_for_nothing_or_is_not_understood_gets_a_note() -> None:
    assert plan("Hello, how are you?").notes == ["“Hello, how are you” asks for nothing that a task does"]
    assert plan("").notes


@pytest.mark.parametrize(
    "request_",
    [
        "Please confirm if there is a cup in the image",
        "How many people are in the picture?",
        "Describe the photo and read it aloud",
        "描述这张照片，然后翻译成英文",
        "图里有没有杯子？",
        "把这段录音写成文字",
    ],
)
def test_a_request_without_its_file_says_that_one_is_missing(request_: str) -> None:
    made = plan(request_)
    assert made.tasks == []
    assert template_of(made.notes[0]) == NO_FILE
    assert CHINESE.translated(made.notes[0]) != made.notes[0]


@pytest.mark.parametrize("value", ["?", ["<resource>-0", "?"]])
def test_a_task_that_lacks_a_file_is_left_out_with_those_that_use_its_result(value: Any) -> None:
    network = FakeNetwork(0.9, 0.9)
    task = "image-to-text" if isinstance(value, str) else "visual-document-retrieval"
    network.output.tasks[0] = Task(task=task, id=0, args={"image": value, "text": "what?"})
    made, _ = plan_request(PlanRequest.of("Describe it"), Settings(offline=True), network)
    assert made.tasks == []
    assert made.notes == [NO_FILE.format(step="“Describe it”")]  # and no note on each task that waits for it


def test_thanks_need_no_file() -> None:
    for request_ in ("Thanks, that was great!", "谢谢，晚安", "Print the photo", "Order me a pizza"):
        assert NO_FILE not in map(template_of, plan(request_).notes)


class FakeNetwork:
    """Writes the same plan for each request."""

    known_tasks = TASKS.keys()

    def __init__(self, *likely: float, **rest: Any) -> None:
        tasks = [
            Task(task="image-to-text", id=0, args={"image": "a.jpg"}),
            Task(task="translation", id=1, dep=[0], args={"text": "<resource>-0", "tgt_lang": "French"}),
        ]
        fields = {"left_out": [], "probability": math.prod(likely), **rest}
        self.output = NetworkPlan(tasks=tasks[: len(likely)], probabilities=list(likely), **fields)

    def write(self, request: PlanRequest, offered: Any) -> NetworkPlan:
        return self.output


@pytest.mark.parametrize(
    ("network", "tasks", "note"),
    [
        (FakeNetwork(0.99, 0.98), 2, ""),
        (FakeNetwork(0.9, 0.5), 2, "this plan is a guess"),
        (FakeNetwork(0.9, 0.01), 1, "only understood in part"),
        (FakeNetwork(0.01, 0.9), 0, "is not understood"),
        (FakeNetwork(0.99, left_out=["mail it"]), 1, "no task type does this: “mail it”"),
        (FakeNetwork(0.99, unread="and \n more"), 1, "only the beginning and the end"),
    ],
)
def test_what_is_unlikely_left_out_or_unread_has_a_note(network: Any, tasks: int, note: str) -> None:
    made, _ = plan_request(PlanRequest.of("Describe a.jpg"), Settings(offline=True), network)
    assert len(made.tasks) == tasks
    assert note in " ".join(made.notes)
    assert bool(made.notes) == bool(note)


@pytest.mark.parametrize(
    ("doubt", "note"),
    [
        ((0, ""), "image-to-text may be the wrong task"),
        ((1, "tgt_lang"), "“French” may be wrong as tgt_lang of translation"),
        ((1, "text"), "“the result of image-to-text” may be wrong as text of translation"),
        ((2, ""), "perhaps more was meant"),
    ],
)
def test_a_guess_names_its_least_likely_part_once(doubt: tuple[int, str], note: str) -> None:
    network: Any = FakeNetwork(0.9, 0.5, doubt=doubt)
    made, _ = plan_request(PlanRequest.of("Describe a.jpg"), Settings(offline=True), network)
    assert made.notes == [f"this plan is a guess: {note}"]
    assert note not in CHINESE.translated(made.notes[0])


def test_a_guess_names_a_file_without_its_folder(tmp_path: Path) -> None:
    result = tmp_path / ("folder" * 20) / "0-canny.png"
    network: Any = FakeNetwork(0.5, doubt=(0, "image"))
    network.output.tasks[0].args["image"] = str(result)
    made, _ = plan_request(PlanRequest.of("How large is it?"), Settings(offline=True), network)
    assert made.notes == ["this plan is a guess: “0-canny.png” may be wrong as image of image-to-text"]


def test_the_network_knows_which_part_it_doubts() -> None:
    network = open_network(Settings(offline=True))
    files = [image("cat.jpg"), image("dog.jpg")]
    request = PlanRequest.of({"input": "flurb cat.jpg to 77 and dog.jpg to 99", "files": files})
    made = network.write(request, TASKS)
    number, name = made.doubt
    assert 0 <= number <= len(made.tasks)
    assert not name or name in made.tasks[number].args


@pytest.mark.parametrize(
    ("words", "preference"),
    [
        ("As quickly as possible.", "fastest"),
        ("Use the cheapest model.", "cheapest"),
        ("Spend as little as possible.", "cheapest"),
        ("Take the most accurate model you have.", "best"),
        ("Only use local models.", "local"),
        ("Is this the best cat?", None),
        ("The cat is cheap.", None),
    ],
)
def test_a_preference_that_is_unlikely_is_left_out(words: str, preference: str | None) -> None:
    """Then the plan is a guess; models are not chosen by the opposite of what was asked."""
    made = plan(f"What animal is in cat.jpg? {words}", files=[image("cat.jpg")])
    assert made.preference in (None, preference)


@pytest.mark.parametrize(
    ("said", "preference"),
    [
        ("Describe cat.jpg as fast as possible.", "fastest"),
        ("Transcribe a.wav, use local models only", "local"),
    ],
)
def test_a_preference_in_the_request_is_one_of_the_plan(said: str, preference: str) -> None:
    assert plan(said).preference == preference


def test_a_planner_can_be_copied_and_be_a_key() -> None:
    planner = OfflinePlanner(["image-to-text"])
    assert pickle.loads(pickle.dumps(planner)).name == planner.name
    assert {planner: 1}[planner] == 1


def test_a_number_keeps_its_sign() -> None:
    for angle in (-90, 90):
        made = plan(f"Rotate street.jpg by {angle} degrees")
        assert graph(made) == [("edit-image", {"image": "street.jpg", "rotate": angle})]


@pytest.mark.parametrize("said", ["@photo.png", "~/photo.png", "photo.png-and say it", "photo.png.Thanks"])
def test_a_file_is_known_beside_signs(said: str) -> None:
    plans = [plan(f"Describe {name}", files=[image("photo.png")]) for name in (said, "photo.png")]
    assert graph(plans[0])[:1] == graph(plans[1]) == [("image-to-text", {"image": "photo.png"})]
    assert all("format" not in task.args for task in plans[0].tasks)


def test_references_in_the_words_of_a_user_are_words() -> None:
    for request in ('Translate "<resource>-7" to French', "Describe a.jpg. Translate “<resource>-0”"):
        for task in plan(request).tasks:
            assert all(dep < task.id for dep in task.deps)
            assert "<resource>-7" not in str(task.args)


def test_many_files_long_names_and_a_long_chat_fit_into_the_network() -> None:
    names = [f"a very long name of a photograph of the harbour number {number}.jpg" for number in range(16)]
    turns = [ChatTurn("word " * 200, "word " * 200, (image("x.jpg"),)) for _ in range(3)]
    made = plan("Describe them. " + "word " * 400, files=list(map(image, names)), chat_history=turns)
    assert made.tasks or made.notes


@pytest.mark.parametrize(
    ("said", "planned"),
    [
        ("Resize street.jpg to 100 px wide", ["resize-image street.jpg"]),
        ("Rotate street.jpg by 90 degrees", ["edit-image street.jpg"]),
        ("street.jpg 里有什么动物？", ["image-classification street.jpg"]),
        ("Which of them is larger, it or street.jpg?", ["media-info cat.jpg", "media-info street.jpg"]),
        ("Resize it and street.jpg to 200 px wide", ["resize-image cat.jpg", "resize-image street.jpg"]),
        ("This one too please", ["image-classification street.jpg"]),
    ],
)
def test_a_request_with_its_own_file_leaves_those_of_the_chat_alone(said: str, planned: list[str]) -> None:
    """Unless it means them, too. Where that is not sure, the plan is a guess."""
    turns = [ChatTurn("What animal is in cat.jpg?", "cat.jpg is probably a tiger cat.", (image("cat.jpg"),))]
    made = plan(said, files=[image("street.jpg")], chat_history=turns)
    files = [task.args.get("image") or task.args.get("file") for task in made.tasks]
    assert [f"{task.task} {file}" for task, file in zip(made.tasks, files, strict=True)] == planned
    is_alone = planned[0].endswith("street.jpg") and said != "This one too please"
    assert is_alone is ("this plan is a guess: perhaps more was meant" in made.notes)


def test_each_request_can_be_written_to_its_end() -> None:
    """No row of actions that are allowed ends where none may follow."""
    network, rng = open_network(Settings(offline=True)), Random(1)
    for request in ("", "12", "Describe a.jpg and b.wav", "把“你好”翻译成法语"):
        tokens = TokenizedRequest(network.vocabulary, PlanRequest.of(request))
        for _ in range(60):
            actions: list[int] = []
            while len(actions) < 25 and END not in actions:
                allowed = tokens.allowed(actions, TASKS).nonzero()[0]
                assert len(allowed), (request, tokens.read(actions))
                actions.append(int(rng.choice(allowed)))


@pytest.mark.parametrize(
    ("request_", "piece", "count"),
    [
        ("describe{} a.jpg", " ", 1000),
        ("Summarize {}", "the bridge was closed on monday and no one knew why, ", 14),
        ("describe {}", "x", 1000),
        ("say {}", "“", 1000),
        ("{}", "describe a.jpg and ", 4),
        ("{}", "f%d.jpg ", 25),
        ("{}", "把图片里的文字读出来", 100),
    ],
)
def test_the_cost_of_planning_grows_no_faster_than_the_request(request_: str, piece: str, count: int) -> None:
    def cost(times: int) -> int:
        request = request_.format("".join(piece.replace("%d", str(number)) for number in range(times)))
        return cost_of(lambda: PLANNER.invoke(request))

    PLANNER.invoke("describe a.jpg")
    assert cost(4 * count) <= 10 * cost(count)


def test_the_cost_of_a_long_chat_is_bounded() -> None:
    turns = [ChatTurn(f"what is in photo {number}.jpg", "A fox.") for number in range(2_000)]
    given = {"input": "Describe it, then read the text aloud"}
    few, many = (
        cost_of(lambda chat=chat: PLANNER.invoke({**given, "chat_history": chat}))  # type: ignore[misc]
        for chat in (turns[:500], turns)
    )
    assert many <= 5 * few


def test_a_long_text_is_used_completely_and_orders_in_the_middle_of_one_are_noted() -> None:
    for request, text in (
        (f'Summarize "{BOOK}"', BOOK),
        (f"请总结下面的文章：{'海面平静，' * 2000}", "海面平静，"),
    ):
        made = plan(request)
        assert [task.task for task in made.tasks] == ["summarization"]
        assert made.tasks[0].args["text"].count(text[:50]) >= 1000
    mine = plan(f'Summarize pasted1.txt. Then summarize "{BOOK}"')
    assert not any(BOOK[:50] in str(task.args) and "pasted" in str(task.args) for task in mine.tasks)
    made = plan(f"Describe a.jpg. {BOOK} Describe b.jpg. {BOOK}")
    assert any("only the beginning and the end" in note for note in made.notes)


async def test_a_cancelled_plan_ends_at_its_next_action(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, proceed, ended = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        proceed.wait(10.0)
        try:
            check_cancelled()
        except CancelledError:
            ended.set()
            raise

    monkeypatch.setattr("jarvis_agent.planning.offline.network.check_cancelled", step)
    planning: asyncio.Task[Any] = asyncio.create_task(PLANNER.ainvoke("draw a fox"))
    await asyncio.to_thread(begun.wait, 10.0)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    proceed.set()
    assert await asyncio.to_thread(ended.wait, 10.0)
