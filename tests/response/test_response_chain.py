"""The answer: written by the language model where there is one, a report otherwise, and never nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import Runnable

from jarvis_agent.core.request import ChatTurn
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import response_chain, template_responder
from jarvis_agent.testing import ScriptedLLM

READ = Task(task="image-to-text", id=0, args={"image": "page.png", "text": "read"})
SPEAK = Task(task="text-to-speech", id=1, dep=[0], args={"text": "<resource>-0"})
DRAW = Task(task="text-to-image", id=2, args={"text": "a zoo"})
TELL = Task(task="image-to-text", id=3, dep=[2], args={"image": "<resource>-2"})
PLAN = Plan(tasks=[READ, SPEAK, DRAW, TELL], notes=["the task fly is unknown and was left out"])
SPEECH = Path("/outputs/7/text-to-speech.wav")
RESULTS = [
    TaskResult(
        task=READ,
        status="ok",
        selection=Selection(model="org/reader", reason="it reads printed text"),
        attempts=[Attempt(model="org/reader", backend="fake", started=0.0, ended=1.2)],
        resources=[Resource(kind="text", text="First line.\nSecond line.")],
        output={"generated_text": "First line.\nSecond line."},
        ended=1.2,
    ),
    TaskResult(
        task=SPEAK,
        status="ok",
        selection=Selection(model="org/big-voice", reason="the best voice"),
        attempts=[
            Attempt(model="org/big-voice", backend="fake", started=1.2, ended=1.3, error="out of memory"),
            Attempt(model="org/voice", backend="fake", started=1.3, ended=1.6),
        ],
        resources=[Resource(kind="audio", path=SPEECH)],
        output={"path": str(SPEECH), "duration": 3.26, "sampling_rate": 22050},
        started=1.2,
        ended=1.6,
    ),
    TaskResult(task=DRAW, status="failed", error="no model is left for text-to-image"),
    TaskResult(task=TELL, status="skipped", error="task 2 (text-to-image) failed"),
]
GOOD, GOOD_PLAN = RESULTS[:2], Plan(tasks=[READ, SPEAK])
REPORT = """\
Here is what came out:
- image-to-text (page.png):
  First line.
  Second line.
- text-to-speech (result of image-to-text): /outputs/7/text-to-speech.wav (3.3 s)

How it was done:
- image-to-text: org/reader (1.2 s), it reads printed text
- text-to-speech: org/voice (0.4 s); org/big-voice: failed: out of memory

What did not work:
- text-to-image: failed: no model is left for text-to-image
- image-to-text (result of text-to-image): skipped: task 2 (text-to-image) failed

