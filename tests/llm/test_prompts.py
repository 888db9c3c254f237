"""Prompt templates: the paper's wording, slots, directories, and the token budget."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.prompts import ChatPromptTemplate

from jarvis_agent.core.context import ChatTurn, messages_of, turns_of
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.prompts import STAGES, fill, format_chat_history, load_prompts
from jarvis_agent.llm.tokens import DEFAULT_WINDOW, clip, clip_rows, count_tokens
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.messages import open_examples, plan_variables

SETS = ("default", "paper")
LONG = "word " * 100_000
MADE = [Resource(kind="image", path=Path(f"/out/{n}.png")) for n in range(200)]
CHAT = tuple(ChatTurn(f"request {n} " + "x " * 400, f"answer {n}", (made,)) for n, made in enumerate(MADE))
PAPER = json.loads((Path(__file__).parents[1] / "data" / "paper_prompts.json").read_text("utf-8"))
"""The prompts of HuggingGPT's paper (Shen et al., 2023), with the slots filled."""


def filled(name: str | Path, stage: str, window: int = DEFAULT_WINDOW, **values: Any) -> list[str]:
    """The texts of a stage's messages; every variable that is not given is "(none)"."""
    template = getattr(load_prompts(name), stage)
    values = dict.fromkeys(STAGES[stage] - values.keys(), "(none)") | values
    return [str(m.text) for m in template.invoke(fill(template, values, window)).to_messages()]


def plan_prompt(
    request: PlanRequest, name: str | Path = "default", window: int = DEFAULT_WINDOW
) -> list[Any]:
    prompts = load_prompts(name)
    examples = open_examples(str(prompts.examples or "default"))
    values = plan_variables(prompts.plan, request, examples, window=window)
    return list(prompts.plan.invoke(values).to_messages())


def test_the_papers_set_has_the_papers_prompts() -> None:
    names = (
        "object-detection image-classification image-to-text visual-question-answering "
        "openpose-control openpose-text-to-image"
    )
    request = PlanRequest("hello", specs={name: TASKS[name] for name in names.split()})
    assert [message.text for message in plan_prompt(request, "paper")] == [PAPER["plan"], "hello"]
    card = '{"model_id": "a/b", "metadata": {}, "description": ""}'
    system, human = filled("paper", "select", candidate_models=card, input="hello", task='{"id": 0}')
    assert system == PAPER["select"]
    assert "hello" in human
    assert '{"id": 0}' in human
    values = {"input": "hello", "tasks": "[]", "model_assignment": "{}"}
    assert filled("paper", "respond", **values) == [PAPER["respond"], "hello"]


class TestTemplates:
    def test_every_set_has_a_template_for_every_stage(self) -> None:
        for name, (stage, variables) in product(SETS, STAGES.items()):
            template = getattr(load_prompts(name), stage)
            assert isinstance(template, ChatPromptTemplate), (name, stage)
            assert set(template.input_variables) <= variables
            messages = template.invoke(dict.fromkeys(template.input_variables, "")).to_messages()
            assert {message.additional_kwargs["jarvis_stage"] for message in messages} == {stage}

    @settings(max_examples=30)
    @given(st.text())
    def test_values_are_inserted_unchanged(self, text: str) -> None:
        for name in SETS:
            wild = rf"{text} {{{{{{demonstrations}}}}}} {{{{#files}}}} <b>& {{x}} {{input}} \1 \g<0> %s $x"
            assert wild in filled(name, "plan", input=wild)[-1]

    def test_the_system_message_is_the_same_for_every_request(self) -> None:
        one = plan_prompt(PlanRequest("one"))
        other = plan_prompt(PlanRequest("two", (Resource(kind="image", name="x.jpg"),), CHAT[:2]))
        assert one[0].text == other[0].text
        assert one[0].type == "system"

    def test_files_of_a_directory_replace_those_of_the_default_set(self, tmp_path: Path) -> None:
        (tmp_path / "chat.md").write_text("Be {brief}.{{^files}} No files.{{/files}}\n---\n{{{input}}}!")
        (tmp_path / "plan.md").write_text("Rules for {{{available_task_list}}}")
        assert filled(tmp_path, "chat", input="hi", files="") == ["Be {brief}. No files.", "hi!"]
        assert filled(tmp_path, "plan", input="hi", available_task_list="a") == ["Rules for a", "hi"]
        assert load_prompts(tmp_path).select == load_prompts("default").select

    def test_a_template_replaces_that_of_its_stage(self) -> None:
        own = ChatPromptTemplate([("human", "{input}")])
        prompts = load_prompts(own, "select")
        assert prompts.select is own
        assert prompts.plan == load_prompts().plan
        assert load_prompts(prompts) is prompts

    def test_mistakes_are_config_errors(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match='"nowhere" is not "default", "paper" or'):
            load_prompts("nowhere")
        (tmp_path / "chat.md").write_text("{{{weather}}}")
        unknown = "unknown variable weather; the stage chat has chat_log"
        with pytest.raises(ConfigError, match=unknown):
            load_prompts(tmp_path)
        (tmp_path / "chat.md").write_text("{{#files}}")
        with pytest.raises(ConfigError, match="no mustache template"):
            load_prompts(tmp_path)
        (tmp_path / "chat.md").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ConfigError, match="cannot be read"):
            load_prompts(tmp_path)
        own = ChatPromptTemplate([("human", "{weather}")])
        with pytest.raises(ConfigError, match=r"(?s)weather.*this stage provides chat_log, input"):
            fill(own, {"input": "", "chat_log": ""}, 4096)


