"""Case studies of the HuggingGPT paper from end to end on models that run here: real code, real files.

The plans are scripted. The models are tiny and know nothing, so what the pictures show counts for nothing;
that every file is there, of its kind, and made of what it should be made of, does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenarios import SCENARIOS
from tiny_media import make_media

pytest.importorskip("torch")

from jarvis_agent import JarvisAgent, RegisteredSource, Run, Settings
from jarvis_agent.core.types import TaskResult
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.selection.sources.starter import StarterSource
from jarvis_agent.testing import ScriptedLLM, first_candidate

FEW = {"num_inference_steps": 2, "height": 32, "width": 32}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "openpose-control": ("vitpose", {}),
    "openpose-text-to-image": ("controlnet", FEW),
    "image-classification": ("vit", {}),
    "object-detection": ("detr", {}),
    "image-to-text": ("blip_caption", {}),
    "text-to-speech": ("vits", {}),
    "text-to-video": ("text_to_video", {**FEW, "num_frames": 8}),
}
"""By task: its tiny model and the options of its calls."""


@pytest.fixture(scope="module")
def models(built: Callable[[str], Path]) -> RegisteredSource:
    return RegisteredSource(
        {
            "id": f"tiny/{name}",
            "task": task,
            "path": built(name),
            "metadata": {"options": options} if options else {},
        }
        for task, (name, options) in MODELS.items()
    )


@pytest.fixture
def play(
    models: RegisteredSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, bool], Run]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "media").mkdir()
    make_media(tmp_path / "media")["photo"].rename(tmp_path / "example.jpg")
    settings = Settings(output_dir=tmp_path / "out", offline=True, device="cpu", retries=0)

    def play(name: str, by_report: bool) -> Run:
        script = {"plan": SCENARIOS[name].written, "select": first_candidate}
        if not by_report:
            script["respond"] = answer_with_paths
        sources = [models, StarterSource(settings)]
        with JarvisAgent(model=ScriptedLLM(script), sources=sources, settings=settings) as agent:
            return agent.invoke(SCENARIOS[name].request)

    return play


def answer_with_paths(messages: Any) -> str:
    """An answer that names each file of the results, and one that there is not."""
    prompt = "\n".join(str(message.text) for message in messages)
    results = re.search(r"<results>\n(.*?)\n</results>", prompt, re.DOTALL)
    assert results is not None
    paths = re.findall(r'"([^"\s]+\.(?:png|wav|mp4))"', results[1])
    return "Here: " + ", ".join(dict.fromkeys(paths)) + " and nowhere/made-up.png"


def made(run: Run) -> dict[str, TaskResult]:
    """The results by task, all of which went well."""
    assert [(result.task.task, result.error) for result in run.results if result.error] == []
    return {result.task.task: result for result in run.results}


def kinds(result: TaskResult) -> set[str]:
    """The media types of the files that a task made, by their content."""
    return {detect_media_type(path)[1] for path in result.paths()}


def named(run: Run) -> set[Path]:
    """The files that the answer names."""
    return {Path(word) for word in re.findall(r"(?<!\w)/[^\s,:()]+\.(?:png|wav|mp4)", run.answer)}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("by_report", [False, True], ids=["by-the-model", "by-the-report"])
def test_the_girl_in_the_boys_pose_is_drawn_looked_at_described_and_spoken_of(
    play: Callable[[str, bool], Run], by_report: bool
) -> None:
    run = play("girl-in-the-boys-pose", by_report)
    results = made(run)
    assert len(results) == 6
    assert {task: result.model for task, result in results.items()} == {
        task: f"tiny/{MODELS[task][0]}" for task in results
    }
    for task in ("openpose-control", "openpose-text-to-image", "object-detection"):
        assert kinds(results[task]) == {"image/png"}
    picture = results["openpose-text-to-image"].resource("image")
    seen = results["object-detection"].resource("image")
    assert picture is not None
    assert seen is not None
    assert picture.to_pil().size == seen.to_pil().size
    assert [row["label"] for row in results["image-classification"].output]
    assert results["image-to-text"].resource("text") is not None
    assert kinds(results["text-to-speech"]) == {"audio/x-wav"}
    assert results["text-to-speech"].output["duration"] > 0
    assert named(run) == {path for result in run.results for path in result.paths()}
    assert by_report or "made-up.png (no such file)" in run.answer
    assert all(path.is_file() for path in named(run))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("by_report", [False, True], ids=["by-the-model", "by-the-report"])
def test_the_dubbed_video_has_pictures_and_the_speech(
    play: Callable[[str, bool], Run], by_report: bool
) -> None:
    import av

    run = play("dubbed-video", by_report)
    results = made(run)
    video, speech = results["text-to-video"], results["text-to-speech"]
    dubbed = results["combine-video-audio"].resource("video")
    assert dubbed is not None
    assert detect_media_type(dubbed.path)[0] == "video"
    assert kinds(video) == kinds(results["combine-video-audio"])
    with av.open(dubbed.path) as film:
        pictures, sound = film.streams.video[0], film.streams.audio[0]
        assert (pictures.codec_context.name, sound.codec_context.name) == ("h264", "aac")
        assert sum(1 for _ in film.decode(video=0)) == 8
    with av.open(dubbed.path) as film:
        heard = sum(frame.samples for frame in film.decode(audio=0)) / film.streams.audio[0].rate
    assert heard == pytest.approx(speech.output["duration"], abs=0.15)
    assert named(run) == {path for result in run.results for path in result.paths()}
    assert by_report or "made-up.png (no such file)" in run.answer
    assert all(path.is_file() for path in named(run))
