"""Requests for several things at once become graphs: fans, joins, and tasks beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.request import ChatTurn, RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.offline import OfflinePlanner

PLANNER = OfflinePlanner(Settings(offline=True))

pytestmark = pytest.mark.starter


async def graph(request: str, *turns: ChatTurn) -> list[tuple[str, dict[str, Any]]]:
    brief = RunContext(request, tuple(named_files(request)), turns=turns, specs=TASKS)
    made = await PLANNER.plan(brief, lambda task: None)
    return [(task.task, task.args) for task in made.tasks]


GRAPHS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "Transcribe a.mp3, summarise it, and also list the people mentioned.": [
        ("automatic-speech-recognition", {"audio": "a.mp3"}),
        ("summarization", {"text": "<resource>-0"}),
        ("token-classification", {"text": "<resource>-0"}),
    ],
    "summarise a.txt and also translate it into Finnish": [
        ("summarization", {"text": "a.txt"}),
        ("translation", {"text": "a.txt", "tgt_lang": "fi"}),
    ],
    "summarise a.txt, then translate it into Finnish": [
        ("summarization", {"text": "a.txt"}),
        ("translation", {"text": "<resource>-0", "tgt_lang": "fi"}),
    ],
    "Make a video of a train, generate some train sounds and combine them": [
        ("text-to-video", {"text": "a train"}),
        ("text-to-audio", {"text": "some train sounds"}),
        ("combine-video-audio", {"video": "<resource>-0", "audio": "<resource>-1"}),
    ],
    "Animate fox.png and add a sound of wind to the clip.": [
        ("image-to-video", {"image": "fox.png"}),
        ("text-to-audio", {"text": "wind"}),
        ("combine-video-audio", {"video": "<resource>-0", "audio": "<resource>-1"}),
    ],
    "Read a.png and b.png aloud, then translate both texts into Dutch": [
        ("image-to-text", {"image": "a.png"}),
        ("image-to-text", {"image": "b.png"}),
        ("text-to-speech", {"text": "<resource>-0"}),
        ("text-to-speech", {"text": "<resource>-1"}),
        ("translation", {"text": "<resource>-0", "tgt_lang": "nl"}),
        ("translation", {"text": "<resource>-1", "tgt_lang": "nl"}),
    ],
    "Segment a.jpg and use the segmentation to paint 'a city of cardboard'": [
        ("image-segmentation", {"image": "a.jpg"}),
        ("seg-text-to-image", {"text": "a city of cardboard", "image": "<resource>-0"}),
    ],
    "转写 a.mp3，根据转写稿分别做摘要和情感分析": [
        ("automatic-speech-recognition", {"audio": "a.mp3"}),
        ("summarization", {"text": "<resource>-0"}),
        ("text-classification", {"text": "<resource>-0"}),
    ],
    "给 a.mp4 配上“欢迎”这句话的语音": [
        ("text-to-speech", {"text": "欢迎"}),
        ("combine-video-audio", {"video": "a.mp4", "audio": "<resource>-0"}),
    ],
}


@pytest.mark.parametrize("request_", GRAPHS)
async def test_several_things_are_planned_as_they_hang_together(request_: str) -> None:
    assert await graph(request_) == GRAPHS[request_]


async def test_one_of_several_results_is_meant_by_its_place() -> None:
    files = [Resource(kind="image", name=name, path=Path("/out") / name) for name in ("red.png", "blue.png")]
    turn = ChatTurn("draw a red house and a blue house", "Here they are.", tuple(files))
    assert await graph("describe the second one", turn) == [("image-to-text", {"image": "/out/blue.png"})]


async def test_an_answer_in_words_is_what_a_bare_wish_is_about() -> None:
    turn = ChatTurn("describe a.jpg", "Two children on a beach.", tuple(named_files("a.jpg")))
    assert await graph("translate it into Thai", turn) == [
        ("translation", {"text": "Two children on a beach.", "tgt_lang": "th"})
    ]


async def test_slips_do_not_matter() -> None:
    assert await graph("pls trasncribe a.wav n sumarize it") == [
        ("automatic-speech-recognition", {"audio": "a.wav"}),
        ("summarization", {"text": "<resource>-0"}),
    ]
