"""The answer without a language model: sentences on results, and the questions that results do not answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.questions import find_questions
from jarvis_agent.response.report import report

CLASSES = "image-classification"
LONG = "A long text that is cut after its first forty characters"
CATS = [("tiger cat", 0.38), ("Egyptian cat", 0.35), ("tabby", 0.18), ("lynx", 0.02)]


def scored(*labels: tuple[str, float | None]) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in labels]


def boxes(*labels: str) -> list[dict[str, Any]]:
    box = {"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}
    return [{"label": label, "score": 0.9, "box": box} for label in labels]


def result(
    task: str, output: Any = None, text: str | None = None, /, *paths: str, number: int = 0, **args: Any
) -> TaskResult:
    made = [Resource(kind="text", text=text)] if text is not None else []
    made += [Resource(kind="image", path=Path(path), name=f"part {n}") for n, path in enumerate(paths, 1)]
    asked = Task(task=task, id=number, args=args or {"image": "a.jpg"})
    return TaskResult(task=asked, status="ok", output=output, resources=made)


def said(results: Sequence[TaskResult] | TaskResult, request: str = "Look at a.jpg") -> str:
    """The report's results, with plain spaces."""
    listed = [results] if isinstance(results, TaskResult) else results
    plan = Plan(tasks=[one.task for one in listed])
    return "".join(report(request, plan, listed)).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (CATS[1:], "It is probably an Egyptian cat (35 %); it could also be a tabby (18 %)."),
        ([("tabby", 0.97), ("lynx", 0.08)], "It is a tabby (97 %)."),
        (
            [("minibus", 0.5), *CATS],
            "It is probably a minibus (50 %); it could also be a tiger cat (38 %) or an Egyptian cat (35 %).",
        ),
        ([("sunglasses", 0.95)], "It is sunglasses (95 %)."),
        ([("unicycle", 0.95)], "It is a unicycle (95 %)."),
        ([("tabby, tabby cat", 0.97)], "It is a tabby (97 %)."),
        ([("tabby", 0.12), ("lynx", 0.01)], "It is hard to name: perhaps a tabby (12 %)."),
        ([("nsfw", 0.8), ("normal", 0.2)], "It is probably “nsfw” (80 %); it could also be “normal” (20 %)."),
        ([("cat", None)], "It is “cat”."),
        ([("tabby", 0.004), ("lynx", 0.001)], "It is hard to name: perhaps a tabby."),
    ],
)
def test_labels(labels: list[tuple[str, float | None]], sentence: str) -> None:
    assert said(result(CLASSES, scored(*labels))) == sentence


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (
            result("object-detection", boxes(*["person"] * 3, "dog", "dog"), "5 objects"),
            "I found 3 people and 2 dogs.",
        ),
        (
            result("object-detection", [], "no objects", "/o/1.png"),
            "I found no objects.\nHere is the marked picture: /o/1.png",
        ),
        (
            result("object-detection", boxes(*"abcdefghij"), ""),
            "I found 1 a, 1 b, 1 c, 1 d, 1 e, 1 f, 1 g, 1 h and 2 others.",
        ),
        (result("voice-activity-detection", [], "no speech", audio="a.wav"), "I found no speech."),
        (
            result("fill-mask", [{"token_str": " sun", "score": 0.95, "sequence": "x"}], "sun (0.95)"),
            "It is “sun” (95 %).",
        ),
        (result("visual-question-answering", [{"answer": "two", "score": 0.9}], "two"), "The answer is: two"),
        (result("image-to-text", {"generated_text": "a cat"}, "a cat"), "What can be seen: a cat"),
        (result("image-to-text", {}, "a\nb", image="a.png", text="read"), "The text reads:\na\nb"),
        (result("image-to-text", {}, "", image="a.png", text="read"), "The text reads: (no text)"),
        (result("text-generation", {}, "it was\ntwo", text="x"), "it was\ntwo"),
        (
            result("tabular-regression", [1.5, 2.5], "2 rows: from 1.5 to 2.5"),
            "The prediction: 2 rows: from 1.5 to 2.5",
        ),
        (result("translation", {}, "Guten Tag", text="Hello"), "The translation: Guten Tag"),
        (result("my_tool", {"x": 1}), 'my_tool: {"x": 1}'),
        (result("my_tool", [{"label": "a", "score": "high"}], "a is high"), "my_tool: a is high"),
        (result("my_tool", scored(("b", 0.1), ("a", 0.9))), "It is “a” (90 %)."),
        (result("canny-control", {}, None, "/o/1.png"), "Here is the canny edge image: /o/1.png"),
    ],
)
def test_other_results(one: TaskResult, sentence: str) -> None:
    assert said(one) == sentence


