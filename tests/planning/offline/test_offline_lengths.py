"""Whatever somebody pastes is planned in a time that grows with its length, no faster."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cost import cost_of

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.request import ChatTurn, RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.evaluation.synthetic import toolkit
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.offline.lengths import MOST_LETTERS, MOST_READ, bounded, ends, single_spaced
from jarvis_agent.planning.offline.marks import mark
from jarvis_agent.planning.offline.steps import split
from jarvis_agent.planning.offline.workflow.classify import LONGEST
from jarvis_agent.planning.offline.workflow.mentions import MOST
from jarvis_agent.planning.offline.workflow.reader import read

PLANNER = OfflinePlanner(Settings(offline=True))
KIT = toolkit()
LETTERS = 10_000
FOUR_TIMES, A_MOMENT, TRIES = 8.0, 0.1, 3
"""How much longer a text of four times the length may take: linear time gives 4, the square of it 16. Seconds
below which nothing can be said."""

PASTED = {
    "blanks": ("describe{} a.jpg", " "),
    "blanks of all kinds": ("describe{} a.jpg", "\t \u00a0"),
    "line breaks": ("describe{} a.jpg", "\n \n"),
    "prose": ("{} Summarize this.", "The bridge was closed on Monday and nobody knew when it would open. "),
    "one sentence": ("Summarize {}", "the bridge was closed on monday and nobody knew when it would open, "),
    "no spaces": ("describe {}", "x"),
    "digits": ("add {}", "7"),
    "numbers": ("add {}", "12 "),
    "commas": ("describe {}", ", "),
    "full stops": ("describe {}", "."),
    "quotation marks": ("say {}", "' "),
    "opening quotation marks": ("say {}", "“"),
    "apostrophes": ("say {}", "'a "),
    "questions": ("{} why", "question: "),
    "a repeated verb": ("{}", "translate "),
    "a repeated join": ("{}", "then, "),
    "a repeated wish": ("{}", "make an image and "),
    "files": ("{}", "describe a.jpg and "),
    "Chinese": ("请总结{}", "老桥在周一因维修而关闭，没人知道什么时候会重新开放。"),
    "Chinese without punctuation": ("{}", "把图片里的文字读出来"),
    "one Chinese letter": ("{}", "画"),
}


class Blind:
    """Embeds every text as nothing, so that the time of rules alone is measured; counts the letters."""

    def __init__(self) -> None:
        self.letters = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.letters += sum(map(len, texts))
        return np.zeros((len(texts), 384), np.float32)


def seconds(around: str, piece: str, letters: int, plan: Callable[[RunContext], Any]) -> float:
    """Processor time of planning a request that has so many letters."""
    request = around.format(piece * (letters // len(piece)))
    brief = RunContext(request, tuple(named_files(request)), specs=TASKS)
    start = time.process_time()
    plan(brief)
    return time.process_time() - start


def is_linear(around: str, piece: str, plan: Callable[[RunContext], Any]) -> bool:
    """Whether four times the text takes less than eight times the time, at the best of a few tries."""
    for _ in range(TRIES):
        short, long = (seconds(around, piece, letters, plan) for letters in (LETTERS, 4 * LETTERS))
        if long < FOUR_TIMES * max(short, A_MOMENT):
            return True
    return False


@pytest.mark.starter
@pytest.mark.parametrize("name", PASTED)
def test_four_times_the_text_takes_about_four_times_the_time(name: str) -> None:
    assert is_linear(*PASTED[name], PLANNER._plan)


@pytest.mark.parametrize("name", PASTED)
def test_so_it_does_where_a_workflow_is_read(name: str) -> None:
    def plan(brief: RunContext) -> None:
        read(mark(brief.request, brief.files), replace(brief, specs=KIT), Blind())

    assert is_linear(*PASTED[name], plan)


@pytest.mark.parametrize("name", PASTED)
def test_of_a_long_text_no_more_is_embedded_than_of_a_long_request(name: str) -> None:
    around, piece = PASTED[name]
    request = around.format(piece * (4 * LETTERS // len(piece)))
    blind = Blind()
    read(mark(request, ()), RunContext(request, specs=KIT), blind)
    assert blind.letters <= MOST * LONGEST


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("describe     a", "describe a"),
        ("describe\t\u00a0 a", "describe a"),
        ("a.\n \n\n b", "a.\nb"),
        ("x" * MOST_LETTERS, "x" * MOST_LETTERS),
    ],
)
def test_only_runs_of_blanks_are_changed_in_what_people_write(text: str, found: str) -> None:
    assert bounded(single_spaced(text)) == found


@pytest.mark.parametrize("piece", ["x", "word ", "One sentence. ", "一句话。", "一个，", "1.", ", "])
def test_an_overlong_line_gets_breaks_and_loses_nothing_else(piece: str) -> None:
    text = (piece * 3 * MOST_LETTERS).strip()
    found = bounded(text)
    assert found.replace("\n", "") == text
    assert max(map(len, found.split("\n"))) <= MOST_LETTERS


def test_breaks_are_put_after_sentences_where_there_are_any() -> None:
    lines = bounded("Here is a sentence of a few words. " * 60).split("\n")
    assert all(line.rstrip().endswith(".") for line in lines if line.strip())


def test_of_an_overlong_text_the_beginning_and_the_end_are_read() -> None:
    middle = "word " * MOST_READ
    found = ends(f"First. {middle}Last.")
    assert found.startswith("First. word ")
    assert found.endswith(" word Last.")
    assert MOST_READ - 20 < len(found) <= MOST_READ
    assert set(found.split()) == {"First.", "word", "Last."}
    assert ends("x" * MOST_READ) == "x" * MOST_READ
    assert len(ends("x" * 3 * MOST_READ)) == MOST_READ + 1


def test_nothing_is_lost_of_an_overlong_text_with_few_blanks() -> None:
    first, middle, last = (
        "打开 a.jpg 并描述图片里的内容，",
        "海面平静，船停在港口里。" * MOST_READ,
        "请总结这篇文章，再翻译成 English",
    )
    found = ends(first + middle + last)
    assert found.startswith(first)
    assert found.endswith(last)
    assert len(found) == MOST_READ + 1


@pytest.mark.starter
async def test_orders_around_a_pasted_book_are_planned_and_the_plan_says_what_was_not_read() -> None:
    book = "The sea was calm and the ships lay still in the harbour. " * 2000
    request = f"Describe a.jpg. {book}\nTranslate 'good morning' into French."
    brief = RunContext(request, tuple(named_files(request)), specs=TASKS)
    plan = await PLANNER.plan(brief, lambda task: None)
    assert [task.task for task in plan.tasks] == ["image-to-text", "translation"]
    assert "only the first and the last 5,000 of its 114,0" in plan.notes[0]


@pytest.mark.starter
async def test_a_quoted_book_is_worked_on_whole() -> None:
    book = "The sea was calm and the ships lay still in the harbour. " * 2000
    plan = await PLANNER.plan(RunContext(f'Summarize "{book}"', specs=TASKS), lambda task: None)
    assert [(task.task, task.args) for task in plan.tasks] == [("summarization", {"text": book.strip()})]
    assert not plan.notes


@pytest.mark.starter
@pytest.mark.parametrize("order", ["请总结下面的文章：\n", "请总结下面的文章："])
async def test_a_chinese_text_that_was_pasted_below_its_order_is_worked_on_whole(order: str) -> None:
    text = "海面平静，船停在港口里。" * 2000
    plan = await PLANNER.plan(RunContext(order + text, specs=TASKS), lambda task: None)
    assert [(task.task, task.args) for task in plan.tasks] == [("summarization", {"text": text})]
    assert not plan.notes


@pytest.mark.starter
async def test_a_plan_has_no_more_tasks_than_a_plan_may_have() -> None:
    texts = " ".join(f'"text {number}"' for number in range(270))
    plan = await PLANNER.plan(RunContext(f"Translate {texts} into French", specs=TASKS), lambda task: None)
    assert len(plan.tasks) == 256
    assert plan.notes == ["tasks left out: 14, since a plan has at most 256"]


HOSTILE = {
    "files": "f{}.jpg ",
    "texts": '"text {}" ',
    "words": "sumarize{} ",
    "orders": "draw fox {}. ",
    "Chinese": "描述第{}张图片，",
}


@pytest.mark.starter
@pytest.mark.parametrize("name", HOSTILE)
def test_what_planning_costs_does_not_grow_with_a_text_that_no_plain_request_has(name: str) -> None:
    def cost(count: int) -> int:
        request = "".join(HOSTILE[name].format(number) for number in range(count))
        brief = RunContext(request, tuple(named_files(request)), specs=TASKS)
        return cost_of(lambda: PLANNER._plan(brief))

    cost(10)
    assert cost(9_000) <= 2 * cost(3_000)


@pytest.mark.starter
def test_what_planning_costs_grows_as_the_chat_before_it() -> None:
    def cost(count: int) -> int:
        turns = tuple(ChatTurn(f"what is in photo {number}.jpg", "A fox.") for number in range(count))
        return cost_of(
            lambda: PLANNER._plan(
                RunContext("Describe it, then read the text aloud", turns=turns, specs=TASKS)
            )
        )

    cost(10)
    assert cost(2_000) <= 5 * cost(500)


@pytest.mark.starter
def test_a_long_chain_of_repeated_turns_is_no_fault() -> None:
    turns = tuple(ChatTurn("and in Italian?", "Buongiorno") for _ in range(3_000))
    first = ChatTurn("Translate 'good morning' into French", "Bonjour")
    for count, text in ((10, "good morning"), (3_000, "Buongiorno")):
        plan = PLANNER._plan(RunContext("and in Spanish?", turns=(first, *turns[:count]), specs=TASKS))
        assert [task.args for task in plan.tasks] == [{"text": text, "tgt_lang": "es"}]


@pytest.mark.starter
async def test_planning_that_nobody_waits_for_ends_at_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def waits(sentence: str) -> list[Any]:
        begun.set()
        may_go_on.wait(10.0)
        return split(sentence)

    def steps_on() -> None:
        try:
            check_cancelled()
        except CancelledError:
            ended.set()
            raise

    monkeypatch.setattr("jarvis_agent.planning.offline.split", waits)
    monkeypatch.setattr("jarvis_agent.planning.offline.wordings.go_on", steps_on)
    planning = asyncio.create_task(PLANNER.plan(RunContext("draw a fox", specs=TASKS), lambda task: None))
    await asyncio.to_thread(begun.wait, 10.0)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    may_go_on.set()
    assert await asyncio.to_thread(ended.wait, 10.0)
