"""Media tools: files in, files out, without a model."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.media.media_tools import MEDIA_TOOLS
from jarvis_agent.errors import BadInputError
from jarvis_agent.media import sniff, write_audio
from jarvis_agent.settings import Settings
from jarvis_agent.tools.table import TASKS
from jarvis_agent.types import Candidate, Resource


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A second of 16 x 16 pictures at 10 a second."""
    path = tmp_path / "film.mp4"
    with av.open(path, "w") as made:
        stream = made.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 16
        for shade in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((16, 16, 3), 20 * shade, np.uint8), format="rgb24")
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    return path


@pytest.fixture
def tone(tmp_path: Path) -> Path:
    path = tmp_path / "tone.wav"
    write_audio(path, np.sin(np.arange(16_000) / 10) / 2, 16_000)
    return path


def call(tmp_path: Path, video: Path, audio: Path) -> Call:
    return Call(
        spec=TASKS["combine-video-audio"],
        candidate=Candidate(id="pyav/combine", task="combine-video-audio"),
        inputs={"video": Resource(kind="video", path=video), "audio": Resource(kind="audio", path=audio)},
        new_path=lambda suffix: tmp_path / f"made{suffix}",
        settings=Settings(),
    )


def test_a_dubbed_video_has_the_pictures_of_one_and_the_sound_of_the_other(tmp_path, film, tone):
    made = MEDIA_TOOLS["combine-video-audio"].work(call(tmp_path, film, tone))
    assert sniff(made) == ("video", "video/mp4")
    with av.open(made) as found:
        assert sum(1 for _ in found.decode(video=0)) == 10
    with av.open(made) as found:
        samples = sum(frame.samples for frame in found.decode(audio=0))
        rate = found.streams.audio[0].rate
    assert samples / rate == pytest.approx(1.0, abs=0.2)


def test_what_holds_no_pictures_is_refused_and_leaves_no_file(tmp_path, tone):
    with pytest.raises(BadInputError, match="can not be combined"):
        MEDIA_TOOLS["combine-video-audio"].work(call(tmp_path, tone, tone))
    assert not (tmp_path / "made.mp4").exists()
