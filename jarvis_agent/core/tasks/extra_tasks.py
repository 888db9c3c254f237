"""Task types beside those of the Hub: the paper's control maps, and media tools without models.

`X-control` makes a control map (edges, depth, a pose, …) from an image; `X-text-to-image` makes an image from
such a map and a text, with a ControlNet.
"""

from __future__ import annotations

from jarvis_agent.core.tasks.rows import task_rows
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
            (Arg("image", "image"),),
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
            (Arg("text", "text", description="the prompt"), Arg("image", "image", description=f"the {what}")),
            ("image",),
            (f"{name}-to-image", *(f"{a}{end}" for a in aliases for end in ("-text-to-image", "-to-image"))),
            listing=(("filter", "controlnet"), ("search", name)),
        ),
    )


EXTRA_TASKS: tuple[TaskSpec, ...] = (
    *task_rows(
        "media",
        """
combine-video-audio | video, audio -> video | dub-video, video-dubbing
    Put a sound under a video, such as speech that dubs it.
extract-audio | video -> audio | video-to-audio
    Take the sound out of a video, as a sound file.
extract-frames | video, count? -> image, data | video-to-images, video-frames
    Take pictures out of a video, evenly spread over its length.
resize-image | image, width?, height? -> image | image-resizing
    Make an image larger or smaller; with one side given, the other follows.
crop-image | image, box -> image | image-cropping
    Cut a part out of an image: a box, such as that of a detected object, or a half, third or corner.
edit-image | image, greyscale?, rotate?, flip?, format? -> image | rotate-image, flip-image, convert-image
    Make an image greyscale, turn it, mirror it, or convert it to another file format.
media-info | file -> data, text | file-info
    Look up facts of a file: format, size, width and height, duration, number of frames, pages, words or rows.
""",
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
