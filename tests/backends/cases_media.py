"""Cases for tests/test_every_task.py: media. No model is needed; PyAV and Pillow do it."""

from __future__ import annotations

import wave

from task_case import Artifact, Case, files

PHOTO, CLIP = {"image": "@photo"}, {"video": "@clip"}
BOX = {"label": "cat", "score": 0.9, "box": {"xmin": 8, "ymin": 4, "xmax": 40, "ymax": 36}}


def is_dubbed(artifact: Artifact) -> None:
    """The clip's sixteen pictures in H.264 with two seconds of sound in AAC."""
    import av

    (path,) = files(artifact, "video")
    with av.open(path) as made:
        assert [stream.codec_context.name for stream in made.streams] == ["h264", "aac"]
        heard = sum(frame.samples for frame in made.decode(audio=0)) / made.streams.audio[0].rate
    with av.open(path) as made:
        assert sum(1 for _ in made.decode(video=0)) == 16
    assert abs(heard - 2) < 0.3
    assert (artifact["output"]["width"], artifact["output"]["height"]) == (64, 48)
    assert abs(artifact["output"]["duration"] - 2) < 0.3


def is_the_sound_of_the_clip(artifact: Artifact) -> None:
    """Two seconds at the rate of the clip, and not silent."""
    (path,) = files(artifact, "audio")
    with wave.open(str(path)) as heard:
        rate, length = heard.getframerate(), heard.getnframes()
        samples = heard.readframes(length)
    assert rate == artifact["output"]["sampling_rate"] == 8_000
    assert abs(length / rate - 2) < 0.3
    assert any(samples)


def are_three_frames(artifact: Artifact) -> None:
    """Pictures of the clip's size in the order of time; it grows brighter from one to the next."""
    from PIL import Image

    output = artifact["output"]
    assert [round(row["time"], 2) for row in output] == [0.25, 1.0, 1.62]
    assert [row["image"] for row in output] == [str(path) for path in files(artifact, "image")]
    shades = []
    for row in output:
        with Image.open(row["image"]) as frame:
            assert frame.size == (64, 48)
            shades.append(frame.convert("L").getpixel((32, 24)))
    assert shades == sorted(set(shades))


def is_half_as_large(artifact: Artifact) -> None:
    """Half the width was asked for; the height follows."""
    from PIL import Image

    (path,) = files(artifact, "image")
    with Image.open(path) as made:
        assert made.size == (32, 24)


def is_the_part_in_the_box(artifact: Artifact) -> None:
    """The very pixels of the photo that lie in the box."""
    import numpy as np
    from PIL import Image

    photo = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    (path,) = files(artifact, "image")
    with Image.open(path) as made:
        assert np.array_equal(np.asarray(made), photo[4:36, 8:40])


CASES: list[Case] = [
    Case("combine-video-audio", CLIP | {"audio": "@tone"}, is_dubbed),
    Case("extract-audio", CLIP, is_the_sound_of_the_clip),
    Case("extract-frames", CLIP | {"count": 3}, are_three_frames),
    Case("resize-image", PHOTO | {"width": 32}, is_half_as_large),
    Case("crop-image", PHOTO | {"box": [BOX]}, is_the_part_in_the_box),
]
