"""Task types beside those of the Hub: the paper's control maps, and media tools without models.

`X-control` makes a control map (edges, depth, a pose, …) from an image; `X-text-to-image` makes an image from
such a map and a text, with a ControlNet.
"""

from __future__ import annotations

from jarvis_agent.core.tasks.hub_tasks import AUDIO, IMAGE, PROMPT, VIDEO
from jarvis_agent.core.tasks.spec import Arg, TaskSpec

_MAPPED_BY = {
    "depth": "depth-estimation",
    "normal": "depth-estimation",
    "openpose": "keypoint-detection",
    "seg": "image-segmentation",
}
"""Task types whose models make a control map; algorithms make the others."""


def _control(name: str, what: str, *aliases: str) -> tuple[TaskSpec, TaskSpec]:
    """The tasks image → map and map + text → image for one kind of control map."""
    return (
        TaskSpec(
            f"{name}-control",
            "control",
            f"Make the {what} of an image.",
            (IMAGE,),
            ("image",),
            (
                f"control-{name}",
                f"{name}-detection",
                f"image-to-{name}",
                *(f"{a}-control" for a in aliases),
                *(f"{a}-detection" for a in aliases),
            ),
            needs_model=name in _MAPPED_BY,
            models_of=_MAPPED_BY.get(name, ""),
        ),
        TaskSpec(
            f"{name}-text-to-image",
            "control",
            f"Make a new image from a text and the {what} of another image.",
            (PROMPT, Arg("image", "image", description=f"the {what}")),
            ("image",),
            (f"{name}-to-image", *(f"{a}{end}" for a in aliases for end in ("-text-to-image", "-to-image"))),
            listing=(("filter", "controlnet"), ("search", name)),
        ),
    )


EXTRA_TASKS: tuple[TaskSpec, ...] = (
    TaskSpec(
        "combine-video-audio",
        "media",
        "Put a sound under a video, such as speech that dubs it.",
        inputs=(VIDEO, AUDIO),
        outputs=("video",),
        aliases=("dub-video", "video-dubbing"),
        needs_model=False,
    ),
    TaskSpec(
        "extract-audio",
        "media",
        "Take the sound out of a video, as a sound file.",
        inputs=(VIDEO,),
        outputs=("audio",),
        aliases=("video-to-audio",),
        needs_model=False,
    ),
    TaskSpec(
        "extract-frames",
        "media",
        "Take pictures out of a video, evenly spread over its length.",
        inputs=(VIDEO, Arg("count", "data", required=False, description="how many; 8 if not said")),
        outputs=("image", "data"),
        aliases=("video-to-images", "video-frames"),
        needs_model=False,
    ),
    TaskSpec(
        "resize-image",
        "media",
        "Make an image larger or smaller; with one side given, the other follows.",
        inputs=(
            IMAGE,
            Arg("width", "data", required=False, description="pixels"),
            Arg("height", "data", required=False, description="pixels"),
        ),
        outputs=("image",),
        aliases=("image-resizing",),
        needs_model=False,
    ),
    TaskSpec(
        "crop-image",
        "media",
        "Cut a part out of an image: a box, such as that of a detected object, or a half, third or corner.",
        inputs=(
            IMAGE,
            Arg("box", "data", description='[xmin, ymin, xmax, ymax] in pixels, a detection, or "left half"'),
        ),
        outputs=("image",),
        aliases=("image-cropping",),
        needs_model=False,
    ),
    TaskSpec(
        "edit-image",
        "media",
        "Make an image greyscale, turn it, mirror it, or convert it to another file format.",
        inputs=(
            IMAGE,
            Arg("greyscale", "data", required=False, description="1 to take the colours away"),
            Arg("rotate", "data", required=False, description="degrees clockwise, such as 90"),
            Arg(
                "flip",
                "text",
                required=False,
                description='"horizontal" (left and right) or "vertical" (upside down)',
            ),
            Arg(
                "format", "text", required=False, description='"png", "jpeg", "webp", "gif", "bmp" or "tiff"'
            ),
        ),
        outputs=("image",),
        aliases=("rotate-image", "flip-image", "convert-image"),
        needs_model=False,
    ),
    TaskSpec(
        "media-info",
        "media",
        "Look up facts of a file: format, size, width and height, duration, number of frames, pages, words "
        "or rows.",
        inputs=(Arg("file", "file", description="a file of any kind, or a text that a task made"),),
        outputs=("data", "text"),
        aliases=("file-info",),
        needs_model=False,
    ),
    # control maps (the paper's controlnet-sd)
    *_control("canny", "canny edge image"),
    *_control("hed", "soft edge (HED) image"),
    *_control("mlsd", "straight line (MLSD) image"),
    *_control("scribble", "scribble drawing"),
    *_control("depth", "depth map"),
    *_control("normal", "normal map"),
    *_control("openpose", "body pose", "pose"),
    *_control("seg", "segmentation map", "segmentation"),
)
