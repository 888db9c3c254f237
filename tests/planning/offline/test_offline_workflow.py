"""Requests that describe a workflow over a kit of tools become chains of these tools."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.evaluation.metrics import PlanGraph, graph_of
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.evaluation.synthetic import sample, toolkit, try_out
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.offline.marks import mark
from jarvis_agent.planning.offline.workflow.classify import WEIGHTS, load_model, worded
from jarvis_agent.planning.offline.workflow.clauses import clauses
from jarvis_agent.planning.offline.workflow.fit import SEED, digest, load_templates, parted
from jarvis_agent.planning.offline.workflow.tools import family, is_workflow_kit

SETTINGS = Settings(offline=True)
PLANNER = OfflinePlanner(SETTINGS)


def answering(name: str, *kinds: str) -> TaskSpec:
    names = ("text", "context") if kinds == ("text", "text") else kinds
    return TaskSpec(name, "tool", name, tuple(map(Arg, names, kinds)), ("text",))  # type: ignore[arg-type]


KIT: dict[str, TaskSpec] = {
    **toolkit(),
    "Question Answering": answering("Question Answering", "text", "text"),
    "Visual Question Answering": answering("Visual Question Answering", "text", "image"),
    "Document Question Answering": answering("Document Question Answering", "text", "image"),
    "Sentence Similarity": TaskSpec(
        "Sentence Similarity", "tool", "Compare.", (Arg("text", "text"), Arg("text2", "text")), ()
    ),
}
KNOWN = frozenset(load_model().names)

starter = pytest.mark.starter


async def planned(request: str, specs: dict[str, TaskSpec] | None = None) -> PlanGraph:
    kit = specs or KIT
    plan = await PLANNER.plan(RunContext(request, tuple(named_files(request)), specs=kit), lambda task: None)
    return graph_of(plan.tasks, kit, "1")


def pieces_of(request: str) -> list[str]:
    marked = mark(request, named_files(request))
    return [marked.restored(piece.text) for piece in clauses(marked.text)]


@pytest.mark.parametrize(
    ("request_", "pieces"),
    [
        ("Transcribe a.wav, translate it, and then read it", ["Transcribe a.wav", "translate it", "read it"]),
        ("Enhance and transcribe a.wav", ["Enhance a.wav", "transcribe a.wav"]),
        ("Identify and label the objects in a.jpg", ["Identify and label the objects in a.jpg"]),
        ("I have a.jpg that I want to classify", ["I have a.jpg", "I want to classify"]),
        ("Create a caption and a summary", ["Create a caption", "a summary"]),
        ("Translate 'Then go. And stop!' aloud", ["Translate Then go. And stop! aloud"]),
    ],
)
def test_a_request_is_cut_where_another_tool_may_be_spoken_of(request_: str, pieces: list[str]) -> None:
    assert pieces_of(request_) == pieces


def test_a_clause_says_whether_it_points_back() -> None:
    found = clauses("After editing it, estimate the depth after segmenting the picture")
    assert [(piece.is_back, piece.is_before) for piece in found] == [
        (True, False),
        (False, False),
        (True, True),
    ]


def test_names_of_files_and_quoted_texts_do_not_reach_the_classifier() -> None:
    request = "Please translate 'Good day' and describe the image 'a.jpg'"
    marked = mark(request, named_files(request))
    assert [worded(piece.text, marked) for piece in clauses(marked.text)] == [
        "translate the text",
        "describe the image",
    ]


CHAINS: dict[str, tuple[list[str], list[tuple[str, str]]]] = {
    "Please convert this recording 'a.wav' to text.": (["Automatic Speech Recognition"], []),
    "I have a photo a.jpg. Detect the objects in it, translate the labels into French and read them aloud": (
        ["Object Detection", "Translation", "Text-to-Speech"],
        [("Object Detection", "Translation"), ("Translation", "Text-to-Speech")],
    ),
    "I'd like to change the color of the roof in a.jpg to red, and estimate the depth after segmentation.": (
        ["Image Editing", "Image Segmentation", "Depth Estimation"],
        [("Image Editing", "Image Segmentation"), ("Image Segmentation", "Depth Estimation")],
    ),
    "I have a recording a.wav. I need a summary of it.": (
        ["Automatic Speech Recognition", "Summarization"],
        [("Automatic Speech Recognition", "Summarization")],
    ),
    "Draw a picture of a lighthouse. After drawing it, answer the question 'What color is the sea?'": (
        ["Text-to-Image", "Visual Question Answering"],
        [("Text-to-Image", "Visual Question Answering")],
    ),
    "I have a scanned document a.png and a question: 'Who signed the contract?'. Can you find the answer?": (
        ["Document Question Answering"],
        [],
    ),
    "Here is a text: 'Oslo is in Norway.' Answer the question 'Where is Oslo?' from the text.": (
        ["Question Answering"],
        [],
    ),
    "How similar are the sentences 'It rains.' and 'It is raining.'?": (["Sentence Similarity"], []),
    "I would like to perform Image Segmentation and Depth Estimation on the picture 'a.jpg'.": (
        ["Image Segmentation", "Depth Estimation"],
        [],
    ),
    "I want to know the answer to this question in an audio format: 'Where is Oslo?' "
    "Here is the text: 'Oslo is in Norway.'": (
        ["Question Answering", "Text-to-Speech"],
        [("Question Answering", "Text-to-Speech")],
    ),
    "I have an audio file a.wav with a question about the picture a.jpg. Please answer my question.": (
        ["Automatic Speech Recognition", "Visual Question Answering"],
        [("Automatic Speech Recognition", "Visual Question Answering")],
    ),
    "Translate the following text into French and edit the image a.jpg accordingly: 'A dog by a door'.": (
        ["Translation", "Image Editing"],
        [("Translation", "Image Editing")],
    ),
}


@starter
@pytest.mark.parametrize("request_", CHAINS)
async def test_plain_requests_become_the_chain_that_they_describe(request_: str) -> None:
    made = await planned(request_)
    assert ([node.task for node in made.nodes], made.links()) == CHAINS[request_]


@starter
async def test_words_for_what_was_made_override_the_chain() -> None:
    made = await planned(
        "Transcribe a.wav, classify the photo a.jpg, and translate the transcribed text into German."
    )
    assert made.links() == [("Automatic Speech Recognition", "Translation")]


@starter
async def test_a_file_that_names_an_output_is_no_input() -> None:
    made = await planned(
        "Read 'Hello there' aloud and save it as 'a.wav'. Then clean up the background noise."
    )
    assert made.links() == [("Text-to-Speech", "Audio-to-Audio")]


@starter
async def test_the_kit_decides_what_can_be_planned() -> None:
    few = {name: KIT[name] for name in ("Summarization", "Text-to-Speech")}
    made = await planned("Transcribe a.wav, summarize 'A long text.' and read the summary aloud.", few)
    assert {node.task for node in made.nodes} == few.keys()


OWN = {
    name: TaskSpec(name, "tool", description, (Arg("about", "any"),), ("text",))
    for name, description in {
        "weather": "Tells the weather forecast for a city.",
        "currency-converter": "Converts an amount of money from one currency to another.",
    }.items()
}


def test_only_a_kit_of_mostly_known_tools_is_read_as_a_workflow() -> None:
    assert is_workflow_kit(KIT, KNOWN)
    assert is_workflow_kit({**KIT, **OWN}, KNOWN)
    assert not is_workflow_kit({"Translation": KIT["Translation"], **OWN}, KNOWN)
    assert not is_workflow_kit(TASKS, KNOWN)
    assert not is_workflow_kit({**KIT, "translation": TASKS["translation"]}, KNOWN)
    assert not is_workflow_kit({}, KNOWN)


@starter
async def test_a_tool_that_is_not_known_is_found_by_what_it_says_of_itself() -> None:
    made = await planned(
        "What is the weather like in Paris? Translate the answer into French.", {**KIT, **OWN}
    )
    assert made.nodes[0].task == "weather"
    assert made.nodes[0].arguments == ("Paris",)
    assert made.links() == [("weather", "Translation")]


@starter
@pytest.mark.parametrize("request_", CHAINS)
async def test_tools_of_ones_own_take_nothing_from_the_known_ones(request_: str) -> None:
    assert await planned(request_, {**KIT, **OWN}) == await planned(request_)


@starter
@pytest.mark.parametrize(
    ("request_", "tasks"),
    [
        ("Don't translate it, just describe a.jpg.", ["Image-to-Text"]),
        ("Do not describe a.jpg; detect the objects in it.", ["Object Detection"]),
        ("Segment a.jpg. There is no need to estimate its depth.", ["Image Segmentation"]),
    ],
)
async def test_what_is_not_to_be_done_is_not_planned(request_: str, tasks: list[str]) -> None:
    assert [node.task for node in (await planned(request_)).nodes] == tasks


@starter
async def test_no_question_is_asked_of_the_answer_to_another() -> None:
    made = await planned(
        "I have a.jpg. Answer the question 'What color is the car?' from the image. "
        "Then answer the question 'Who is in the picture?' about the image too."
    )
    assert [node.task for node in made.nodes] == ["Visual Question Answering"] * 2
    assert made.links() == []


WORDS = (
    "a.jpg", "b.wav", "and", "then,", "it", ".", "?", ":", "\n", "'x'", "'Why?'", "translate", "describe",
    "to", "how", "French", "the", "image", "text", "summary", "of", "question", "answer", "I want", "I have",
    "after", "by", "transcribe", "based on", "with", "save as", "1.", "classify", "similar", "<resource>-0",
    "\ue000",
)  # fmt: skip


@starter
@given(words=st.lists(st.sampled_from(WORDS), max_size=25))
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_every_request_gets_a_valid_plan(words: list[str]) -> None:
    request = " ".join(words)
    plan = await PLANNER.plan(RunContext(request, tuple(named_files(request)), specs=KIT), lambda task: None)
    assert plan.tasks
    for place, task in enumerate(plan.tasks):
        assert task.id == place
        assert all(0 <= dep < place for dep in task.deps)
        assert set(KIT[task.task].required) <= task.args.keys()


@starter
def test_made_up_requests_are_planned_as_they_were_made() -> None:
    node, edge = try_out(load_model(), load_embedder(SETTINGS), 60)
    assert node > 0.85
    assert edge > 0.75


def test_made_up_requests_are_the_same_each_time_and_their_links_fit() -> None:
    def drawn() -> list[tuple[str, Any]]:
        return list(sample(load_templates(), random.Random(3), 20, held_out=True))

    assert drawn() == drawn()
    for _, graph in drawn():
        for source, target in graph.links():
            assert KIT[source].outputs[0] in {arg.kind for arg in KIT[target].inputs}


@pytest.mark.parametrize("seed", [1, SEED])
def test_no_clause_is_both_held_out_and_fitted_on(seed: int) -> None:
    seen, unseen = parted(load_templates(), seed)
    assert not {text for text, _ in seen} & {text for text, _ in unseen}
    assert {name for _, name in seen} == {name for _, name in unseen} == KNOWN
    assert {family(spec) for spec in KIT.values()} <= KNOWN


def test_the_stored_classifier_is_small_and_holds_no_code() -> None:
    assert WEIGHTS.stat().st_size < 5_000_000
    with np.load(WEIGHTS, allow_pickle=False) as stored:
        assert {*map(str, stored["names"])} == {*load_templates().tasks}


def test_the_stored_classifier_was_fitted_on_the_templates_as_they_are() -> None:
    with np.load(WEIGHTS, allow_pickle=False) as stored:
        assert str(stored["digest"]) == digest(), "run python -m jarvis_agent.planning.offline.workflow"
