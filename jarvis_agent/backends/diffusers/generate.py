"""Call a diffusers pipeline: the user's options, the seed, steps in the log, and a stop once nobody waits.

    output = ask(loaded, call, prompt="a red fox", image=picture)
    output.images[0]

Every pipeline tells its steps to its progress bar, so `Steps` stands in the bar's place.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import seeded
from jarvis_agent.backends.diffusers.loading import Loaded
from jarvis_agent.backends.pool import is_cancelled
from jarvis_agent.core.errors import ExpertError, UnsupportedError

log = logging.getLogger(__name__)

FEW_STEPS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("z-image-turbo", {"num_inference_steps": 9, "guidance_scale": 0.0}),
    (
        r"sd-?turbo|sdxl-?turbo|stable-diffusion-turbo",
        {"num_inference_steps": 2, "guidance_scale": 0.0, "strength": 0.5},
    ),
    ("turbo|schnell|lightning", {"num_inference_steps": 4, "guidance_scale": 0.0}),
    ("latentconsistency", {}),
    ("lcm", {"num_inference_steps": 4, "guidance_scale": 1.0}),
)
"""Models that were distilled to few steps: what is asked of them, by their id, pipeline or scheduler.
The first row that fits counts; pipelines made for few steps have good defaults of their own."""


class Steps:
    """Takes the place of a pipeline's progress bar: logs each step, and stops where nobody waits.

    Used as pipelines use their bar: `for t in bar(timesteps)`, or `with bar(total=20) as b: b.update()`.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.done = 0
        self.total: int | None = None
        self.steps: Iterable[Any] = ()

    def __call__(self, iterable: Iterable[Any] | None = None, total: int | None = None) -> Steps:
        self.steps = () if iterable is None else iterable
        self.total = total if iterable is None else len(list(iterable))
        self.done = 0
        self.check_cancelled()
        return self

    def __iter__(self) -> Iterator[Any]:
        for step in self.steps:
            yield step
            self.update()

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def update(self, steps: int = 1) -> None:
        """So many steps more are done."""
        self.done += steps
        log.debug("%s: step %s of %s", self.call.candidate.id, self.done, self.total)
        self.check_cancelled()

    def check_cancelled(self) -> None:
        """Raises ExpertError if the call was cancelled."""
        if is_cancelled():
            raise ExpertError(f"{self.call.candidate.id} was stopped: {self.call.spec.name} was cancelled")


def ask(loaded: Loaded, call: Call, *, pipe: Any = None, **inputs: Any) -> Any:
    """The output of the pipeline (or of `pipe`, which shares its parts) for those inputs that it takes.

    Inputs that are None, or that the pipeline does not know, are left away. The candidate's metadata may have
    `options`: further arguments of the pipeline, such as {"num_inference_steps": 20}.

    Raises:
        UnsupportedError: the pipeline has no such option, or needs a package that is not installed.
        ExpertError: the safety checker flagged the result; or the call was cancelled between two steps.
    """
    import torch

    pipe = loaded.pipe if pipe is None else pipe
    takes = parameters(pipe)
    asked = {**few_steps(loaded), **options(loaded, call), **inputs}
    seed = call.settings.seed
    if "generator" in takes:
        asked["generator"] = torch.Generator("cpu").manual_seed(seed)
    pipe.progress_bar = Steps(call)
    try:
        with nullcontext() if "generator" in takes else seeded(seed):
            output = pipe(
                **{name: value for name, value in asked.items() if name in takes and value is not None}
            )
    except NameError as error:  # pipelines leave away the import of a package that is not there
        raise UnsupportedError(
            f"{loaded.id} needs the package {error.name}, which is not installed: pip install {error.name}"
        ) from error
    if any(getattr(output, "nsfw_content_detected", None) or ()):
        raise ExpertError(
            f"the safety checker of {loaded.id} took the image for unsafe and blackened it; "
            "say it in other words, or take another seed (JARVIS_SEED)"
        )
    return output


def parameters(pipe: Any) -> Mapping[str, inspect.Parameter]:
    """What the pipeline's call takes, by name."""
    return inspect.signature(type(pipe).__call__).parameters


def options(loaded: Loaded, call: Call) -> dict[str, Any]:
    """The candidate's own options.

    Raises:
        UnsupportedError: the pipeline has no such option.
    """
    given = dict(call.candidate.metadata.get("options") or {})
    takes = parameters(loaded.pipe)
    if unknown := [name for name in given if name not in takes or name == "self"]:
        known = ", ".join(name for name in takes if name not in ("self", "return_dict", "generator"))
        raise UnsupportedError(
            f"{loaded.id} has no option {unknown[0]!r} (metadata.options of its description); "
            f"{type(loaded.pipe).__name__} takes {known}"
        )
    return given


def few_steps(loaded: Loaded) -> Mapping[str, Any]:
    """The options of a model that was distilled to few steps; none for other models."""
    scheduler = type(getattr(loaded.pipe, "scheduler", None)).__name__
    about = f"{loaded.id} {type(loaded.pipe).__name__} {scheduler}".lower()
    return next((given for known, given in FEW_STEPS if re.search(known, about)), {})
