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
# A request, the part that is repeated in it (with its number), and how often in the shorter request.
REPEATED = [
    ("describe{} a.jpg", " ", 1000),
    ("describe{} a.jpg", "\n \n", 333),
    ("{} Summarize this.", "The bridge was closed on Monday and no one knew when it would open. ", 14),
    ("Summarize {}", "the bridge was closed on monday and no one knew when it would open, ", 14),
    ("describe {}", "x", 1000),
    ("add {}", "12 ", 333),
    ("describe {}", ", ", 500),
    ("say {}", "' ", 500),
    ("say {}", "“", 1000),
    ("{} why", "question: ", 100),
    ("{}", "translate ", 100),
    ("{}", "then, ", 166),
    ("{}", "make an image and ", 4),
    ("{}", "describe a.jpg and ", 4),
    ("请总结{}", "老桥在周一因维修而关闭，没人知道什么时候会重新开放。", 10),
    ("{}", "把图片里的文字读出来", 100),
    ("{}", "f%d.jpg ", 25),
    ("{}", '"text %d" ', 100),
    ("{}", "draw fox %d. ", 4),
    ("{}", "描述第%d张图片，", 50),
]
BOOK = "The sea was calm and the ships lay still in the harbour. " * 2000

pytestmark = pytest.mark.starter


def cost(around: str, piece: str, count: int) -> int:
    request = around.format("".join(piece.replace("%d", str(number)) for number in range(count)))
    return cost_of(lambda: PLANNER.invoke(request))


def test_the_cost_of_planning_grows_no_faster_than_the_request() -> None:
    PLANNER.invoke("describe a.jpg")
    costs = {row[:2]: [cost(*row), cost(*row[:2], 4 * row[2])] for row in REPEATED}
    assert not {row: pair for row, pair in costs.items() if pair[1] > 10 * pair[0]}


def test_the_cost_of_planning_a_very_long_request_or_chat_is_bounded() -> None:
    long = [
        ("Summarize {}", BOOK[:57], 200),
        ("{}", "把图片里的文字读出来", 1000),
        ("{}", '"text %d" ', 2000),
    ]
    costs = {row[:2]: [cost(*row), cost(*row[:2], 4 * row[2])] for row in long}
    assert not {row: pair for row, pair in costs.items() if pair[1] > 3 * pair[0]}
    turns = [ChatTurn(f"what is in photo {number}.jpg", "A fox.") for number in range(2_000)]
    given = {"input": "Describe it, then read the text aloud"}
    few, many = (
        cost_of(lambda chat=chat: PLANNER.invoke({**given, "chat_history": chat}))  # type: ignore[misc]
        for chat in (turns[:500], turns)
    )
    assert many <= 5 * few


def test_a_plan_says_what_was_not_read_or_not_planned() -> None:
    texts = " ".join(f'"text {number}"' for number in range(270))
    rows: list[tuple[str, int, str]] = [
        (
            f"Describe a.jpg. {BOOK}\nTranslate 'good morning' into French.",
            2,
            "only the first and the last 5,000 of its 114,0",
        ),
        (" ".join(f"Describe {n}.jpg." for n in range(60)), 50, "first 50 of 60 steps"),
        (f"Translate {texts} into French", 256, "tasks left out: 14, since a plan has at most 256"),
    ]
    for request, count, note in rows:
        made = PLANNER.invoke(request)
        assert len(made.tasks) == count
        assert note in made.notes[0]


def test_a_long_quoted_or_pasted_text_is_used_completely() -> None:
    chinese = "海面平静，船停在港口里。" * 2000
    rows = {f'Summarize "{BOOK}"': BOOK.strip(), f"请总结下面的文章：{chinese}": chinese}
    for request, text in {**rows, f"请总结下面的文章：\n{chinese}": chinese}.items():
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