class TestPlanPrompt:
    def test_tasks_are_listed_and_empty_blocks_are_left_out(self) -> None:
        name = "visual-question-answering"
        system, *_, human = plan_prompt(PlanRequest("hello", specs={name: TASKS[name]}))
        assert system.text.endswith(
            f"\n\n{name}(text: the question, image): Answer a question about an image."
        )
        assert human.text == "<request>\nhello\n</request>"

    def test_examples_are_turns_between_the_rules_and_the_request(self) -> None:
        specs = {"object-detection": TASKS["object-detection"]}
        messages = plan_prompt(PlanRequest("x", specs=specs))
        assert [message.type for message in messages[:3]] == ["system", "human", "ai"]
        plan = [{"task": "object-detection", "id": 0, "dep": [-1], "args": {"image": "e1.jpg"}}]
        assert json.loads(messages[2].text) == {"tasks": plan}
        assert '- image: "e1.jpg"' in messages[1].text
        assert "HED" not in str(messages)

    def test_files_and_chat_are_shown_by_name(self) -> None:
        file = Resource(kind="image", path=Path("/abs/my cat.jpg"), name="my cat.jpg")
        canny = Resource(kind="image", path=Path("/out/canny.png"), name="canny-control")
        turn = ChatTurn("make a canny\nimage", "done", (canny, Resource(kind="text", text="a cat")))
        human = plan_prompt(PlanRequest("x", (file,), (turn,)))[-1].text
        image = '- image "/out/canny.png" ("canny-control")'
        for part in ('- image: "my cat.jpg"', 'User: "make a canny image"', image, '- text "a cat"'):
            assert part in human

    def test_demonstrations_may_be_placed_in_the_text(self, tmp_path: Path) -> None:
        (tmp_path / "plan.md").write_text("Examples: {{{demonstrations}}}\n---\n{{{input}}}")
        messages = plan_prompt(PlanRequest("x"), tmp_path)
        assert len(messages) == 2
        assert "Read the text in e4.png to me" in messages[0].text


class TestBudget:
    def test_prompts_fit_4096_tokens_and_keep_the_most_important_part(self) -> None:
        specs = {name: TASKS[name] for name in ("image-to-text", "object-detection", "text-to-speech")}
        files = tuple(Resource(kind="image", name=f"{n}.jpg") for n in range(2000))
        for name in SETS:
            for request in ("and now?", "Translate this: " + LONG):
                messages = plan_prompt(PlanRequest(request, files, CHAT, specs), name, 4096)
                text = "\n".join(message.text for message in messages)
                assert count_tokens(text) <= 4096
                assert request[:15] in messages[-1].text
            texts = {
                "predictions": clip_rows([{"id": 7, "text": LONG}], 512),
                "input": "Translate this: " + LONG,
                "chat_log": format_chat_history(CHAT, 512),
            }
            for stage in ("chat", "respond", "select"):
                for each in (texts, dict(reversed(texts.items()))):
                    text = "\n".join(filled(name, stage, 4096, **each))
                    assert count_tokens(text) <= 4096
                    assert "Translate this" in text
            assert '"id": 7' in "\n".join(filled(name, "respond", 4096, **texts))

    def test_a_list_of_task_types_is_never_clipped(self) -> None:
        own = ChatPromptTemplate([("human", "{available_tasks} {input}")])
        values = fill(own, {"input": LONG}, 4096, available_tasks=LONG)
        assert values["available_tasks"] == LONG
        assert 400 < count_tokens(values["input"]) < 1100

    def test_tokens_are_estimated_and_texts_are_cut_to_what_earlier_ones_leave(self) -> None:
        counts = {"": 0, "cat": 1, "elephant": 2, "猫和狗": 3, "a.b": 3}
        assert {text: count_tokens(text) for text in counts} == counts
        assert clip("one two three", 2) == "one two … (5 more characters)"
        assert clip("one two", 2) == "one two"
        rows = clip_rows([LONG, LONG], 800)
        assert [count_tokens(row) > 290 for row in rows.splitlines()] == [True, True]
        assert count_tokens(clip_rows([10] * 1000, 100).partition(" …")[0]) == 100


class TestChatHistory:
    def test_words_of_old_turns_are_dropped_before_their_resources(self) -> None:
        log = format_chat_history(CHAT[-30:], budget=800)
        assert count_tokens(log) <= 800
        assert "request 199" in log
        assert "request 190" not in log
        assert log.index("/out/190.png") < log.index("/out/199.png")
        log = format_chat_history(CHAT[-30:])
        assert re.findall(r"request (\d+) ", log) == [str(n) for n in range(190, 200)]
        assert all(f'image "/out/{n}.png"' in log for n in range(170, 200))

    def test_turns_become_messages_and_messages_turns(self) -> None:
        block = {"type": "image", "url": "https://x.org/a.png"}
        turns = (ChatTurn("one", "1"), ChatTurn("look", "", blocks=(block,)))
        messages = messages_of(turns)
        assert [message.type for message in messages] == ["human", "ai", "human"]
        assert [(turn.request, turn.answer) for turn in turns_of(messages)] == [("one", "1"), ("look", "")]
        assert turns_of(messages)[1].blocks[0]["type"] == "image"
