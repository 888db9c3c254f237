"""planning_chain: streaming, repair, fallbacks, caches, prompts and examples."""

import asyncio
import json
import re
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
from doubles.openai_server import OpenAIDouble
from langchain_core.caches import InMemoryCache
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from jarvis_agent import Plan, TaskSpec, planning_chain
from jarvis_agent.core.errors import ConfigError, InputError, LLMError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.llm.tokens import count_tokens
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.planning.chain import PlanOutputParser, read_further_tasks
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.testing import ScriptedLLM

LOOK = '{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}'
SPEAK = '{"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<resource>-0"}}'
DEPTH = '{"task": "depth-estimation", "id": 2, "dep": [-1], "args": {"image": "a.jpg"}}'
NOISE = '{"task": "make-noise", "id": 0, "dep": [-1], "args": {"loud": true}}'
ASK = "What about a.jpg?"
DEAD = LLMError("the line went dead")
CROP = {"image": "a.jpg", "box": "left half"}


def names(plan: Plan) -> list[tuple[int, str]]:
    return [(task.id, task.task) for task in plan.tasks]


def prompt_of(llm: ScriptedLLM, call: int = 0) -> str:
    return llm.calls[call].prompt


class TestRunnable:
    def test_it_works_alone_with_the_methods_of_a_runnable(self) -> None:
        llm = ScriptedLLM({"plan": f"[{LOOK}, {SPEAK}]"})
        chain = planning_chain(llm)
        expected = [(0, "image-to-text"), (1, "text-to-speech")]
        value = {
            "input": ASK,
            "files": ["a.jpg", Path("b.png"), Resource(kind="image", path=Path("/abs/c.jpg"), name="c.jpg")],
            "chat_history": [HumanMessage("Draw a zoo"), AIMessage("Here it is: /out/zoo.png")],
            "unknown": 1,
        }
        plan = chain.invoke(value)
        assert names(plan) == expected
        assert plan.tasks[1].dep == [0]
        assert plan.notes == [], "a file that the request does not need is no gap"
        for part in (ASK, "a.jpg", "b.png", "c.jpg", "Draw a zoo", "/out/zoo.png"):
            assert part in prompt_of(llm)
        assert "/abs/" not in prompt_of(llm)
        assert [names(plan) for plan in chain.batch([ASK, ASK])] == [expected] * 2
        assert names(sum(chain.stream(ASK), Plan())) == expected
        identity = RunnableLambda(lambda plan: plan)
        for derived in (chain.with_retry(), chain.with_config(tags=["x"]), chain | identity):
            assert names(derived.invoke(ASK)) == expected
        assert llm.stages() == ["plan"] * 7

    async def test_tasks_are_emitted_before_the_plan_is_complete(self) -> None:
        stream = planning_chain(ScriptedLLM((f"[{LOOK}, ", 600.0, f"{SPEAK}]"))).astream(ASK)
        async with asyncio.timeout(120):
            assert names(await anext(stream)) == [(0, "image-to-text")]
        await stream.aclose()
        chunks = [chunk async for chunk in planning_chain(ScriptedLLM(f"[{LOOK}, {SPEAK}]")).astream(ASK)]
        assert [names(chunk) for chunk in chunks[:2]] == [[(0, "image-to-text")], [(1, "text-to-speech")]]
        assert len(sum(chunks, Plan())) == 2

    def test_tools_are_given_at_construction_or_with_the_input(self) -> None:
        @tool
        def weather(city: str) -> str:
            """Tell the weather."""
            return city

        written = f'[{LOOK}, {{"task": "weather", "id": 1, "dep": [], "args": {{"city": "Rome"}}}}]'
        llm = ScriptedLLM({"plan": written, "repair": "[]"})
        assert names(planning_chain(llm, tools=[weather]).invoke("x")) == [(1, "weather")]
        specs = {"image-to-text": TASKS["image-to-text"]}
        for tools in (specs, list(specs), list(specs.values())):
            assert names(planning_chain(llm).invoke({"input": "x", "tools": tools})) == [(0, "image-to-text")]

    def test_prompts_are_returned_and_one_run_is_one_tree(self) -> None:
        from langchain_core.tracers.base import BaseTracer

        roots: list[Any] = []

        class Tracer(BaseTracer):
            def _persist_run(self, run: Any) -> None:
                roots.append(run)

        meter = UsageMeter()
        chain = planning_chain(ScriptedLLM({"plan": f"[{NOISE}, {DEPTH}]", "repair": f"[{LOOK}]"}))
        plan_prompt, repair_prompt = chain.get_prompts()
        assert "input" in plan_prompt.input_variables
        assert "broken_tasks" in repair_prompt.input_variables
        assert chain.with_config(tags=["x"]).get_graph().nodes
        plan = chain.invoke(ASK, {"callbacks": [Tracer(), meter]})
        assert len(plan) == 2
        (root,) = roots
        assert root.name == "plan"
        assert [run.run_type for run in root.child_runs] == ["prompt", "llm", "parser"]
        assert "llm" in {run.run_type for run in _descendants(root.child_runs[2])}
        assert {stage: usage.calls for stage, usage in meter.usage.items()} == {"plan": 1, "repair": 1}

    def test_it_takes_messages_prompt_values_and_chat_histories(self) -> None:
        class History(BaseChatMessageHistory):
            messages: list[BaseMessage]

            def clear(self) -> None: ...

        history = History()
        history.messages = [HumanMessage("Draw a zoo"), AIMessage("Here it is")]
        messages = [*history.messages, HumanMessage(ASK)]
        template = ChatPromptTemplate([*messages[:2], ("human", "What about {file}?")])
        prompts = []
        value: Any
        for value in (messages, {"messages": messages}, {"input": ASK, "chat_history": history}):
            llm = ScriptedLLM(f"[{LOOK}]")
            assert len(planning_chain(llm).invoke(value)) == 1
            prompts.append(prompt_of(llm))
        llm = ScriptedLLM(f"[{LOOK}]")
        assert len(template.pipe(planning_chain(llm)).invoke({"file": "a.jpg"})) == 1
        assert "Draw a zoo" in prompts[0]
        assert {*prompts} == {prompt_of(llm)}

    def test_malformed_input_is_an_error(self) -> None:
        picture = HumanMessage([{"type": "image", "url": "https://x.org/a.png"}])
        value: Any
        for value in (
            *(7, None, {"files": []}, [picture]),
            *({"input": "x", "files": files} for files in (7, [object()])),
            *({"input": "x", "chat_history": history} for history in (7, "hi", [7])),
        ):
            with pytest.raises(InputError):
                planning_chain(ScriptedLLM("[]")).invoke(value)

    def test_it_needs_a_model_and_known_task_names(self) -> None:
        with pytest.raises(ConfigError, match="needs a language model"):
            planning_chain("none")
        with pytest.raises(ConfigError, match="no task 'image2text'; close to it: image-to-text"):
            planning_chain(ScriptedLLM("[]"), tools=["image2text"])


