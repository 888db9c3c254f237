"""response_chain and template_responder: the answer by an LLM, the report without one, and failures."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.runnables import Runnable

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.phrases import CHINESE, ENGLISH
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import NO_MODEL, NOT_UNDERSTOOD, Plan
from jarvis_agent.response.chain import report_after_failure, response_chain, template_responder
from jarvis_agent.selection.advice import no_candidate_error
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
    TaskResult(task=DRAW, status="failed", error=Note("no model is left for {task}", task="text-to-image")),
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
    pieces: list[str] = []
    try:
        async for piece in responder.astream(inputs):
            pieces += [piece]
    except LLMError as error:
        assert not pieces, "after its first words, the chain itself goes on with the report"
        pieces = [*report_after_failure(inputs, False, error.note)]
    return "".join(pieces)


def by_llm(replies: Any, **settings: Any) -> tuple[Runnable[Any, str], ScriptedLLM]:
    llm = ScriptedLLM(replies)
    return response_chain(llm, settings=Settings(**settings)), llm


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

    async def test_where_nothing_was_planned_it_says_how_to_configure_a_language_model(self) -> None:
        responder = template_responder(model_missing=True)
        report = await answer(responder, plan=Plan(notes=["no task fits"]), results=[])
        assert "\n" not in next(part for part in report.split("\n\n") if "OPENAI_API_KEY" in part)
        assert await answer(responder) == REPORT

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
        start = Note("a model to start with is {model}", model="a/b")
        helped = kind.model_copy(update={"error": Note("no model is left", advice=start)})
        speak = Task(task="translation", id=0, args={"text": "动物", "tgt_lang": "English"})
        untold = kind.model_copy(update={"task": speak})
        text = await answer(template_responder(), "翻译", Plan(tasks=[speak]), [untold])
        assert "- translation (“动物” → 英语)：失败" in text
        left_out = Note(NOT_UNDERSTOOD, step="“Frame it”")
        unused = Note("no task uses {file}", file="“b.jpg”")
        plan = Plan(tasks=[DRAW], notes=[unused, left_out], removed=[left_out])
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
        why = Note("`jarvis models {task}` has the reasons", task="text-to-video")
        needs = Note(NO_MODEL, step="“Make a clip”", task="text-to-video", advice=why)
        responder = template_responder(advice=[Note("with HF_TOKEN set, hosted models can be used")])
        text = await answer(responder, "Make a clip", Plan(notes=[needs]), [])
        assert text == (
            f"I understood what is to be done, but it cannot be done here:\n- {needs.message}\n"
            f"What helps: {why}; with HF_TOKEN set, hosted models can be used"
        )
        text = await answer(responder, "做一个视频", Plan(notes=[needs]), [])
        assert text == (
            "我理解要做什么，但在这里做不到：\n"
            "- “Make a clip”需要 text-to-video，但这里没有可用的模型\n"
            "可以这样解决：`jarvis models text-to-video` 说明原因；设置 HF_TOKEN 就可以使用托管的模型"
        )
        both = Plan(notes=[needs, Note(NOT_UNDERSTOOD, step="“Flurbl it”")])
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

    async def test_a_small_model_writes_no_answer_from_results(self) -> None:
        llm = ScriptedLLM("Hello!", model_name="qwen-1.5b")
        assert await answer(response_chain(llm)) == REPORT
        assert llm.calls == []
        assert await answer(response_chain(llm), "hi", Plan(), []) == "Hello!"
        assert llm.stages() == ["chat"]

    async def test_texts_of_input_files_are_shown_once_and_many_boxes_not_at_all(
        self, tmp_path: Path
    ) -> None:
        mail = tmp_path / "mail.txt"
        mail.write_text("The kiln arrives on Tuesday.")
        file = Resource(kind="text", path=mail, name="mail.txt")
        picture = Resource(kind="image", path=tmp_path / "a.jpg", name="a.jpg")
        box = {"label": "cup", "score": 0.9, "box": {"xmin": 11, "ymin": 22, "xmax": 33, "ymax": 44}}
        tasks = [Task(task="text-to-speech", id=n, args={"text": "mail.txt"}) for n in range(2)]
        spoken = [TaskResult(task=task, status="ok", output={"path": "x"}) for task in tasks]
        for count, shown in ((2, True), (6, False)):
            responder, llm = by_llm({"respond": "On Tuesday."})
            results = [*spoken, result("object-detection", [box] * count)]
            plan = Plan(tasks=[each.task for each in results])
            await answer(responder, "Read mail.txt aloud", plan, results, files=[file, picture])
            prompt = llm.calls[0].prompt
            assert prompt.count("The kiln arrives on Tuesday.") == 1
            assert ("[11, 22, 33, 44]" in prompt) is shown
            assert "xmin" not in prompt
            assert f'{{"cup": {count}}}' in prompt

    async def test_empty_blocks_are_left_out(self) -> None:
        responder, llm = by_llm({"respond": "It says: First line."})
        await answer(responder, "read it", Plan(tasks=[READ]), RESULTS[:1])
        human = str(llm.calls[0].messages[-1].text)
        assert [tag for tag in ("chat-log", "files", "texts", "plan-notes") if f"<{tag}>" in human] == []
        assert "<results>" in human

    async def test_nothing_is_added_to_the_answer_of_a_request_that_needs_no_task(self) -> None:
        plan = OfflinePlanner().invoke("Hello there!")
        assert plan.notes
        assert await answer(by_llm("Hello!")[0], "Hello there!", plan, []) == "Hello!"

    def test_it_streams(self) -> None:
        said = f"a b c d e f g h i j k {SPEECH}"
        pieces = list(by_llm({"respond": said})[0].stream({"input": "x", "plan": GOOD_PLAN, "results": GOOD}))
        assert "".join(pieces) == said
        assert len(pieces) > 2

    async def test_names_of_made_files_become_paths_and_invented_outputs_are_marked(self) -> None:
        invented = Settings().output_dir.absolute() / "zoo.png"
        said = f"From page.png I made text-to-speech.wav, not video.mp4 or {invented}."
        text = await answer(by_llm({"respond": said})[0], "read page.png", GOOD_PLAN, GOOD)
        assert text == f"From page.png I made {SPEECH}, not video.mp4 or {invented} (no such file)."

    @pytest.mark.parametrize(
        "said",
        [
            f"{SPEECH}",
            f"451\n\n{SPEECH}",
            f"I heard nothing like it, but the file is {SPEECH}. Save it as street-edges.png.",
        ],
    )
    async def test_the_answer_is_the_models_own(self, said: str) -> None:
        """Results that it does not repeat, rejects or contradicts are not appended."""
        assert await answer(by_llm({"respond": said})[0], "x", GOOD_PLAN, GOOD) == said

    async def test_a_bare_answer_stays_bare(self) -> None:
        facts = result("media-info", {"width": 451}, "JPEG, 451 × 300 pixels, 38.0 kB")
        cats = result("object-detection", [{"label": "cat", "score": 0.9}], "1 cat")
        boxes = Resource(kind="image", path=Path("/outputs/7/boxes.png"))
        drawn = cats.model_copy(update={"resources": [boxes, *cats.resources]})
        for one in (facts, cats, drawn):
            responder, _ = by_llm({"respond": "451"})
            text = await answer(responder, "Only the number.", Plan(tasks=[one.task]), [one])
            assert text == "451"

    async def test_made_files_that_the_answer_does_not_mention_are_added_in_one_line(self) -> None:
        text = await answer(by_llm({"respond": "I spoke it."})[0], "x", GOOD_PLAN, GOOD)
        assert text == f"I spoke it.\n\nFiles: {SPEECH}"
        text = await answer(by_llm({"respond": "读出来了。"})[0], "请朗读", GOOD_PLAN, GOOD)
        assert text == f"读出来了。\n\n文件：{SPEECH}"
        in_code = "Play it with `play text-to-speech.wav`."
        text = await answer(by_llm({"respond": in_code})[0], "x", GOOD_PLAN, GOOD)
        assert text == f"{in_code}\n\nFiles: {SPEECH}"

    async def test_of_many_files_the_first_and_the_last_are_listed(self) -> None:
        frames = [Resource(kind="image", path=Path(f"/outputs/7/{n}.png")) for n in range(60)]
        task = Task(task="extract-frames", id=0, args={"video": "a.mp4"})
        made = TaskResult(task=task, status="ok", resources=frames)
        text = await answer(by_llm({"respond": "See /outputs/7/3.png."})[0], "x", Plan(tasks=[task]), [made])
        listed = ", ".join(f"/outputs/7/{n}.png" for n in (0, 1, 2, 4))
        assert text == f"See /outputs/7/3.png.\n\nFiles: {listed}, … /outputs/7/59.png (59)"

    async def test_failures_that_the_answer_does_not_mention_are_added_in_one_line(self) -> None:
        done = f"The speech is in {SPEECH}."
        added = "Not done: text-to-image: no model is left for text-to-image"
        assert await answer(by_llm({"respond": done})[0]) == f"{done}\n\n{added}"
        for said in ("However, text-to-image failed.", "Text to image 失败了。"):
            assert await answer(by_llm({"respond": f"{done} {said}"})[0]) == f"{done} {said}"
        failed = Task(task="translation", id=0, args={"text": "x"})
        told = TaskResult(task=failed, status="failed", error="no model")
        for said, is_named in (("The translation is in French.", False), ("`translation` failed.", True)):
            text = await answer(by_llm({"respond": said})[0], "x", Plan(tasks=[told.task]), [told])
            assert text == (said if is_named else f"{said}\n\nNot done: translation: no model")
        left_out = "no task does this: “dub it”"
        plan = Plan(tasks=GOOD_PLAN.tasks, notes=["b", left_out], removed=[left_out])
        assert (
            await answer(by_llm({"respond": done})[0], "x", plan, GOOD) == f"{done}\n\nNot done: {left_out}"
        )

    async def test_a_missing_file_is_mentioned_by_its_name(self) -> None:
        look = Task(task="image-to-text", id=0, args={"image": "zoo.jpg"})
        failed = TaskResult(task=look, status="failed", error="zoo.jpg does not exist", failure="InputError")
        said = "There is no file zoo.jpg."
        assert await answer(by_llm({"respond": said})[0], "x", Plan(tasks=[look]), [failed]) == said

    async def test_what_made_several_tasks_fail_is_said_once(self) -> None:
        failed = []
        hub = {"source hub": "it is down; check the network"}
        for n, (task, own) in enumerate({"translation": {}, "summarization": {"x/y": "too large"}}.items()):
            error = no_candidate_error(TASKS[task], Settings(), own | hub).note
            failed.append(TaskResult(task=Task(task=task, id=n), status="failed", error=error))
        said = await report_of(*failed)
        assert (
            "- translation: failed: no model can do translation here (source hub: it is down; check" in said
        )
        assert "- summarization: failed: no model can do summarization here (x/y: too large)\n" in said
        assert said.count("What helps: ") == 1

    async def test_an_error_that_ended_planning_too_is_reported_once(self) -> None:
        gone = "scripted could not be reached, or dropped the connection: gone"
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

        note = "no plan was found in: <code>"
        responder, llm = by_llm({"chat": "I could not plan that."})
        there = Resource(kind="image", path=Path("/x/a.jpg"), name="a.jpg")
        files = [there, Resource(kind="image", name="b.jpg")]
        plan = Plan(notes=[note], removed=[note])
        text = await answer(responder, "describe a.jpg and b.jpg", plan, [], files=files)
        assert text == f"I could not plan that.\n\nNot done: {note}"
        for part in (note, '- image: "a.jpg"\n', '- image: "b.jpg" (missing)'):
            assert part in llm.calls[0].prompt

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


class TestFurtherTasks:
    """With "tools", the model answers or adds tasks; the first characters decide."""

    TOOLS: ClassVar[list[str]] = ["image-to-text", "text-to-speech", "translation"]
    REPLY = '{"tasks": [{"task": "translation", "id": 2, "dep": [0], "args": {"text": "<resource>-0"}}]}'

    async def chunks(self, reply: Any, tools: Any = TOOLS, results: Any = GOOD, **options: Any) -> list[Any]:
        llm = ScriptedLLM({"respond": reply}, chunk=3)
        chain = response_chain(llm, settings=Settings(), **options)
        inputs = {"input": "x", "plan": GOOD_PLAN, "results": results, "tools": tools}
        found = [chunk async for chunk in chain.astream(inputs)]
        self.prompt = llm.calls[0].prompt
        return found

    @pytest.mark.parametrize(
        "reply",
        [REPLY, f"```json\n{REPLY}\n```", f" \n{REPLY}", REPLY.removeprefix('{"tasks": ').removesuffix("}")],
    )
    async def test_a_list_of_tasks_is_a_plan(self, reply: str) -> None:
        (plan,) = await self.chunks(reply)
        assert [(task.task, task.args) for task in plan.tasks] == [("translation", {"text": "<resource>-0"})]
        assert "translation(text, src_lang?, tgt_lang?)" in self.prompt
        assert "object-detection(" not in self.prompt

    @pytest.mark.parametrize(
        "said",
        [
            '[{"label": "cat"}]',
            '{"total": 3}',
            "{",
            "[",
            "",
            "```json\n[1]\n```",
            f"[speech]({SPEECH})",
            "[{",
            '{"tasks": [{"task": "buy milk"}, {"task": "call Ann"}]}',
            '[{"id": 1, "name": "cat"}]',
            '{"tasks": ["buy milk"]}',
            '[{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]',
        ],
    )
    async def test_an_answer_may_begin_like_one(self, said: str) -> None:
        said = said and f"{said} {SPEECH}"
        if said:
            assert "".join(await self.chunks(said)) == said
        else:
            with pytest.raises(LLMError):
                await self.chunks(said)

    async def test_there_are_at_most_32_and_equal_ones_are_one(self) -> None:
        row = {"task": "translation", "dep": [0], "args": {"text": "<resource>-0"}}
        for texts, count in (([""] * 199, 1), ([str(n) for n in range(199)], 32)):
            rows = [
                row | {"id": n, "args": {"text": f"<resource>-0{text}"}} for n, text in enumerate(texts, 2)
            ]
            (plan,) = await self.chunks(json.dumps({"tasks": rows}))
            assert len(plan.tasks) == count

    async def test_what_ran_once_for_each_result_is_not_repeated(self) -> None:
        task = Task(task="translation", id=2, dep=[0], args={"text": "<resource>-0[1]"})
        told = TaskResult(task=task, status="ok")
        (plan,) = await self.chunks(self.REPLY.replace('"id": 2', '"id": 3'), results=[*GOOD, told])
        assert plan.tasks == []

    async def test_an_answer_streams_from_its_first_characters(self) -> None:
        pieces = await self.chunks(f"It is done: {SPEECH}")
        assert len(pieces) > 2
        assert pieces[0] == "It "

    async def test_without_tools_or_a_place_for_them_every_reply_is_an_answer(self, tmp_path: Path) -> None:
        (tmp_path / "respond.md").write_text("Answer\n---\n{{{input}}}")
        for given in ({"tools": None}, {"prompts": "paper"}, {"prompts": tmp_path}):
            found = await self.chunks(self.REPLY, **given)
            assert "".join(found).startswith(self.REPLY)
            assert "translation(text" not in self.prompt
