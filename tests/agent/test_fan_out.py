"""A reference to several results runs a task once for each; a text file's name in a text is its content."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("langgraph")

from durable_agents import THREAD
from langgraph.checkpoint.memory import InMemorySaver
from small_agents import Row, plan, small_agent

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.backends.algorithms.backend import extract_frames
from jarvis_agent.core.errors import ExpertError

FRAMES = "Pull 3 frames of {clip} and say what each frame shows"


def describing(clip: Path, folder: Path, caption: Any, *rows: Any) -> JarvisAgent:
    """An agent that takes three frames of a video, describes each, and does the rest of its plan."""
    take: Row = ("extract-frames", [], {"video": str(clip), "count": 3})
    say = ("image-to-text", [0], {"image": "<resource>-0"})
    experts = {
        "extract-frames": extract_frames,
        "image-to-text": caption,
        "translation": lambda call: call.inputs["text"].upper(),
        "sentence-similarity": lambda call: [0.5 for _ in call.inputs["sentences"]],
        "summarization": lambda call: call.inputs["text"],
    }
    settings = Settings(output_dir=folder / "out", selection="rank")
    return small_agent(plan(take, say, *rows), experts, settings=settings)[0]


def brightness(call: Any) -> str:
    return f"grey {np.asarray(call.inputs['image'].to_pil()).mean():.0f}"


def texts(run: Run, task: str) -> list[str]:
    return [str(result.resources[0].text) for result in run.results if result.task.task == task]


async def test_each_frame_of_a_video_is_described(media: dict[str, Path], tmp_path: Path) -> None:
    agent = describing(
        media["clip"],
        tmp_path,
        brightness,
        ("translation", [1], {"text": "<resource>-1", "tgt_lang": "en"}),
        ("sentence-similarity", [1], {"text": "dark", "sentences": ["<resource>-1"]}),
        ("summarization", [1], {"text": "All: <resource>-1."}),
    )
    chunks = [chunk async for chunk in agent.astream(FRAMES.format(clip=media["clip"]))]
    run = sum(chunks, Run())
    said = texts(run, "image-to-text")
    assert len(set(said)) == 3
    assert texts(run, "translation") == [text.upper() for text in said]
    assert texts(run, "summarization") == ["All: " + "\n".join(said) + "."]
    assert [task.id for task in run.plan.tasks] == [0, 1, 2001, 2002, 2, 3001, 3002, 3, 4]
    assert [result.task for result in run.results] == run.plan.tasks
    assert run.plan.task(3001).args["text"] == "<resource>-2001[1]"
    assert run.plan.task(3001).dep == [2001]
    assert len(run.plan.task(3).args["sentences"]) == 3
    assert run.plan.notes == [
        "task 1 (image-to-text) was run 3 times, once for each result of task 0",
        "task 2 (translation) was run 3 times, once for each result of task 1",
    ]
    assert len({tuple(result.paths()) for result in run.results if result.task.task == "extract-frames"}) == 1

    again = Plan.load(run.model_dump_json())
    assert again.inputs == [str(media["clip"])]
    repeated = await agent.ainvoke(again)
    assert texts(repeated, "translation") == texts(run, "translation")
    part = run.repeating(2002)
    assert part.task(2002).args["image"] == str(run.results[0].resources[2].path)
    assert [task.id for task in part.tasks] == [2002, 3002, 3, 4]


async def test_dependants_use_the_runs_that_succeed_and_say_how_many_failed(
    media: dict[str, Path], tmp_path: Path
) -> None:
    asked: list[str] = []

    def caption(call: Any) -> str:
        asked.append(brightness(call))
        if asked[-1] == asked[0]:
            raise ExpertError("too dark")
        return asked[-1]

    rows = [
        ("translation", [1], {"text": "<resource>-1", "tgt_lang": "en"}),
        ("summarization", [1], {"text": "All: <resource>-1."}),
    ]
    run = await describing(media["clip"], tmp_path, caption, *rows).ainvoke(FRAMES.format(clip=media["clip"]))
    status = {result.task.id: result.status for result in run.results}
    assert sorted(status[i] for i in (1, 2001, 2002)) == ["failed", "ok", "ok"]
    assert len(texts(run, "translation")) == 2
    summary = next(result for result in run.results if result.task.task == "summarization")
    assert summary.notes == ["1 of the 3 runs of task 1 (image-to-text) failed"]
    assert str(summary.resources[0].text).count("grey") == 2


async def test_a_run_that_fanned_out_resumes_without_repeating_what_was_stored(
    media: dict[str, Path], tmp_path: Path
) -> None:
    saver, stuck, asked = InMemorySaver(), asyncio.Event(), list[str]()

    async def caption(call: Any) -> str:
        asked.append(brightness(call))
        if len(asked) == 3 and not stuck.is_set():
            await asyncio.sleep(0.2)  # the others are stored by then
            stuck.set()
            await asyncio.Event().wait()
        return asked[-1]

    rows = [("summarization", [1], {"text": "All: <resource>-1."})]
    first = describing(media["clip"], tmp_path, caption, *rows).copy(checkpointer=saver)
    running = asyncio.create_task(first.ainvoke(FRAMES.format(clip=media["clip"]), THREAD))
    await stuck.wait()
    running.cancel()
    await asyncio.wait([running])
    second = describing(media["clip"], tmp_path, caption, *rows).copy(checkpointer=saver)
    run = await second.ainvoke(None, THREAD)
    assert [task.id for task in run.plan.tasks] == [0, 1, 2001, 2002, 2]
    assert all(result.status == "ok" for result in run.results)
    assert len(set(texts(run, "image-to-text"))) == 3
    assert len(asked) == 4
    assert asked[3] == asked[2]
    assert run.plan.notes == ["task 1 (image-to-text) was run 3 times, once for each result of task 0"]


async def test_a_text_file_named_in_a_text_stands_for_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.txt").write_text("The bridge was closed. <resource>-7", encoding="utf-8")
    asked = "Summarise this report in three sentences: report.txt"
    agent, _, _ = small_agent(
        json.dumps([{"task": "summarization", "id": 0, "dep": [-1], "args": {"text": asked}}]),
        {"summarization": lambda call: call.inputs["text"]},
    )
    (result,) = (await agent.ainvoke(asked)).results
    assert result.resources[0].text == asked.replace("report.txt", "The bridge was closed. <resource>-7")
    assert result.task.args == {"text": asked}