About the plan:
- the task fly is unknown and was left out"""


FAILURES = REPORT.split("\n\n")[2]


async def answer(
    responder: Runnable[Any, str],
    request: str = "read it",
    plan: Plan = PLAN,
    results: list[TaskResult] = RESULTS,
    **context: Any,
) -> str:
    inputs = {"input": request, "plan": plan, "results": results, **context}
    inputs["chat_history"] = inputs.pop("turns", ())
    return "".join([piece async for piece in responder.astream(inputs)])


def by_llm(replies: Any, **settings: Any) -> tuple[Runnable[Any, str], ScriptedLLM]:
    llm = ScriptedLLM(replies)
    chain = response_chain(llm, settings=Settings(**settings))
    return chain.with_fallbacks([template_responder()], exception_key="error"), llm


def result(task: str, output: Any = None, text: str | None = None, **fields: Any) -> TaskResult:
    made = [Resource(kind="text", text=text)] if text is not None else []
    return TaskResult(
        task=Task(task=task, id=0, args={"image": "a.jpg"}),
        status="ok",
        output=output,
        resources=made,
        **fields,
    )


class TestReport:
    async def test_answers_first_then_how_then_what_did_not_work(self) -> None:
        assert await answer(template_responder()) == REPORT

    async def test_without_a_language_model_its_last_line_says_how_to_get_one(self) -> None:
        report, _, note = (await answer(template_responder(model_missing=True))).rpartition("\n\n")
        assert report == REPORT
        assert "No language model is set up" in note
        assert "OPENAI_API_KEY" in note
        assert "\n" not in note

    async def test_a_chinese_request_gets_chinese_phrases(self) -> None:
        text = await answer(template_responder(model_missing=True), "请读出 page.png 中的文字")
        assert text.startswith("结果如下：\n- image-to-text (page.png):\n  First line.")
        assert "失败: no model is left" in text
        assert "没有设置语言模型" in text

    async def test_a_japanese_request_is_not_taken_for_chinese(self) -> None:
        assert (await answer(template_responder(), "画像の文字を読んで")).startswith("Here is what came out")

    async def test_an_empty_plan_says_why_and_what_would_work(self) -> None:
        text = await answer(
            template_responder(), "gibberish", Plan(notes=["no task is like “gibberish”"]), []
        )
        assert text.splitlines()[:2] == [
            "I did not understand what is to be done, so nothing was done.",
            "- no task is like “gibberish”",
        ]
        assert "Describe the image photo.jpg" in text

    async def test_when_nothing_worked_it_says_so_first(self) -> None:
        text = await answer(template_responder(), plan=Plan(tasks=[DRAW]), results=RESULTS[2:3])
        trouble = "- text-to-image: failed: no model is left for text-to-image"
        assert text == f"I could not do this.\n\nWhat did not work:\n{trouble}"

    @pytest.mark.parametrize(
        ("given", "line"),
        [
            (
                result(
                    "image-classification", [{"label": "cat", "score": 0.613}, {"label": "dog", "score": 0.2}]
                ),
                "cat 61 %, dog 20 %",
            ),
            (
                result("image-classification", [{"label": f"l{n}", "score": 0.1} for n in range(9)]),
                "l0 10 %, l1 10 %, l2 10 %, l3 10 %, l4 10 %, …",
            ),
            (result("visual-question-answering", [{"answer": "two", "score": 0.9}], "two"), "two"),
            (result("image-to-text", {"generated_text": ""}, ""), "(no text)"),
            (
                result("keypoint-detection", [{"score": 0.9, "keypoints": []}], "2 people: 15 joints seen"),
                "2 people: 15 joints seen",
            ),
            (result("tabular-regression", [1.5, 2.5], "2 rows: from 1.5 to 2.5"), "2 rows: from 1.5 to 2.5"),
            (
                result("image-classification", [{"label": "cat", "score": 1.0}], notes=["it was blurred"]),
                "cat 100 %\n  Note: it was blurred",
            ),
        ],
    )
    async def test_each_kind_of_result_reads_well(self, given: TaskResult, line: str) -> None:
        text = await answer(template_responder(), plan=Plan(tasks=[given.task]), results=[given])
        assert text.split("\n\n")[0] == f"Here is what came out:\n- {given.task.task} (a.jpg): {line}"

    async def test_of_several_files_each_says_what_it_is(self) -> None:
        files = [
            Resource(kind="image", path=Path("/out/0.png"), name="depth in colour, near is bright"),
            Resource(kind="image", path=Path("/out/1.png"), name="depth in 16 bits"),
        ]
        task = Task(task="depth-estimation", id=0, args={"image": "a.jpg"})
        depth = TaskResult(task=task, status="ok", resources=files, output={"path": "/out/0.png"})
        text = await answer(template_responder(), plan=Plan(tasks=[task]), results=[depth])
        assert (
            "- depth-estimation (a.jpg):\n  /out/0.png (depth in colour, near is bright)\n"
            "  /out/1.png (depth in 16 bits)\n"
        ) in text

    async def test_many_files_are_summed_up(self) -> None:
        masks = [Resource(kind="image", path=Path(f"/out/{n}.png"), name=f"mask {n}") for n in range(1, 31)]
        made = result("mask-generation").model_copy(update={"resources": masks})
        text = await answer(template_responder(), plan=Plan(tasks=[made.task]), results=[made])
        assert "/out/8.png (mask 8)\n  and 22 more files beside it" in text
        assert "/out/9.png" not in text

    async def test_the_title_names_each_of_several_files(self) -> None:
        args = {"text": "How to pay?", "image": ["p1.png", "<resource>-1", "p2.png"]}
        task = Task(task="visual-document-retrieval", id=0, args=args)
        text = await answer(
            template_responder(),
            plan=Plan(tasks=[task, Task(task="text-to-image", id=1)]),
            results=[
                TaskResult(task=task, status="ok", resources=[Resource(kind="text", text="p1.png (0.9)")])
            ],
        )
        assert "- visual-document-retrieval (p1.png, p2.png, result of text-to-image): p1.png (0.9)" in text

    async def test_objects_are_added_up_over_the_images(self) -> None:
        box = {"label": "zebra", "score": 0.9, "box": {"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}}
        tasks = [
            Task(task="object-detection", id=n, args={"image": f"{name}.jpg"}) for n, name in enumerate("abc")
        ]
        seen = [
            TaskResult(
                task=task, status="ok", output=[box] * n, resources=[Resource(kind="text", text=f"{n} found")]
            )
            for task, n in zip(tasks, (2, 0, 4), strict=True)
        ]
        text = await answer(template_responder(), plan=Plan(tasks=tasks), results=seen)
        assert "In all pictures together: zebra 6 (a.jpg: 2, b.jpg: 0, c.jpg: 4)" in text


class TestLLMResponder:
    async def test_the_model_writes_the_answer_from_the_results(self) -> None:
        responder, llm = by_llm({"respond": "Here is your speech: /outputs/7/text-to-speech.wav."})
        text = await answer(responder)
        assert text.startswith("Here is your speech: /outputs/7/text-to-speech.wav.")
        prompt = llm.calls[0].prompt
        for part in ("First line.", str(SPEECH), "3.26", "no model is left", "org/voice", "read it"):
            assert part in prompt

    async def test_it_streams(self) -> None:
        responder, _ = by_llm({"respond": "a b c d e f g h i j k l"})
        pieces = [
            piece async for piece in responder.astream({"input": "x", "plan": GOOD_PLAN, "results": GOOD})
        ]
        assert "".join(pieces) == "a b c d e f g h i j k l"
        assert len(pieces) > 2

    async def test_an_invented_path_is_put_right(self) -> None:
        responder, _ = by_llm({"respond": "It is in /tmp/audio.wav and as video.mp4"})
        text = await answer(responder, plan=GOOD_PLAN, results=GOOD)
        assert text == f"It is in {SPEECH} and as video.mp4 (no such file)"

    async def test_paths_of_the_request_and_of_earlier_turns_pass(self) -> None:
        responder, _ = by_llm({"respond": "I read page.png and /old/x.png, not new.png."})
        turn = ChatTurn("q", "a", (Resource(kind="image", path=Path("/old/x.png")),))
        text = await answer(responder, "read page.png", GOOD_PLAN, GOOD, turns=(turn,))
        assert text == "I read page.png and /old/x.png, not new.png (no such file)."

    async def test_a_failure_that_the_model_keeps_silent_about_is_told(self) -> None:
        responder, _ = by_llm({"respond": "All is done, though the plan was not well-formed."})
        text = await answer(responder)
        assert text == f"All is done, though the plan was not well-formed.\n\n{FAILURES}"

    @pytest.mark.parametrize(
        "said",
        ["I was unable to draw.", "I couldn’t draw.", "It was not possible.", "It failed.", "我无法画图。"],
    )
    async def test_a_failure_that_the_model_owns_up_to_is_not_told_again(self, said: str) -> None:
        responder, _ = by_llm({"respond": said})
        assert await answer(responder) == said

    async def test_a_plan_that_came_to_nothing_is_told_after_the_conversation(self) -> None:
        responder, _ = by_llm({"chat": "Certainly, I have described it."})
        text = await answer(responder, "describe a.jpg", Plan(notes=["no plan was found in: <code>"]), [])
        assert text == (
            "Certainly, I have described it.\n\nNo expert worked on this: no plan was found in: <code>"
        )

    async def test_an_empty_plan_is_conversation_with_the_chat_so_far(self) -> None:
        responder, llm = by_llm({"chat": "I am well. Try: describe photo.jpg"})
        turns = (ChatTurn("my name is Ada", "hello Ada"),)
        assert (
            await answer(responder, "how are you?", Plan(), [], turns=turns)
            == "I am well. Try: describe photo.jpg"
        )
        assert "my name is Ada" in llm.calls[0].prompt

    async def test_in_conversation_paths_and_addresses_pass_as_they_are(self) -> None:
        said = "Edit /etc/nginx/sites/site.conf, then see https://example.org/img/a.png or [file path]."
        responder, _ = by_llm({"chat": said})
        old = ChatTurn("draw", "done", (Resource(kind="image", path=Path("/old/x.png")),))
        assert await answer(responder, "how do I set up nginx?", Plan(), [], turns=(old,)) == said

    async def test_if_the_model_fails_at_once_the_report_takes_its_place(self) -> None:
        responder, _ = by_llm({"respond": ConnectionError("gone")})
        report, _, note = (await answer(responder)).rpartition("\n\n")
        assert report == REPORT
        assert note.startswith("The language model could not write the answer (scripted could not be reached")

    async def test_if_the_model_fails_midway_the_report_follows(self) -> None:
        responder, _ = by_llm({"respond": ("The text says First", ConnectionError("gone"))})
        text = await answer(responder)
        assert text.startswith(
            "The text says First\n\nThe answer broke off here: scripted could not be reached"
        )
        assert text.endswith(f"\n\n{REPORT}")

    async def test_if_it_fails_in_conversation_the_report_is_honest(self) -> None:
        responder, _ = by_llm({"chat": ""})
        text = await answer(responder, "hello", Plan(), [])
        assert text.startswith("I did not understand what is to be done")
        assert "scripted returned an empty reply" in text

    async def test_a_silent_model_does_not_keep_the_user_waiting(self) -> None:
        responder, _ = by_llm({"respond": (60.0, "late")}, llm_timeout=0.05)
        assert (await answer(responder)).startswith("Here is what came out")
