"""response_chain and template_responder: the answer by an LLM, the report without one, and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import Runnable

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.messages import CHINESE, ENGLISH
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.planning.offline import OfflinePlanner
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
- The text in page.png reads:
  First line.
  Second line.
- Here is the speech made from the text of page.png: /outputs/7/text-to-speech.wav (3.3 s)

What did not work:
- text-to-image (“a zoo”): failed: no model is left for text-to-image
  so this was skipped: image-to-text (the picture)

About the plan:
- the task fly is unknown and was left out"""


FAILURES = REPORT.split("\n\n")[1]


def without_help(report: str) -> tuple[str, str]:
    """A report without the paragraph after the failures, and that paragraph."""
    paragraphs = report.split("\n\n")
    note = paragraphs.pop(2)
    return "\n\n".join(paragraphs), note


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
    asked = Task(task=task, id=0, args={"image": "a.jpg"})
    return TaskResult(task=asked, status="ok", output=output, resources=made, **fields)


def labels(**scores: float | None) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in scores.items()]


async def report_of(*results: TaskResult, plan: Plan | None = None) -> str:
    plan = plan or Plan(tasks=[result.task for result in results])
    return await answer(template_responder(), plan=plan, results=list(results))


class TestReport:
    async def test_results_come_first_then_failures_then_what_was_repaired(self) -> None:
        assert await answer(template_responder()) == REPORT

    async def test_each_user_is_told_once_how_to_configure_a_language_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked = tmp_path / "file"
        blocked.touch()
        for state in (tmp_path / "one", tmp_path / "other"):
            monkeypatch.setenv("XDG_STATE_HOME", str(state))
            report, note = without_help(await answer(template_responder(model_missing=True)))
            assert report == REPORT
            assert "OPENAI_API_KEY" in note
            assert "\n" not in note
            for place in (state, blocked):  # what cannot be remembered is not said
                monkeypatch.setenv("XDG_STATE_HOME", str(place))
                assert await answer(template_responder(model_missing=True)) == REPORT

    async def test_it_is_in_chinese_for_a_chinese_request(self) -> None:
        text = await answer(template_responder(model_missing=True), "请读出 page.png 中的文字")
        assert text.startswith("- page.png 里写的是：\n  First line.\n  Second line.\n- page.png 的文字")
        assert (
            "- text-to-image (“a zoo”)：失败（没有剩下的模型能做 text-to-image）\n  因此也跳过了：image-to"
            in text
        )
        kind = RESULTS[2].model_copy(update={"failure": "NoCandidateError"})
        text = await answer(template_responder(), "画一个动物园", Plan(tasks=[DRAW]), [kind])
        assert "text-to-image (“a zoo”)：失败，没有可用的模型（没有剩下的模型能做 text-to-image）" in text
        helped = kind.model_copy(
            update={"error": "no model is left for x. What helps: a model to start with is a/b"}
        )
        left_out = "“Frame it” is not understood"
        plan = Plan(tasks=[DRAW], notes=["no task uses “b.jpg”", left_out], removed=[left_out])
        text = await answer(template_responder(), "画一个动物园", plan, [helped])
        assert "可以这样解决：可以先试 a/b" in text
        assert "- 没有理解“Frame it”" in text
        assert text.endswith("关于计划：\n- 没有任务用到“b.jpg”")
        text = await answer(template_responder(), "画一个动物园", Plan(notes=[left_out]), [])
        assert "- 没有理解“Frame it”" in text
        japanese = await answer(template_responder(), "画像の文字を読んで")
        assert japanese.startswith("- The text in page.png reads:")

    async def test_an_empty_plan_gives_the_reason_and_examples(self) -> None:
        text = await answer(template_responder(), "gibberish", Plan(notes=["no task is like it"]), [])
        assert "no task is like it" in text.splitlines()[1]
        assert "Describe the image photo.jpg" in text

    async def test_a_request_that_no_model_can_do_is_not_called_misunderstood(self) -> None:
        needs = "“Make a clip” needs text-to-video, but no model for it is available here (see `jarvis`)"
        responder = template_responder(advice="with HF_TOKEN set, hosted models can be used")
        text = await answer(responder, "Make a clip", Plan(notes=[needs]), [])
        assert text == (
            f"I understood what is to be done, but it cannot be done here:\n- {needs}\n\n"
            "What helps: with HF_TOKEN set, hosted models can be used"
        )
        text = await answer(responder, "做一个视频", Plan(notes=[needs]), [])
        assert text == (
            "我理解要做什么，但在这里做不到：\n"
            "- “Make a clip”需要 text-to-video，但这里没有可用的模型（见 `jarvis`）\n\n"
            "可以这样解决：设置 HF_TOKEN 就可以使用托管的模型"
        )
        both = Plan(notes=[needs, "“Flurbl it” is not understood"])
        assert (await answer(responder, "x", both, [])).startswith("I could not do this.\n- “Make")

    @pytest.mark.starter
    @pytest.mark.parametrize("request_text", ["Make a video of a cat", "制作一段猫的视频"])
    async def test_the_notes_of_the_offline_planner_tell_what_was_understood(self, request_text: str) -> None:
        made = OfflinePlanner(["image-to-text"]).invoke(request_text)
        text = await answer(template_responder(), request_text, made, [])
        assert text.startswith((ENGLISH.unavailable, CHINESE.unavailable))

    @pytest.mark.starter
    @pytest.mark.parametrize("request_text", ["hello", "你好"])
    async def test_a_greeting_is_answered_with_examples_only(self, request_text: str) -> None:
        text = await answer(template_responder(), request_text, OfflinePlanner().invoke(request_text), [])
        assert text.startswith((ENGLISH.examples[0], CHINESE.examples[0]))

    async def test_without_any_result_it_says_so_first(self) -> None:
        trouble = "- text-to-image (“a zoo”): failed: no model is left for text-to-image"
        assert await report_of(RESULTS[2]) == f"I could not do this.\n\nWhat did not work:\n{trouble}"

    async def test_a_failed_task_has_its_own_reason_also_if_it_needs_another_that_failed(self) -> None:
        late = TaskResult(task=TELL, status="failed", error="the run's time was over")
        said = await report_of(RESULTS[2], late)
        assert "- text-to-image (“a zoo”): failed: no model is left" in said
        assert "- image-to-text (the picture): failed: the run's time was over" in said

    async def test_objects_are_added_up_over_the_images(self) -> None:
        box = {"label": "zebra", "score": 0.9, "box": {"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}}
        seen = []
        for n, (name, count) in enumerate({"a": 2, "b": 0, "c": 4}.items()):
            task = Task(task="object-detection", id=n, args={"image": f"{name}.jpg"})
            found = result(task.task, [box] * count, f"{count} found")
            seen.append(found.model_copy(update={"task": task}))
        assert "In all pictures together: 6 zebras (a.jpg: 2, b.jpg: 0, c.jpg: 4)" in await report_of(*seen)


class TestResponseChain:
    async def test_the_prompt_has_the_results_with_names_in_place_of_paths(self) -> None:
        responder, llm = by_llm({"respond": "Here is your speech: text-to-speech.wav."})
        assert (await answer(responder)).startswith(f"Here is your speech: {SPEECH}.")
        prompt = llm.calls[0].prompt
        assert str(SPEECH) not in prompt
        for part in ("First line.", SPEECH.name, "3.26", "no model is left", "org/voice", "read it"):
            assert part in prompt

    async def test_a_small_model_is_told_the_results_in_sentences(self) -> None:
        llm = ScriptedLLM("Here is your speech: text-to-speech.wav.", model_name="qwen-1.5b")
        request = "Lis la page à haute voix, et dis ce que tu en penses."
        assert (await answer(response_chain(llm), request)).startswith(f"Here is your speech: {SPEECH}.")
        prompt = llm.calls[0].prompt
        for part in ("The text in page.png reads", "First line.", SPEECH.name, "no model is left", request):
            assert part in prompt
        for part in (str(SPEECH), "org/voice", "1.2"):
            assert part not in prompt
        await answer(response_chain(llm), request, Plan(tasks=[READ]), RESULTS[:1])
        assert "page.png: " in llm.calls[1].prompt

    @pytest.mark.parametrize("request_", ["Read page.png aloud", "把 page.png 读出来"])
    async def test_a_small_model_is_not_asked_where_the_report_says_all(self, request_: str) -> None:
        nothing = Plan(
            notes=["“Draw a zoo” needs text-to-image, but no model for it is available here (see `jarvis`)"]
        )
        for name, calls in (("qwen-1.5b", 0), ("qwen-8b", 2)):
            llm = ScriptedLLM("I do it.", model_name=name)
            assert str(SPEECH) in await answer(response_chain(llm), request_)
            assert nothing.notes[0] in await answer(response_chain(llm), "Draw a zoo", nothing, [])
            assert len(llm.calls) == calls

    async def test_a_small_model_guesses_no_answer(self) -> None:
        llm = ScriptedLLM("There are two.", model_name="qwen-1.5b")
        count = Task(task="object-detection", id=0, args={"image": "a.jpg"})
        failed = TaskResult(task=count, status="failed", error="no model is left")
        text = await answer(response_chain(llm), "How many dogs are in a.jpg?", Plan(tasks=[count]), [failed])
        assert ("no model is left" in text, llm.calls) == (True, [])
        dog = result("image-classification", labels(malamute=0.9))
        text = await answer(response_chain(llm), "Is this a dog?", Plan(tasks=[dog.task]), [dog])
        assert ("It is a malamute" in text, llm.calls) == (True, [])

    async def test_nothing_is_added_to_the_answer_of_a_request_that_needs_no_task(self) -> None:
        plan = OfflinePlanner().invoke("Hello there!")
        assert plan.notes
        assert await answer(by_llm("Hello!")[0], "Hello there!", plan, []) == "Hello!"

    def test_it_streams(self) -> None:
        said = f"a b c d e f g h i j k {SPEECH}"
        pieces = list(by_llm({"respond": said})[0].stream({"input": "x", "plan": GOOD_PLAN, "results": GOOD}))
        assert "".join(pieces) == said
        assert len(pieces) > 2

    async def test_paths_in_the_answer_are_checked(self) -> None:
        said = "From page.png and /old/x.png I made /tmp/audio.wav, and video.mp4."
        responder, _ = by_llm({"respond": said})
        turn = ChatTurn("q", "a", (Resource(kind="image", path=Path("/old/x.png")),))
        text = await answer(responder, "read page.png", GOOD_PLAN, GOOD, turns=(turn,))
        assert text == f"From page.png and /old/x.png I made {SPEECH}, and video.mp4 (no such file)."

    async def test_an_untrusted_client_does_not_learn_which_files_exist(self) -> None:
        said = f"{SPEECH} and {__file__}"
        for restricted, mark in ((False, ""), (True, " (no such file)")):
            responder, _ = by_llm({"respond": said})
            text = await answer(responder, "read it", GOOD_PLAN, GOOD, restricted=restricted)
            assert text == said + mark

    async def test_failures_that_the_answer_omits_are_appended(self) -> None:
        done = f"The speech is in {SPEECH}."
        for said in (
            "everything worked, no errors at all.",
            "All is done, but not well-formed.",
        ):
            text = f"{done} {said}"
            assert await answer(by_llm({"respond": text})[0]) == f"{text}\n\n{FAILURES}"
        for said in (
            "However, text-to-image failed.",
            "text-to-image 失败了。",
        ):
            text = f"{done} {said}"
            assert await answer(by_llm({"respond": text})[0]) == text

    async def test_each_failure_is_reported_once_with_what_would_help(self) -> None:
        tasks = [Task(task="image-to-text", id=n, args={"image": f"{n}.jpg"}) for n in range(2)]
        tasks.append(Task(task="text-to-video", id=2, args={"prompt": "a zoo"}))
        missing = "no model can do {0} here. What helps: pip install x; `jarvis models {0}` lists all"
        failed = [TaskResult(task=task, status="failed", error=missing.format(task.task)) for task in tasks]
        left_out = "no task does this: “dub it”"
        plan = Plan(tasks=tasks, notes=["b", left_out], removed=[left_out])
        captions = (
            "What did not work:\n"
            "- image-to-text (0.jpg), image-to-text (1.jpg): failed: no model can do image-to-text here"
        )
        help_ = "What helps: pip install x; `jarvis models image-to-text` lists all"
        assert await answer(by_llm({"respond": "It is done."})[0], "x", plan, failed) == (
            f"It is done.\n\n{captions}\n"
            "- text-to-video: failed: no model can do text-to-video here\n"
            f"- {left_out}\n{help_}; `jarvis models text-to-video` lists all"
        )
        said = "Neither image-to-text nor text-to-video has a model."
        text = await answer(by_llm({"respond": said})[0], "x", plan, failed)
        assert text == f"{said}\n\nWhat did not work:\n- {left_out}"

    async def test_what_made_several_tasks_fail_is_said_once(self) -> None:
        failed = []
        for n, (task, own) in enumerate({"translation": "", "summarization": "x/y: too large; "}.items()):
            error = f"no model can do {task} here ({own}source hub: it is down; check the network)."
            failed.append(TaskResult(task=Task(task=task, id=n), status="failed", error=error))
        said = await report_of(*failed)
        assert (
            "- translation: failed: no model can do translation here (source hub: it is down; check" in said
        )
        assert said.endswith("- summarization: failed: no model can do summarization here (x/y: too large)")

    async def test_results_that_the_answer_omits_are_appended(self) -> None:
        speech = f"Here is the speech made from the text of page.png: {SPEECH} (3.3 s)"
        for said in ("I apologize, but I can't assist with that request.", "I can't do it.", "Done."):
            text = await answer(by_llm({"respond": said})[0], plan=GOOD_PLAN, results=GOOD)
            assert text == f"{said}\n\n{speech}"
        read = "The text in page.png reads:\nFirst line.\nSecond line."
        failed = GOOD[1].model_copy(update={"status": "failed", "resources": [], "error": "no voice"})
        text = await answer(
            by_llm({"respond": "text-to-speech failed."})[0], "x", GOOD_PLAN, [GOOD[0], failed]
        )
        assert text == f"text-to-speech failed.\n\n{read}"

    async def test_an_error_that_ended_planning_too_is_reported_once(self) -> None:
        gone = (
            "scripted could not be reached, or dropped the connection: gone. Check the network; if you set "
        )
        gone += "JARVIS_BASE_URL, check that address and that the server runs."
        plan = Plan(tasks=GOOD_PLAN.tasks, notes=[f"the language model could not plan: {gone}", "another"])
        text = await answer(by_llm({"respond": ConnectionError("gone")})[0], "x", plan, GOOD)
        assert text.count(gone) == 1
        assert "- another" in text

    async def test_an_empty_plan_is_conversation_with_the_chat_history(self) -> None:
        said = "Edit /etc/nginx/sites/site.conf, then see https://example.org/img/a.png or [file path]."
        responder, llm = by_llm({"chat": said})
        old = Resource(kind="image", path=Path("/old/x.png"))
        turns = (ChatTurn("my name is Ada", "hello Ada", (old,)),)
        assert await answer(responder, "how do I set up nginx?", Plan(), [], turns=turns) == said
        assert "my name is Ada" in llm.calls[0].prompt

        responder, _ = by_llm({"chat": "Certainly, I have described it."})
        text = await answer(responder, "describe a.jpg", Plan(notes=["no plan was found in: <code>"]), [])
        note = "No expert worked on this: no plan was found in: <code>"
        assert text == f"Certainly, I have described it.\n\n{note}"

    async def test_if_the_model_fails_at_once_the_report_takes_its_place(self) -> None:
        for reply in (ConnectionError("gone"), ("/tmp/held-back", ConnectionError("gone"))):
            report, note = without_help(await answer(by_llm({"respond": reply})[0]))
            assert report == REPORT
            said = "The language model could not write the answer (scripted could not be reached"
            assert note.startswith(said)

    async def test_if_the_model_fails_midway_the_report_follows(self) -> None:
        text = await answer(by_llm({"respond": ("The text says First", ConnectionError("gone"))})[0])
        broken = "The text says First\n\nThe answer broke off here: scripted could not be reached"
        assert text.startswith(broken)
        assert text.endswith(f"\n\n{REPORT}")

    async def test_an_empty_or_late_reply_is_replaced_by_the_report(self) -> None:
        text = await answer(by_llm({"chat": ""})[0], "hello", Plan(), [])
        assert text.startswith("I did not understand what is to be done")
        assert "scripted returned an empty reply" in text
        late, _ = by_llm({"respond": (60.0, "late")}, llm_timeout=0.05)
        assert (await answer(late)).startswith("- The text in page.png reads:")
