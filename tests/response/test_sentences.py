"""The answer without a language model: a sentence on each result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent import JarvisAgent, Settings, hf_tools
from jarvis_agent.core.notes import Note
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.planning.plan import NOTHING_ASKED, Plan
from jarvis_agent.response.chain import template_responder
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
    return "".join(report({"input": request, "plan": plan, "results": listed})).replace("\u00a0", " ")


def named(*labels: tuple[str, float | None]) -> TaskResult:
    return result(CLASSES, scored(*labels))


def detected(*labels: str) -> TaskResult:
    return result("object-detection", boxes(*labels))


READ = {"image": "a.png", "text": "read"}
MINIBUS = "It is probably a minibus (50 %); it could also be a tiger cat (38 %) or an Egyptian cat (35 %)."


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (named(*CATS[1:]), "It is probably an Egyptian cat (35 %); it could also be a tabby (18 %)."),
        (named(("tabby", 0.97), ("lynx", 0.08)), "It is a tabby (97 %)."),
        (named(("minibus", 0.5), *CATS), MINIBUS),
        (named(("sunglasses", 0.95)), "It is sunglasses (95 %)."),
        (named(("unicycle", 0.95)), "It is a unicycle (95 %)."),
        (named(("tabby, tabby cat", 0.97)), "It is a tabby (97 %)."),
        (named(("tabby", 0.12), ("lynx", 0.01)), "It is hard to name: perhaps a tabby (12 %)."),
        (named(("nsfw", 0.8), ("sfw", 0.2)), "It is probably “nsfw” (80 %); it could also be “sfw” (20 %)."),
        (named(("cat", None)), "It is “cat”."),
        (named(("tabby", 0.004), ("lynx", 0.001)), "It is hard to name: perhaps a tabby."),
        (detected(*["person"] * 3, "dog", "dog"), "I found 3 people and 2 dogs."),
        (detected(*"abcdefghij"), "I found 1 a, 1 b, 1 c, 1 d, 1 e, 1 f, 1 g, 1 h, 1 i and 1 j."),
        (
            result("object-detection", [], "no objects", "/o/1.png"),
            "I found no objects.\nHere is the marked picture: /o/1.png",
        ),
        (result("voice-activity-detection", [], "no speech", audio="a.wav"), "I found no speech."),
        (result("fill-mask", [{"token_str": " sun", "score": 0.95}], "sun (0.95)"), "It is “sun” (95 %)."),
        (result("visual-question-answering", [{"answer": "two", "score": 0.9}], "two"), "The answer is: two"),
        (result("image-to-text", {"generated_text": "a cat"}, "a cat"), "What can be seen: a cat"),
        (result("image-to-text", {}, "a\nb", **READ), "The text reads:\na\nb"),
        (result("image-to-text", {}, "", **READ), "The text reads: (no text)"),
        (result("text-generation", {}, "it was\ntwo", text="x"), "it was\ntwo"),
        (result("tabular-regression", [1.5], "from 1.5 to 2.5"), "The prediction: from 1.5 to 2.5"),
        (result("translation", {}, "Guten Tag", text="Hello"), "The translation: Guten Tag"),
        (result("my_tool", {"x": 1}), 'my_tool: {"x": 1}'),
        (result("my_tool", {}, "a\nb"), "my_tool:\na\nb"),
        (result("my_tool", [{"label": "a", "score": "high"}], "a is high"), "my_tool: a is high"),
        (result("my_tool", scored(("b", 0.1), ("a", 0.9))), "It is “a” (90 %)."),
        (result("canny-control", {}, None, "/o/1.png"), "Here is the canny edge image: /o/1.png"),
    ],
)
def test_a_result_is_a_sentence(one: TaskResult, sentence: str) -> None:
    assert said(one) == sentence


@pytest.mark.parametrize(
    ("asked", "one", "sentence"),
    [
        ("a.jpg 里是什么", named(*CATS[::2]), "这很可能是 tiger cat（38 %），也可能是 tabby（18 %）。"),
        ("数一数", detected("dog", "dog", "kiwi"), "找到了 2 只狗和 1 个 kiwi。"),
        ("图里有车吗？", detected("car"), "找到了 1 辆汽车。"),
        ("这是猫吗？", named(("tiger cat", 0.97)), "这是 tiger cat（97 %）。"),
        ("读一下", result("image-to-text", {}, "abc", **READ), "写的是：abc"),
        ("画边缘", result("canny-control", {}, None, "/o/1.png"), "边缘图在这里：/o/1.png"),
    ],
)
def test_chinese(asked: str, one: TaskResult, sentence: str) -> None:
    assert said(one, asked) == sentence


def test_several_results_say_what_they_are_about() -> None:
    results = [
        result("canny-control", {}, None, "/o/1.png"),
        result("image-to-text", {}, "a cat", number=1, image="<resource>-0"),
        result(CLASSES, scored(("tabby", 0.97)), number=2, image="<resource>-0"),
        result("translation", {}, "x\ny", number=3, text=LONG, tgt_lang="fr"),
        result("object-detection", boxes("cat"), "1 object: 1 cat", number=4),
        result("crop-image", {}, None, "/o/2.png", number=6, image="a.jpg", box="<resource>-4"),
        result("edit-image", {}, None, "/o/3.jpg", number=7, image="a.jpg", greyscale=1, flip="vertical"),
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
        "- Here is the edited picture made from a.jpg: /o/3.jpg (greyscale, flip vertical)",
        "- The ranking of p.png, q.png, best first: p.png (0.9)",
    ]


def test_many_files_are_listed_with_their_names_up_to_eight() -> None:
    text = said(result("mask-generation", [], "30 masks", *(f"/o/{n}.png" for n in range(1, 31))))
    assert text.startswith("I found 30 masks.\nHere are the files:\n- /o/1.png (part 1)\n")
    assert text.endswith("- /o/8.png (part 8)\n- and 22 more files beside it")


@pytest.mark.parametrize("question", ["Is this a dog?", "Is this a malamute?", "How many dogs are in a.jpg?"])
def test_a_question_gets_the_labels_and_no_verdict(question: str) -> None:
    assert said(named(("malamute", 0.98), ("hot dog", 0.02)), question) == "It is a malamute (98 %)."
    assert said(detected("hot dog"), question) == "I found 1 hot dog."
    assert said(detected(), question) == "I found no objects."


def test_a_long_text_is_cut_with_the_number_of_characters_that_are_left_out() -> None:
    text = said(result("image-to-text", {}, "word " * 1000, image="a.png", text="read"))
    assert text.startswith("The text reads: word word")
    assert text.endswith("… (1999 more characters; the run holds the whole text)")


def test_lines_that_fit_a_question_are_not_called_its_answer() -> None:
    rows = [{"answer": "Total 5.70", "similarity": 0.6, "score": None}]
    found = result("document-question-answering", rows, "Total 5.70", text="how much?", image="a.png")
    written = said(found, "how much?")
    assert written == "What fits the question best: Total 5.70"


def test_chat_gets_a_greeting_what_works_here_and_what_would_help() -> None:
    for request, hello, ability, other, more in (
        ("hi", "Hello!", "edit pictures", "read texts aloud", "language model"),
        ("你好", "你好！", "修改图片", "朗读文字", "语言模型"),
    ):
        plan = Plan(notes=[Note(NOTHING_ASKED, step=f"“{request}”")])
        inputs: dict[str, Any] = {"input": request, "plan": plan, "available": ["edit-image", "media-info"]}
        answer = template_responder(model_missing=True).invoke(inputs)
        assert answer.startswith(hello)
        assert ability in answer
        assert other not in answer
        assert more in answer
        assert "photo.jpg" not in answer
        assert more not in template_responder().invoke(inputs)  # none is wanted
        assert more not in template_responder(model_missing=True).invoke({**inputs, "restricted": True})
    failed = Plan(notes=["“hm” is not understood"])
    assert "Hello" not in template_responder().invoke({"input": "hm", "plan": failed, "available": TASKS})


def test_the_greeting_of_an_agent_knows_its_tasks(tmp_path: Path) -> None:
    settings = Settings(offline=True, model="none", output_dir=tmp_path)
    plan = Plan(notes=[Note(NOTHING_ASKED, step="“hi”")])
    tools = hf_tools(tasks=["media-info"])
    with JarvisAgent(planner=lambda _: plan, settings=settings, tools=tools) as agent:
        assert "look up facts of files" in agent.invoke("hi").answer