def test_several_results_say_what_they_are_about() -> None:
    results = [
        result("canny-control", {}, None, "/o/1.png"),
        result("image-to-text", {}, "a cat", number=1, image="<resource>-0"),
        result(CLASSES, scored(("tabby", 0.97)), number=2, image="<resource>-0"),
        result("translation", {}, "x\ny", number=3, text=LONG, tgt_lang="fr"),
        result("object-detection", boxes("cat"), "1 object: 1 cat", number=4),
        result("crop-image", {}, None, "/o/2.png", number=6, image="a.jpg", box="<resource>-4"),
        result("visual-document-retrieval", [], "p.png (0.9)", number=5, text="x", image=["p.png", "q.png"]),
    ]
    assert said(results).split("\n\n")[0].splitlines() == [
        "- Here is the canny edge image made from a.jpg: /o/1.png",
        "- What can be seen in the canny edge image of a.jpg: a cat",
        "- The canny edge image of a.jpg is a tabby (97 %).",
        "- The translation of “A long text that is cut after its first …” → fr:",
        "  x",
        "  y",
        "- In a.jpg I found 1 cat.",
        "- Here is the cropped picture made from a.jpg: /o/2.png",
        "- The ranking of p.png, q.png, best first: p.png (0.9)",
    ]


def test_many_files_are_listed_with_their_names_up_to_eight() -> None:
    text = said(result("mask-generation", [], "30 masks", *(f"/o/{n}.png" for n in range(1, 31))))
    assert text.startswith("I found 30 masks.\nHere are the files:\n- /o/1.png (part 1)\n")
    assert text.endswith("- /o/8.png (part 8)\n- and 22 more files beside it")


@pytest.mark.parametrize(
    ("request_text", "one", "sentence"),
    [
        (
            "a.jpg 里是什么",
            result(CLASSES, scored(*CATS[::2])),
            "这很可能是 tiger cat（38 %），也可能是 tabby（18 %）。",
        ),
        ("数一数", result("object-detection", boxes("dog", "dog", "kiwi")), "找到了 2 只狗和 1 个 kiwi。"),
        ("有狗吗？", result("object-detection", boxes("dog")), "是的：找到了 1 只狗。"),
        ("图里有车吗？", result("object-detection", boxes("car")), "是的：找到了 1 辆汽车。"),
        ("检查一下 a.jpg 里有没有狗", result("object-detection", boxes("dog")), "是的：找到了 1 只狗。"),
        ("这是猫吗？", result(CLASSES, scored(("tiger cat", 0.97))), "是的：这是 tiger cat（97 %）。"),
        ("读一下", result("image-to-text", {}, "abc", image="a.png", text="read"), "写的是：abc"),
        ("画边缘", result("canny-control", {}, None, "/o/1.png"), "边缘图在这里：/o/1.png"),
    ],
)
def test_chinese(request_text: str, one: TaskResult, sentence: str) -> None:
    assert said(one, request_text) == sentence