def _descendants(run: Any) -> list[Any]:
    return [run, *(each for child in run.child_runs for each in _descendants(child))]


class TestRepair:
    def test_broken_tasks_are_sent_back_once_with_request_files_and_valid_tasks(self) -> None:
        llm = ScriptedLLM({"plan": f"[{NOISE}, {SPEAK}, {DEPTH}]", "repair": f"[{LOOK}]"})
        chunks = list(planning_chain(llm).stream(ASK))
        order = [(2, "depth-estimation"), (0, "image-to-text"), (1, "text-to-speech")]
        assert names(sum(chunks, Plan())) == order
        assert chunks[-1].notes == ["task 0 (image-to-text): it was repaired by its planner"]
        assert llm.stages() == ["plan", "repair"]
        for part in ("make-noise", "is not an available task", ASK, '- image: "a.jpg"', 'depth-estimation"'):
            assert part in prompt_of(llm, 1)
        assert 'text-to-speech"' not in prompt_of(llm, 1), "it waits for the broken task"

    def test_a_planner_may_say_that_a_broken_task_is_not_wanted(self) -> None:
        for reply, removed in (("[]", False), ('{"tasks": []}', False), ("I cannot.", True)):
            llm = ScriptedLLM({"plan": f"[{NOISE}, {DEPTH}]", "repair": reply})
            plan = planning_chain(llm).invoke(ASK)
            assert names(plan) == [(2, "depth-estimation")]
            assert "make-noise" in str(plan.notes)
            assert bool(plan.removed) is removed

    def test_a_name_close_to_one_file_of_its_kind_means_that_file(self) -> None:
        """By extension, case or one letter. Other names are sent back with the list of files."""
        files = ["photos/example.jpg", "e1.png", "talk.mp4", "notes.csv"]
        cases = {
            ("image-to-text", "image", "examples.jpg"): "photos/example.jpg",
            ("image-to-text", "image", "Example.PNG"): "photos/example.jpg",
            ("image-to-text", "image", "./exmple.jpg"): "photos/example.jpg",
            ("automatic-speech-recognition", "audio", "talk.wav"): "talk.mp4",
            ("tabular-classification", "table", "note.csv"): "notes.csv",
            ("summarization", "text", "nots.csv"): "notes.csv",
            ("summarization", "text", "zoo.txt"): "zoo.txt",
            ("image-to-text", "image", "example.jpg"): "example.jpg",
            ("image-to-text", "image", "e2.png"): None,
            ("image-to-text", "image", "example2.jpg"): None,
            ("image-to-text", "image", "talk.jpg"): None,
            ("image-to-text", "image", "/etc/passwd"): None,
            ("image-to-text", "image", "http://a.example/zoo.jpg"): None,
        }
        for (name, arg, written), meant in cases.items():
            plan_text = json.dumps(
                [{"task": name, "id": 0, "dep": [-1], "args": {arg: written}}, json.loads(DEPTH)]
            )
            llm = ScriptedLLM({"plan": plan_text.replace("a.jpg", "e1.png"), "repair": "[]"})
            plan = planning_chain(llm).invoke({"input": "Look at it", "files": files})
            found = [task.args[arg] for task in plan.tasks if task.task == name]
            assert found == ([meant] if meant else []), written
            if meant is None:
                listed = f"the files are {', '.join(map(json.dumps, files))}"
                error = f'there is no file "{written}"; {listed}'
                assert error in prompt_of(llm, 1).replace("\\", "")
            elif meant != written:
                assert plan.notes[0] == f'task 0 ({name}): "{written}" was taken as its {arg} "{meant}"'

    def test_two_close_names_or_none_are_sent_back(self) -> None:
        may, june = (f"final-version-of-the-report-for-the-customer-{month}.png" for month in ("may", "jun"))
        for name, files, error in (
            ("zoo.jpg", ["zoo.png", "zoos.jpg"], 'the files are "zoo.png", "zoos.jpg"'),
            ("zoo.jpg", [], "the request has no files"),
            (june, [may], f'the files are "{may}"'),
        ):
            look = LOOK.replace("a.jpg", name)
            llm = ScriptedLLM({"plan": f"[{look}]", "repair": "[]"})
            with pytest.raises(LLMError, match=f'there is no file "{name}"; {error}'):
                planning_chain(llm).invoke({"input": "Look at it", "files": files})

    def test_files_of_the_chat_and_of_allowed_directories_may_be_named(self, tmp_path: Path) -> None:
        history = [HumanMessage("Draw cat.jpg as a sketch"), AIMessage("It is /out/sketch-0.png.")]
        for name, meant in (
            ("cat.jpg", "cat.jpg"),
            ("sketch-0.png", "sketch-0.png"),
            ("/out/sketch-0.png", "/out/sketch-0.png"),
            ("/images/sketch-0.jpg", "/out/sketch-0.png"),
        ):
            llm = ScriptedLLM({"plan": f"[{LOOK.replace('a.jpg', name)}]"})
            value = {"input": "Describe it", "files": [], "chat_history": history}
            assert planning_chain(llm).invoke(value).tasks[0].args == {"image": meant}
        llm = ScriptedLLM({"plan": f"[{LOOK}]"})
        chain = planning_chain(llm, settings={"allowed_dirs": [tmp_path]})
        assert chain.invoke({"input": "Describe the picture", "files": []}).tasks[0].args == {
            "image": "a.jpg"
        }

    def test_what_stays_broken_is_left_out_with_its_dependants(self) -> None:
        llm = ScriptedLLM({"plan": f"[{NOISE}, {SPEAK}, {DEPTH}]", "repair": f"[{NOISE}]"})
        plan = planning_chain(llm).invoke(ASK)
        assert names(plan) == [(2, "depth-estimation")]
        assert llm.stages() == ["plan", "repair"]
        left_out = [note.split(":")[0] for note in plan.notes if "left out" in note]
        assert left_out == ["task 0 was left out", "task 1 (text-to-speech) was left out"]

    def test_prose_instead_of_a_plan_is_sent_back_but_an_empty_plan_is_not(self) -> None:
        llm = ScriptedLLM({"plan": "I would look at a.jpg first.", "repair": f"[{LOOK}]"})
        assert len(planning_chain(llm).invoke(ASK)) == 1
        assert "I would look at a.jpg first." in prompt_of(llm, 1)
        llm = ScriptedLLM({"plan": "[]"})
        assert planning_chain(llm).invoke(ASK) == Plan()
        assert llm.stages() == ["plan"]

    def test_a_failing_repair_keeps_the_rest(self) -> None:
        llm = ScriptedLLM({"plan": f"[{NOISE}, {DEPTH}]", "repair": LLMError("too busy")})
        plan = planning_chain(llm).invoke(ASK)
        assert names(plan) == [(2, "depth-estimation")]
        assert any("could not repair its plan: too busy" in note for note in plan.notes)

    def test_a_reply_without_a_usable_task_is_an_error(self) -> None:
        for written in (f"[{NOISE}, {SPEAK}]", "Hello!", '{"tasks": [7]}'):
            llm = ScriptedLLM({"plan": written, "repair": written})
            with pytest.raises(LLMError, match=r"(contains no plan|was left out): .*use a larger model"):
                planning_chain(llm).invoke(ASK)

    def test_a_plan_of_tasks_that_are_not_available_does_not_call_for_a_larger_model(self) -> None:
        llm = ScriptedLLM({"plan": f"[{DEPTH}]", "repair": f"[{DEPTH}]"})
        with pytest.raises(
            LLMError, match=r"not an available task.*What helps: `jarvis tasks` says what it needs$"
        ):
            planning_chain(llm, tools=["image-to-text"]).invoke(ASK)

    def test_the_parser_works_with_any_model_and_may_have_no_repair(self) -> None:
        chain = ScriptedLLM(f"[{NOISE}, {DEPTH}]") | PlanOutputParser()
        assert names(chain.invoke("x")) == [(2, "depth-estimation")]
        assert names(sum(chain.stream("x"), Plan())) == [(2, "depth-estimation")]
        assert names(PlanOutputParser().parse(f"[{LOOK}]")) == [(0, "image-to-text")]


