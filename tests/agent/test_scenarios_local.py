"""Case studies of the HuggingGPT paper on models that run here: real code and files.

The plans are scripted. The models are tiny and untrained, so only the files are checked: each exists, has the
right type, and is made from the right input.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from libraries import needs
from scenarios import SCENARIOS
from tiny_media import make_media

from jarvis_agent import JarvisAgent, RegisteredSource, Settings
from jarvis_agent.core.types import TaskResult
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.selection.sources.starter import StarterSource
from jarvis_agent.testing import ScriptedLLM, first_candidate

needs("torch")

pytestmark = pytest.mark.slow

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
        {"id": f"tiny/{name}", "task": task, "path": built(name), "metadata": {"options": options}}
        for task, (name, options) in MODELS.items()
    )


Play = Callable[[str], dict[str, TaskResult]]


@pytest.fixture
def play(models: RegisteredSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a scenario; its answer names all files and no other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "media").mkdir()
    make_media(tmp_path / "media")["photo"].rename(tmp_path / "example.jpg")
    settings = Settings(output_dir=tmp_path / "out", offline=True, device="cpu")

    def play(name: str) -> dict[str, TaskResult]:
        script = {"plan": SCENARIOS[name].written, "select": first_candidate, "respond": answer_with_paths}
        sources = [models, StarterSource(settings)]
        pins = {"image-classification": "tiny/vit", "text-to-speech": "tiny/vits"}
        llm = ScriptedLLM(script)
        with JarvisAgent(model=llm, sources=sources, models=pins, settings=settings) as agent:
            run = agent.invoke(SCENARIOS[name].request)
        assert [(result.task.task, result.error) for result in run.results if result.error] == []
        named = {Path(word) for word in re.findall(r"(?<!\w)/[^\s,:()]+\.(?:png|wav|mp4)", run.answer)}
        made, invented = {path for result in run.results for path in result.paths()}, tmp_path / INVENTED
        assert named == {*made, invented}
        assert all(path.is_file() for path in made)
        assert f"{invented} (no such file)" in run.answer
        return {result.task.task: result for result in run.results}

    return play


INVENTED = "out/made-up.png"


def answer_with_paths(messages: Any) -> str:
    """An answer that names each file of the results, and one that does not exist."""
    prompt = "\n".join(str(message.text) for message in messages)
    results = re.search(r"<results>\n(.*?)\n</results>", prompt, re.DOTALL)
    assert results is not None
    paths = re.findall(r'"([^"\s]+\.(?:png|wav|mp4))"', results[1])
    return "Here: " + ", ".join(dict.fromkeys(paths)) + f" and {Path(INVENTED).absolute()}"


def types(result: TaskResult) -> set[str]:
    """The media types of a task's files, by their content."""
    return {detect_media_type(path)[1] for path in result.paths()}


def test_an_image_in_a_pose_is_generated_described_and_read_aloud(play: Play) -> None:
    results = play("girl-in-the-boys-pose")
    assert len(results) == 6
    assert {task: result.model for task, result in results.items()} == {
        task: f"tiny/{MODELS[task][0]}" for task in results
    }
    for task in ("openpose-control", "openpose-text-to-image", "object-detection"):
        assert types(results[task]) == {"image/png"}
    generated = results["openpose-text-to-image"].resource("image")
    annotated = results["object-detection"].resource("image")
    assert generated is not None
    assert annotated is not None
    assert generated.to_pil().size == annotated.to_pil().size
    assert [row["label"] for row in results["image-classification"].output]
    assert results["image-to-text"].resource("text") is not None
    assert types(results["text-to-speech"]) == {"audio/wav"}
    assert results["text-to-speech"].output["duration"] > 0


def test_a_dubbed_video_has_the_frames_and_the_speech(play: Play) -> None:
    import av

    results = play("dubbed-video")
    dubbed = results["combine-video-audio"].resource("video")
    assert dubbed is not None
    assert detect_media_type(dubbed.path)[0] == "video"
    assert types(results["text-to-video"]) == types(results["combine-video-audio"])
    with av.open(dubbed.path) as film:
        video, audio = film.streams.video[0], film.streams.audio[0]
        assert (video.codec_context.name, audio.codec_context.name) == ("h264", "aac")
        assert sum(1 for _ in film.decode(video=0)) == 8
    with av.open(dubbed.path) as film:
        heard = sum(frame.samples for frame in film.decode(audio=0)) / film.streams.audio[0].rate
    assert heard == pytest.approx(results["text-to-speech"].output["duration"], abs=0.15)