@pytest.mark.parametrize(
    ("question", "output", "start"),
    [
        ("Is this a cat?", scored(*CATS), "Yes: It is"),
        ("Does a.jpg show cats?", scored(*CATS), "Yes: It is"),
        ("Are there any people in the photo?", boxes("person", "dog"), "Yes: I found 1 person"),
        ("Is the text positive?", scored(("POSITIVE", 0.98), ("NEGATIVE", 0.02)), "Yes: It is"),
        ("Is the text negative?", scored(("POSITIVE", 0.98), ("NEGATIVE", 0.02)), "No: It is “POSITIVE”"),
        ("Is this a dog?", scored(("malamute", 0.98), ("hot dog", 0.02)), "What came out does not answer"),
        ("Is this a lynx?", scored(*CATS), "What came out does not answer"),
        ("Is there a red dog in a.jpg?", boxes("dog"), "What came out does not answer"),
        ("Is there a unicorn?", boxes("dog"), "What came out does not answer"),
        ("Is there a dog in b.jpg?", boxes("dog"), "What came out does not answer"),
        ("Is there a dog in a.jpg or in b.jpg?", boxes("dog"), "Yes: I found"),
        ("Tell me if there is a dog in a.jpg", boxes("dog"), "Yes: I found"),
        ("Is there anyone in a.jpg?", boxes("person"), "Yes: I found"),
        ("Is there a hot dog?", boxes("hot dog"), "Yes: I found"),
        ("Is there a dog?", boxes("hot dog"), "What came out does not answer"),
        ("Is this a cat?", scored(("Madagascar cat", 0.97)), "What came out does not answer"),
        ("有马吗", boxes("zebra"), "得到的结果没有回答"),
        ("Do the pictures show a dog?", boxes("cat"), "What came out does not answer"),
        ("Is this a dog or a cat?", boxes("dog"), "I found"),
        ("Is there a dog and a cat?", boxes("dog"), "I found"),
    ],
)
def test_a_label_decides_a_question_if_it_can(question: str, output: Any, start: str) -> None:
    text = said(result(CLASSES, output), question)
    assert text.startswith(start)
    assert start[:4] != "What" or text.splitlines()[0].endswith(question)


@pytest.mark.parametrize(
    ("question", "one", "is_answered"),
    [
        ("How many people are in a.jpg?", result(CLASSES, scored(*CATS)), False),
        ("How many people are in a.jpg?", result("object-detection", boxes("person")), True),
        ("How many people are in a.jpg?", result("object-detection", []), True),
        ("How many objects are in a.jpg?", result("object-detection", boxes("person")), True),
        ("How many zebras are in a.jpg?", result("object-detection", boxes("person")), False),
        ("Where is the cat in a.jpg?", result("object-detection", boxes("cat")), True),
        ("Where is the cat in a.jpg?", result("object-detection", boxes("dog")), False),
        ("a.jpg 里的狗在哪里？", result("object-detection", boxes("dog")), True),
        ("a.jpg 里有几辆车？", result("object-detection", boxes("car")), True),
        ("这几张图片里是什么", result(CLASSES, scored(*CATS)), True),
        ("Read aloud: Where is it?", result("text-to-speech", text="Where is it?"), True),
        ("Where was a.jpg taken?", result("object-detection", boxes("dog")), False),
        ("What colour is the car in a.jpg?", result(CLASSES, scored(*CATS)), False),
        ("What colour is the car in a.jpg?", result("image-to-text", {}, "a red car"), True),
        ("a.jpg 里的车是什么颜色？", result(CLASSES, scored(*CATS)), False),
        ("What is in a.jpg?", result(CLASSES, scored(*CATS)), True),
        ("Can you make the edges of a.jpg?", result("canny-control", {}, None, "/o/1.png"), True),
        ("能画出 a.jpg 的边缘吗？", result("canny-control", {}, None, "/o/1.png"), True),
    ],
)
def test_a_question_that_the_results_do_not_answer_is_said_first(
    question: str, one: TaskResult, is_answered: bool
) -> None:
    first = said(one, question).split("\n\n")[0]
    assert first.startswith(("What came out does not answer this: ", "得到的结果没有回答")) != is_answered


def test_a_question_is_quoted_without_what_is_before_it() -> None:
    text = said(result(CLASSES, boxes("dog")), "Look at a.jpg, is there a unicorn?")
    assert text.startswith("What came out does not answer this: is there a unicorn?")


def test_a_question_about_one_of_two_files_is_decided_by_its_result() -> None:
    results = [
        result("object-detection", boxes("dog"), image="a.jpg"),
        result("object-detection", boxes("dog"), number=1, image="b.jpg"),
    ]
    lines = said(results, "Find things in a.jpg. Is there a dog in b.jpg?").splitlines()
    assert lines[:2] == ["- In a.jpg I found 1 dog.", "- Yes: In b.jpg I found 1 dog."]


def test_quoted_texts_conditions_and_wishes_are_no_questions() -> None:
    for request in (
        "Translate “Where is it?” into German",
        "If there is a dog in a.jpg, crop it",
        "Is it possible to read a.jpg?",
        "Have a look at a.jpg?",
        "翻译“你是谁？”",
        "能描述一下 a.jpg 吗？",
        "这是什么？",
    ):
        assert find_questions(request) == []
