"""Whatever a request, its chat and its results hold, each prompt stays in the language model's window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from jarvis_agent.core.chat_log import chat_log
from jarvis_agent.core.request import ChatTurn, RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Attempt, Resource, Task, TaskResult
from jarvis_agent.llm.prompts import load_prompts
from jarvis_agent.llm.token_budget import DEFAULT_WINDOW, fitted, head, tokens, window_of
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import ScriptedLLM, fake_candidate

SMALL = {name: TASKS[name] for name in ("image-to-text", "object-detection", "text-to-speech")}
WINDOW = 4096
PROMPTS = load_prompts("default", window=WINDOW)
LONG = "word " * 100_000


def size(messages: list[BaseMessage]) -> int:
    return sum(tokens(str(message.text)) for message in messages)


def words(messages: list[BaseMessage]) -> str:
    return str(messages[-1].text)


def detection(count: int) -> TaskResult:
    box = {"label": "zebra", "score": 0.9, "box": {"xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9}}
    task = Task(task="object-detection", id=0, args={"image": "a.jpg"})
    done = Attempt(model="org/detr", backend="x", started=0, ended=1)
    return TaskResult(task=task, status="ok", output=[box] * count, attempts=[done])


def transcript(text: str) -> TaskResult:
    task = Task(task="automatic-speech-recognition", id=1, args={"audio": "a.wav"})
    made = [Resource(kind="text", text=text)]
    return TaskResult(task=task, status="ok", output={"text": text}, resources=made)


CHAT = tuple(
    ChatTurn(
        f"request {n} " + "x " * 400, f"answer {n}", (Resource(kind="image", path=Path(f"/out/{n}.png")),)
    )
    for n in range(200)
)


class TestCounting:
    @pytest.mark.parametrize(
        ("text", "count"), [("", 0), ("cat", 1), ("elephant", 2), ("猫和狗", 3), ("a.b", 3)]
    )
    def test_tokens_are_estimated(self, text: str, count: int) -> None:
        assert tokens(text) == count

    def test_a_text_is_cut_at_a_token_and_says_how_much_is_gone(self) -> None:
        assert head("one two three", 2) == "one two … (5 more characters)"
        assert head("one two", 2) == "one two"

    def test_the_window_is_what_is_set_else_what_the_profile_says(self) -> None:
        known = ScriptedLLM([], profile={"max_input_tokens": 32_000})
        assert window_of(known, Settings()) == 32_000
        assert window_of(known, Settings(context_window=16_000)) == 16_000
        assert window_of(ScriptedLLM([]), Settings()) == DEFAULT_WINDOW

    def test_what_one_slot_leaves_is_for_the_others(self) -> None:
        asked: dict[str, int] = {}

        def slot(name: str, text: str) -> Any:
            return lambda most: (asked.update({name: most}), head(text, most))[1]

        texts = fitted({"short": slot("short", "one"), "long": slot("long", LONG)}, 100)
        assert texts["short"] == "one"
        assert asked["long"] == 99


class TestChats:
    @pytest.mark.parametrize("stage", ["plan", "chat", "respond"])
    def test_of_200_turns_the_newest_stay(self, stage: str) -> None:
        messages = ask(stage, RunContext("and now?", turns=CHAT, specs=SMALL))
        assert size(messages) <= WINDOW
        assert "and now?" in words(messages)
        assert "request 199" in words(messages)
        assert "request 0 " not in words(messages)

    def test_of_older_turns_one_line_a_resource_stays(self) -> None:
        log = chat_log(CHAT[-30:], words=2)
        assert [n for n in range(170, 200) if f"request {n} " in log] == [198, 199]
        assert all(f'image "/out/{n}.png"' in log for n in range(170, 200))
        assert log.index("/out/170.png") < log.index("/out/199.png")

    def test_words_go_before_resources(self) -> None:
        log = chat_log(CHAT[-30:], budget=800)
        assert tokens(log) <= 800
        assert "request 199" in log
        assert "request 190" not in log
        assert "/out/190.png" in log

    def test_no_history_is_no_log(self) -> None:
        assert chat_log(CHAT, words=0) == ""


class TestResults:
    def test_of_1000_boxes_the_first_and_their_number_stay(self) -> None:
        prompt = PROMPTS.respond_messages(
            RunContext("How many?"), Plan(tasks=[detection(1).task]), [detection(1000)]
        )
        assert size(prompt) <= WINDOW
        assert '"labels": {"zebra": 1000}' in words(prompt)
        assert "org/detr" in words(prompt)
        assert '"label": "zebra", "score": 0.9' in words(prompt)
        assert "more" in words(prompt)

    def test_of_a_transcript_of_100000_words_the_beginning_stays_and_its_length(self) -> None:
        result = transcript("It was a dark night. " + LONG)
        prompt = PROMPTS.respond_messages(RunContext("What is said?"), Plan(tasks=[result.task]), [result])
        assert size(prompt) <= WINDOW
        assert "It was a dark night." in words(prompt)
        assert "more characters" in words(prompt)
        assert result.resources[0].text is not None
        assert len(result.resources[0].text) > len(LONG)

    def test_a_recording_of_ten_minutes_is_whole_where_there_is_room_for_it(self) -> None:
        said = f"{LONG[: 5 * 1500]}and they lived happily ever after"
        result = transcript(said)
        roomy = load_prompts("default", window=32_000)
        prompt = roomy.respond_messages(RunContext("What is said?"), Plan(tasks=[result.task]), [result])
        assert said in words(prompt)

    def test_each_of_many_big_results_is_told(self) -> None:
        results = [
            transcript(f"recording {n} " + LONG[:5000]).model_copy(update={"task": Task(task="x", id=n)})
            for n in range(20)
        ]
        prompt = PROMPTS.respond_messages(
            RunContext("Sum up"), Plan(tasks=[r.task for r in results]), results
        )
        assert size(prompt) <= WINDOW
        assert all(f"recording {n} " in words(prompt) for n in range(20))

    def test_paths_are_whole(self) -> None:
        files = [Resource(kind="image", path=Path(f"/out/{'long' * 20}/{n}.png")) for n in range(30)]
        result = TaskResult(task=Task(task="x", id=0), status="ok", resources=files)
        prompt = PROMPTS.respond_messages(RunContext("Cut it"), Plan(tasks=[result.task]), [result])
        assert size(prompt) <= WINDOW
        assert f"/out/{'long' * 20}/0.png" in words(prompt)


class TestCandidates:
    CARDS = tuple(
        fake_candidate("object-detection", f"org/model-{n}", description=LONG[:9000]) for n in range(20)
    )

    def test_twenty_long_cards_are_all_named(self) -> None:
        task = Task(task="object-detection", id=0, args={"image": "a.jpg"})
        prompt = PROMPTS.select_messages(RunContext("Find cats", specs=TASKS), task, self.CARDS)
        assert size(prompt) <= WINDOW
        assert all(f'"org/model-{n}"' in words(prompt) for n in range(20))


class TestRequests:
    @pytest.mark.parametrize("stage", ["plan", "chat", "respond", "select"])
    def test_of_a_long_request_the_beginning_stays(self, stage: str) -> None:
        messages = ask(stage, RunContext("Translate this: " + LONG, specs=SMALL))
        assert size(messages) <= WINDOW
        assert "Translate this: " in words(messages)

    def test_broken_tasks_that_are_long_are_cut(self) -> None:
        prompt = PROMPTS.repair_messages([({"task": "x", "args": {"text": LONG}}, "no such task")], SMALL)
        assert size(prompt) <= WINDOW
        assert "no such task" in words(prompt)


@pytest.mark.parametrize("stage", ["chat", "plan", "respond", "select"])
def test_the_fixed_part_comes_first_and_is_the_same_for_every_request(stage: str) -> None:
    """Providers cache the beginning of a prompt. (The paper's prompts are in the paper's order.)"""
    one = ask(stage, RunContext("one", specs=SMALL))
    other = ask(stage, RunContext("another", turns=CHAT[:2], specs=SMALL))
    assert one[0].text == other[0].text
    assert one[0].type == "system"
    assert one != other


def ask(stage: str, brief: RunContext) -> list[BaseMessage]:
    task = Task(task="object-detection", id=0, args={"image": f"{len(brief.request)}.jpg"})
    if stage == "plan":
        return PROMPTS.plan_messages(brief)
    if stage == "chat":
        return PROMPTS.chat_messages(brief)
    if stage == "select":
        return PROMPTS.select_messages(
            brief, task, [fake_candidate("object-detection", f"m{len(brief.turns)}")]
        )
    return PROMPTS.respond_messages(brief, Plan(tasks=[task]), [detection(2)])
