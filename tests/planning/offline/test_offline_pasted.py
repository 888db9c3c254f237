"""A text that is pasted into a request is what the task works on, and no order itself."""

from __future__ import annotations

import pytest

from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.offline.pasted import above, below
from jarvis_agent.planning.plan import Plan

PLANNER = OfflinePlanner(Settings(offline=True))
LETTER = "Hi Bob, please draw a cat and send it to me. Thanks!"
NEWS = "The bridge was closed on Monday. Nobody knew why it happened."


async def plan(request: str) -> Plan:
    return await PLANNER.plan(
        RunContext(request, tuple(named_files(request)), specs=TASKS), lambda task: None
    )


@pytest.mark.starter
@pytest.mark.parametrize(
    ("request_", "tasks"),
    [
        (f"Summarize the email below.\n\n{LETTER}", [("summarization", LETTER)]),
        (f"Please summarize this letter:\n\n{LETTER}", [("summarization", LETTER)]),
        (f"{NEWS} Summarize this.", [("summarization", NEWS)]),
        (f"{NEWS}\n\nCan you read that aloud?", [("text-to-speech", NEWS)]),
        (
            f"Summarize the text below.\n\n{NEWS}\n\nThen read the summary aloud.",
            [("summarization", NEWS), ("text-to-speech", "<resource>-0")],
        ),
        ("请翻译成英文：今天天气很好。", [("translation", "今天天气很好。")]),
        (
            "请总结这段文字:老桥在周一关闭，没人知道原因。",
            [("summarization", "老桥在周一关闭，没人知道原因。")],
        ),
        ("总结一下：老桥在周一因维修而关闭。", [("summarization", "老桥在周一因维修而关闭。")]),
        ("朗读：欢迎光临。", [("text-to-speech", "欢迎光临。")]),
        ("翻译成英文：你好。然后朗读出来", [("translation", "你好"), ("text-to-speech", "<resource>-0")]),
    ],
)
async def test_what_is_pasted_is_worked_on(request_: str, tasks: list[tuple[str, str]]) -> None:
    made = await plan(request_)
    assert [(task.task, task.args["text"]) for task in made.tasks] == tasks


@pytest.mark.parametrize(
    "request_",
    [
        "Do the steps below.\n\nDescribe a.jpg.\n\nTranslate it.",
        "Write a poem.\n\nTranslate it to French.",
        "Summarize this article.\n\nTranslate it to French.",
        "The text is in French.",
    ],
)
def test_orders_in_paragraphs_are_no_pasted_text(request_: str) -> None:
    assert below(request_) is None


@pytest.mark.parametrize(
    "request_",
    [
        "I have a long article about old bridges and boats. Summarize this.",
        "Draw a cat on a red sofa in a big room. Then describe it.",
        "Thanks for the picture that you made. Translate that.",
        "Nice. Summarize this.",
        "It looks much nicer than the first one did. Describe it.",
        "Great work on the picture that you made. Now describe it.",
        "The bridge was closed on Monday and nobody knew why.",
    ],
)
def test_what_the_user_has_or_wants_is_no_pasted_text(request_: str) -> None:
    assert above(request_) is None
