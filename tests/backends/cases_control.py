"""Cases for tests/test_every_task.py: control maps. New images from them are in cases_generation."""

from __future__ import annotations

from collections.abc import Callable

import tiny_finders
import tiny_vision
from task_case import Artifact, Case, files

PHOTO = {"image": "@photo"}


def has_map(*modes: str) -> Callable[[Artifact], None]:
    """A check of one image of the photo's size, in one of the modes, with something drawn."""

    def check(artifact: Artifact) -> None:
        from PIL import Image

        (path,) = files(artifact, "image")
        with Image.open(path) as drawn:
            assert drawn.size == (64, 48)
            assert drawn.mode in modes
            assert drawn.convert("L").getextrema()[1] > 0

    return check


CASES: list[Case] = [
    Case("canny-control", PHOTO, has_map("L")),
    Case("hed-control", PHOTO, has_map("L")),
    Case("mlsd-control", PHOTO, has_map("L")),
    Case("scribble-control", PHOTO, has_map("L")),
    Case("depth-control", PHOTO, has_map("L"), tiny_vision.dpt),
    Case("depth-control", PHOTO, has_map("L"), tiny_vision.glpn),
    Case("normal-control", PHOTO, has_map("RGB"), tiny_vision.dpt),
    Case("openpose-control", PHOTO, has_map("RGB"), tiny_finders.vitpose),
    Case("seg-control", PHOTO, has_map("RGB"), tiny_vision.segformer),
]