class TestContextWindow:
    """All task types, a long history and many files, and a context window of 4,096 tokens."""

    SETTINGS = Settings(context_window=4096)
    GIVEN: ClassVar[dict[str, Any]] = {
        "files": ["a.jpg", *(f"holiday/picture-{number:04d}.jpg" for number in range(90))],
        "chat_history": [HumanMessage("Describe it. " * 50), AIMessage("It is a zoo. " * 100)] * 30,
    }

    @pytest.mark.slow
    def test_prompts_fit_it_in_every_mode(self) -> None:
        long = "Sum up: " + "ten words " * 9000
        requests = {"short": "Describe a.jpg", "all": f"Do {', '.join(TASKS)}", "long": long}
        sizes: dict[tuple[str, str, str], int] = {}
        for prompts, (label, text) in product(("default", "paper"), requests.items()):
            llm = ScriptedLLM({"plan": f"[{NOISE}]", "repair": f"[{LOOK}]"})
            chain = planning_chain(llm, prompts=prompts, settings=self.SETTINGS)
            chain.invoke({"input": text, **self.GIVEN})
            sizes |= {(prompts, label, call.stage): count_tokens(call.prompt) for call in llm.calls}
        assert len(sizes) == 12
        assert {case: size for case, size in sizes.items() if size > 0.85 * 4096} == {}

    @pytest.mark.slow
    def test_long_descriptions_of_a_few_tools_are_left_out(self) -> None:
        tools = [TaskSpec(f"tool-{n}", "tool", f"{n} " * 1500, (), ("text",)) for n in range(6)]
        llm = ScriptedLLM("[]")
        planning_chain(llm, tools=tools, settings=self.SETTINGS).invoke("Use tool-3")
        assert count_tokens(prompt_of(llm)) < 4096


