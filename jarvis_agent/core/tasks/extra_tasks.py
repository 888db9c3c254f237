"""Task types that the Hub has no name for: the paper's control maps, and tools for media that are no models.

A control map (edges, depth, a pose, …) is made from an image by `X-control`; `X-text-to-image` makes a new
image from such a map and a text, with a ControlNet.
"""

from __future__ import annotations

from jarvis_agent.core.tasks.spec import AUDIO, IMAGE, PROMPT, VIDEO, Arg, TaskSpec

_MAPPED_BY = {
    "depth": "depth-estimation",
    "normal": "depth-estimation",
    "openpose": "keypoint-detection",
    "seg": "image-segmentation",
}
"""The task types whose models make a control map; the other maps are made by algorithms."""


def _control(name: str, what: str, *aliases: str) -> tuple[TaskSpec, TaskSpec]:
    """The pair of tasks for one kind of control map: image → map, and map + text → image."""
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
            (f"{name}-to-image", *(f"{a}-text-to-image" for a in aliases)),
            listing=(("filter", "controlnet"), ("search", name)),
        ),
    )


OWN_TASKS: tuple[TaskSpec, ...] = (
    # media tools
    TaskSpec(
        "combine-video-audio",
        "media",
        "Put a sound under a video, such as speech that dubs it.",
        (VIDEO, AUDIO),
        ("video",),
        ("dub-video", "video-dubbing"),
        needs_model=False,
    ),
    TaskSpec(
        "extract-audio",
        "media",
        "Take the sound out of a video, as a sound file.",
        (VIDEO,),
        ("audio",),
        ("video-to-audio",),
        needs_model=False,
    ),
    TaskSpec(
        "extract-frames",
        "media",
        "Take pictures out of a video, evenly spread over its length.",
        (VIDEO, Arg("count", "data", required=False, description="how many; 8 if not said")),
        ("image", "data"),
        ("video-to-images", "video-frames"),
        needs_model=False,
    ),
    TaskSpec(
        "resize-image",
        "media",
        "Make an image larger or smaller; with one side given, the other follows.",
        (
            IMAGE,
            Arg("width", "data", required=False, description="pixels"),
            Arg("height", "data", required=False, description="pixels"),
        ),
        ("image",),
        ("image-resizing",),
        needs_model=False,
    ),
    TaskSpec(
        "crop-image",
        "media",
        "Cut a part out of an image: a box, such as that of a detected object.",
        (IMAGE, Arg("box", "data", description="[xmin, ymin, xmax, ymax] in pixels, or a detection")),
        ("image",),
        ("image-cropping",),
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
