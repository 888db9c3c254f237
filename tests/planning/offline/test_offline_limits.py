"""Requests of any length are planned in bounded time, and planning can be cancelled."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest
from cost import cost_of

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.offline import OfflinePlanner

PLANNER = OfflinePlanner(settings=Settings(offline=True))
LETTERS = 10_000
PASTED = {
    "blanks": ("describe{} a.jpg", " "),
    "line breaks": ("describe{} a.jpg", "\n \n"),
    "prose": ("{} Summarize this.", "The bridge was closed on Monday and no one knew when it would open. "),
    "one sentence": ("Summarize {}", "the bridge was closed on monday and no one knew when it would open, "),
    "no spaces": ("describe {}", "x"),
    "numbers": ("add {}", "12 "),
    "commas": ("describe {}", ", "),
    "quotation marks": ("say {}", "' "),
    "opening quotation marks": ("say {}", "“"),
    "questions": ("{} why", "question: "),
    "a repeated verb": ("{}", "translate "),
    "a repeated join": ("{}", "then, "),
    "a repeated wish": ("{}", "make an image and "),
    "files": ("{}", "describe a.jpg and "),
    "Chinese": ("请总结{}", "老桥在周一因维修而关闭，没人知道什么时候会重新开放。"),
    "Chinese without punctuation": ("{}", "把图片里的文字读出来"),
}
HOSTILE = {
    "files": "f{}.jpg ",
    "texts": '"text {}" ',
    "orders": "draw fox {}. ",
    "Chinese": "描述第{}张图片，",
}
BOOK = "The sea was calm and the ships lay still in the harbour. " * 2000

pytestmark = pytest.mark.starter


def cost(value: Any) -> int:
    return cost_of(lambda: PLANNER.invoke(value))


@pytest.mark.timeout(180)
def test_the_cost_of_planning_grows_no_faster_than_the_text() -> None:
    PLANNER.invoke("describe a.jpg")
    costs = {
        name: [cost(around.format(piece * (letters // len(piece)))) for letters in (LETTERS, 4 * LETTERS)]
        for name, (around, piece) in PASTED.items()
    }
    assert not {name: pair for name, pair in costs.items() if pair[1] > 8 * pair[0]}


def test_the_cost_of_planning_is_bounded_for_very_many_steps_and_turns() -> None:
    costs = {
        name: [cost("".join(map(piece.format, range(count)))) for count in (3_000, 9_000)]
        for name, piece in HOSTILE.items()
    }
    assert not {name: pair for name, pair in costs.items() if pair[1] > 3 * pair[0]}
    turns = [ChatTurn(f"what is in photo {number}.jpg", "A fox.") for number in range(2_000)]
    request = "Describe it, then read the text aloud"
    few, many = ({"input": request, "chat_history": chat} for chat in (turns[:500], turns))
    assert cost(many) <= 5 * cost(few)


def test_a_plan_says_what_was_not_read_or_not_planned() -> None:
    made = PLANNER.invoke(f"Describe a.jpg. {BOOK}\nTranslate 'good morning' into French.")
    assert [task.task for task in made.tasks] == ["image-to-text", "translation"]
    assert "only the first and the last 5,000 of its 114,0" in made.notes[0]
    made = PLANNER.invoke(" ".join(f"Describe {n}.jpg." for n in range(60)))
    assert len(made.tasks) == 50
    assert "first 50 of 60 steps" in made.notes[0]
    texts = " ".join(f'"text {number}"' for number in range(270))
    made = PLANNER.invoke(f"Translate {texts} into French")
    assert len(made.tasks) == 256
    assert made.notes == ["tasks left out: 14, since a plan has at most 256"]


def test_a_quoted_or_pasted_book_is_worked_on_whole() -> None:
    chinese = "海面平静，船停在港口里。" * 2000
    rows = {
        f'Summarize "{BOOK}"': BOOK.strip(),
        f"请总结下面的文章：\n{chinese}": chinese,
        f"请总结下面的文章：{chinese}": chinese,
    }
    for request, text in rows.items():
        made = PLANNER.invoke(request)
        assert [(task.task, task.args) for task in made.tasks] == [("summarization", {"text": text})]
        assert not made.notes


async def test_a_cancelled_plan_ends_at_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, proceed, ended = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        proceed.wait(10.0)
        try:
            check_cancelled()
        except CancelledError:
            ended.set()
            raise

    monkeypatch.setattr("jarvis_agent.planning.offline.planner.check_cancelled", step)
    planning: asyncio.Task[Any] = asyncio.create_task(PLANNER.ainvoke("draw a fox"))
    await asyncio.to_thread(begun.wait, 10.0)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    proceed.set()
    assert await asyncio.to_thread(ended.wait, 10.0)