class TestFailures:
    def test_a_fallback_replaces_a_model_that_fails_before_its_first_task(self) -> None:
        instead = Plan.parse(f"[{DEPTH}]")
        seen: list[Any] = []

        def fallback(value: dict[str, Any]) -> Plan:
            seen.append(value["error"])
            return instead

        for begun in ("", "[", f"[{NOISE}", "Let me see"):
            chain = planning_chain(ScriptedLLM((begun, DEAD)))
            replaced = chain.with_fallbacks([RunnableLambda(fallback)], exception_key="error")
            assert replaced.invoke({"input": ASK}) == instead
            assert sum(replaced.stream({"input": ASK}), Plan()) == instead
        assert {str(error) for error in seen} == {"the line went dead"}

    def test_a_failure_after_the_first_task_becomes_a_note(self) -> None:
        llm = ScriptedLLM((f"[{LOOK}, {SPEAK[:40]}", DEAD))
        plan = planning_chain(llm).with_fallbacks([RunnableLambda(lambda _: Plan())]).invoke(ASK)
        assert llm.stages() == ["plan"], "a model that has just failed is not asked for a repair"
        assert names(plan) == [(0, "image-to-text")]
        assert any("the line went dead" in note for note in plan.notes)
        assert any("task 1 was left out: the text ends in the middle of it" in note for note in plan.notes)


class TestCaches:
    def test_an_identical_second_run_makes_no_llm_call(self, tmp_path: Path) -> None:
        community = pytest.importorskip("langchain_community.cache")
        caches = [InMemoryCache(), community.SQLiteCache(str(tmp_path / "cache.db"))]
        for cache in caches:
            llm, meter = ScriptedLLM({"plan": f"[{NOISE}, {DEPTH}]", "repair": f"[{LOOK}]"}), UsageMeter()
            set_llm_cache(cache)
            try:
                plans = [planning_chain(llm).invoke(ASK, {"callbacks": [meter]}) for _ in range(2)]
            finally:
                set_llm_cache(None)
            assert plans[0] == plans[1]
            assert llm.stages() == ["plan", "repair"]
            assert meter.usage["plan"].cached == 1
        own = ScriptedLLM({"plan": f"[{LOOK}]"}, cache=InMemoryCache())
        assert planning_chain(own).invoke(ASK) == planning_chain(own).invoke(ASK)
        assert own.stages() == ["plan"]


class TestPrompts:
    def test_a_template_a_directory_and_a_set_replace_the_prompt(self, tmp_path: Path) -> None:
        (tmp_path / "plan.md").write_text("Rules of a directory\n---\n{{{input}}}")
        chat = MessagesPlaceholder("chat_history")
        own = ChatPromptTemplate([("system", "Mine: {available_task_list}"), chat, ("human", "{input}")])
        shown = {
            "Rules of a directory": tmp_path,
            "Mine: text-to-speech\nearlier\nthen\n" + ASK: own,
            "#1 Task Planning Stage - The AI assistant performs task parsing": "paper",
        }
        history = [HumanMessage("earlier"), AIMessage("then")]
        for text, prompts in shown.items():
            llm = ScriptedLLM("[]")
            chain = planning_chain(llm, tools=["text-to-speech"], prompts=prompts)
            chain.invoke({"input": ASK, "chat_history": history})
            assert text in prompt_of(llm)

    @pytest.mark.parametrize("prompts", ["default", "paper"])
    def test_attached_files_reach_the_model_with_every_prompt_set(self, prompts: str) -> None:
        llm = ScriptedLLM({"plan": f"[{LOOK.replace('a.jpg', 'b.jpg')}]"})
        chain = planning_chain(llm, prompts=prompts)
        files = ["a.jpg", Resource(kind="image", path=Path("/abs/b.jpg"), name="b.jpg")]
        assert len(chain.invoke({"input": "Describe it like a.jpg", "files": files})) == 1
        human = str(llm.calls[0].messages[-1].text)
        assert '- image: "b.jpg"' in human
        assert ('"a.jpg"' in human) == (prompts == "default"), "a prompt without files adds those not named"
        assert "/abs/" not in human

    def test_tasks_are_listed_in_one_order_for_every_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jarvis_agent.llm.chat_model.is_openai_like", lambda model: True)
        requests = (ASK, "Read a.jpg aloud, then do a tabular regression", "Hello")
        llm = ScriptedLLM({"plan": "[]"}, profile={"max_input_tokens": 8192, "structured_output": True})
        chain = planning_chain(llm)
        for request in requests:
            chain.invoke({"input": request, "files": ["a.jpg"]})
        assert len({call.messages[0].text for call in llm.calls}) == 1
        assert len({json.dumps(call.kwargs["response_format"]) for call in llm.calls}) == 1
        assert all(re.search(rf"(?m)(^|, ){name}[(,]", prompt_of(llm)) for name in TASKS)

    def test_a_plan_with_all_tasks_takes_few_tokens_and_nearly_all_are_the_same_for_every_request(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By our estimate, which counts a third more than the tokenizers of large models."""
        monkeypatch.setattr("jarvis_agent.llm.chat_model.is_openai_like", lambda model: True)
        llm = ScriptedLLM("[]")
        planning_chain(llm).invoke(ASK)
        system, human = (count_tokens(str(message.text)) for message in llm.calls[0].messages)
        schema = count_tokens(json.dumps(llm.calls[0].kwargs["response_format"]))
        assert system + schema + human <= 4200
        assert human <= 50

    def test_a_list_that_is_too_long_has_no_descriptions(self) -> None:
        for window, described in ((4096, False), (32_000, True)):
            llm = ScriptedLLM("[]")
            planning_chain(llm, settings=Settings(context_window=window)).invoke(ASK)
            assert ("Take the sound out of a video" in prompt_of(llm)) is described
            assert "combine-video-audio(video, audio)" in prompt_of(llm)

    @pytest.mark.parametrize(("name", "count"), [("gpt-5-mini", 0), ("q-7b", 9), ("q-0.5b", 9), ("q-70b", 0)])
    def test_worked_examples_are_shown_to_models_that_need_them(self, name: str, count: int) -> None:
        llm = ScriptedLLM("[]", model_name=name)
        planning_chain(llm).invoke(ASK)
        shown = [str(message.text) for message in llm.calls[0].messages if message.type == "ai"]
        assert len(shown) >= count if count else not shown
        assert all(text.startswith('{"tasks": [') for text in shown), "in the form that is asked for"

    def test_any_example_selector_can_be_passed(self) -> None:
        from langchain_core.embeddings import DeterministicFakeEmbedding
        from langchain_core.example_selectors import SemanticSimilarityExampleSelector
        from langchain_core.vectorstores import InMemoryVectorStore

        examples = [
            {"input": f"Describe e{n}.jpg", "plan": f"[{LOOK.replace('a.jpg', f'e{n}.jpg')}]"}
            for n in range(4)
        ]
        selector = SemanticSimilarityExampleSelector.from_examples(
            examples, DeterministicFakeEmbedding(size=8), InMemoryVectorStore, k=2, input_keys=["input"]
        )
        llm = ScriptedLLM("[]")
        planning_chain(llm, examples=selector).invoke(ASK)
        types = [message.type for message in llm.calls[0].messages]
        assert types == ["system", *["human", "ai"] * 2, "human"]
        for wrong in ("nearest", 7):
            with pytest.raises(ConfigError, match="examples are"):
                planning_chain(llm, examples=wrong)

    def test_a_model_that_does_not_end_its_plan_is_stopped(self) -> None:
        tasks = [
            json.dumps({"task": "text-to-speech", "id": n, "args": {"text": f"{n}"}}) + "," for n in range(99)
        ]
        files = [f"{n}.jpg" for n in range(12)]
        for given, most in (([], 32), (files, 48)):
            llm = ScriptedLLM(("[", *tasks[: most + 1], DEAD))
            plan = planning_chain(llm).invoke({"input": "Count aloud", "files": given})
            assert [task.id for task in plan.tasks] == list(range(most))
            assert plan.notes == [f"the model was stopped after {most} tasks"]

    def test_the_schema_is_sent_and_is_the_same_for_every_prompt(self) -> None:
        with OpenAIDouble('{"tasks": []}') as server:
            settings = Settings(base_url=server.base_url)
            planning_chain(None, settings=settings).invoke(ASK)
            planning_chain(None, settings=settings, prompts="paper").invoke(ASK)
            full, paper = [request.body for request in server.requests]
        assert full["response_format"] == paper["response_format"]
        assert "a.jpg" not in json.dumps(full["response_format"])
        reply = {
            "tasks": [{"task": "image-to-text", "id": 0, "dep": [], "args": {"text": None, "image": "a.jpg"}}]
        }
        plan = planning_chain(ScriptedLLM(json.dumps(reply))).invoke(ASK)
        assert [task.args for task in plan.tasks] == [{"image": "a.jpg"}]


class TestFurtherTasks:
    """What a language model adds to a plan once it has seen the results."""

    MADE = Resource(kind="image", path=Path("/out/1/0-crop-image.png"))
    DONE: ClassVar[list[TaskResult]] = [
        TaskResult(task=Task(task="crop-image", id=0, args=CROP), status="ok", resources=[MADE]),
        TaskResult(task=Task(task="text-to-speech", id=1, args={"text": "hi"}), status="failed", error="no"),
    ]

    def added(self, *tasks: dict[str, Any]) -> Plan:
        request = PlanRequest.of({"input": ASK, "files": ["a.jpg"]})
        plan = Plan(tasks=[result.task for result in self.DONE])
        reply = json.dumps({"tasks": [{"dep": [-1], **task} for task in tasks]})
        return read_further_tasks(reply, request, plan, self.DONE, Settings())

    def test_they_refer_to_finished_tasks_and_to_files_of_the_results(self) -> None:
        plan = self.added(
            {"task": "resize-image", "id": 2, "args": {"image": "<resource>-0", "width": 9}},
            {"task": "image-to-text", "id": 3, "args": {"image": "0-crop-image.png"}},
            {"task": "text-to-speech", "id": 4, "args": {"text": "<resource>-3"}},
        )
        assert [(task.id, task.dep) for task in plan.tasks] == [(2, [0]), (3, [-1]), (4, [3])]
        assert not plan.removed

    def test_a_task_that_was_run_a_failed_one_and_their_dependants_are_left_out(self) -> None:
        plan = self.added(
            {"task": "crop-image", "id": 2, "args": CROP},
            {"task": "text-to-speech", "id": 3, "args": {"text": "hi"}},
            {"task": "automatic-speech-recognition", "id": 4, "args": {"audio": "<resource>-3"}},
            {"task": "automatic-speech-recognition", "id": 5, "args": {"audio": "<resource>-1"}},
        )
        assert plan.tasks == []
        assert any("<resource>-1 cannot be its audio" in note for note in plan.removed)

    def test_ids_in_use_are_replaced_and_no_other_file_can_be_named(self) -> None:
        plan = self.added(
            {"task": "depth-estimation", "id": 0, "args": {"image": "a.jpg"}},
            {"task": "depth-estimation", "id": 7, "args": {"image": "/etc/passwd"}},
            {"task": "depth-estimation", "id": 8, "args": {"image": "http://evil.example/x.png"}},
        )
        assert [(task.id, task.args) for task in plan.tasks] == [(100, {"image": "a.jpg"})]
        assert len(plan.removed) == 2

    def test_a_reply_without_tasks_adds_nothing(self) -> None:
        assert self.added() == Plan()
