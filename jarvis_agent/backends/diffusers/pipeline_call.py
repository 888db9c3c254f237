"""Call a diffusers pipeline with the user's options and seed; log its steps and stop it on cancellation.

    output = call_pipeline(loaded, call, prompt="a red fox", image=picture)
    output.images[0]

Every pipeline reports its steps to its progress bar, so `StepMonitor` replaces the bar.
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
from jarvis_agent.backends.diffusers.loading import LoadedPipeline
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.core.errors import ExpertError, UnsupportedError

logger = logging.getLogger(__name__)

DISTILLED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("z-image-turbo", {"num_inference_steps": 9, "guidance_scale": 0.0}),
    (
        r"sd-?turbo|sdxl-?turbo|stable-diffusion-turbo",
        {"num_inference_steps": 2, "guidance_scale": 0.0, "strength": 0.5},
    ),
    ("turbo|schnell|lightning", {"num_inference_steps": 4, "guidance_scale": 0.0}),
    ("latentconsistency", {}),
    ("lcm", {"num_inference_steps": 4, "guidance_scale": 1.0}),
)
"""Pattern for the id, pipeline or scheduler of models distilled to few steps → their options.

The first match counts. Pipelines made for few steps have good defaults.
"""


class StepMonitor:
    """Replaces a pipeline's progress bar: logs each step, and stops when the call is cancelled.

    Used like the bar: `for t in bar(timesteps)`, or `with bar(total=20) as b: b.update()`.
    """

    def __init__(self, call: Call) -> None:
        self.call = call

    def __call__(self, iterable: Iterable[Any] = (), total: int | None = None) -> StepMonitor:
        self.steps, self.done = list(iterable), 0
        self.total = len(self.steps) or total
        self.check_cancelled()
        return self

    def __iter__(self) -> Iterator[Any]:
        for step in self.steps:
            yield step
            self.update()

    def __enter__(self) -> StepMonitor:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def update(self, steps: int = 1) -> None:
        """Count finished steps."""
        self.done += steps
        logger.debug("%s: step %s of %s", self.call.candidate.id, self.done, self.total)
        self.check_cancelled()

    def check_cancelled(self) -> None:
        """Raise ExpertError if the call was cancelled."""
        if is_cancelled():
            raise ExpertError(f"{self.call.candidate.id} was stopped: {self.call.spec.name} was cancelled")


def call_pipeline(loaded: LoadedPipeline, call: Call, *, pipe: Any = None, **inputs: Any) -> Any:
    """Return the pipeline's output for the inputs that it takes; None and unknown ones are left out.

    `pipe` is another pipeline of the same parts to call instead.

    Raises:
        UnsupportedError: the pipeline has no such option, or needs a package that is not installed.
        ExpertError: the safety checker flagged the result, or the call was cancelled.
    """
    import torch

    pipe = loaded.pipe if pipe is None else pipe
    known = parameters(pipe)
    seed = call.settings.seed
    given = {**_distilled_options(loaded), **options_of(loaded, call), **inputs}
    if "generator" in known:
        given["generator"] = torch.Generator("cpu").manual_seed(seed)
    given = {name: value for name, value in given.items() if name in known and value is not None}
    pipe.progress_bar = StepMonitor(call)
    try:
        with nullcontext() if "generator" in known else seeded(seed):
            output = pipe(**given)
    except NameError as error:  # pipelines skip the import of an optional package and then use its name
        raise UnsupportedError(
            f"{loaded.id} needs the package {error.name}, which is not installed: pip install {error.name}"
        ) from error
    if any(getattr(output, "nsfw_content_detected", None) or ()):
        raise ExpertError(
            f"the safety checker of {loaded.id} flagged the image as unsafe; "
            "word the request differently, or use another seed (JARVIS_SEED)"
        )
    return output


def parameters(pipe: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the pipeline's call by name."""
    return inspect.signature(type(pipe).__call__).parameters


def options_of(loaded: LoadedPipeline, call: Call) -> dict[str, Any]:
    """Return the options in the candidate's metadata, all of which the pipeline must have."""
    given = dict(call.candidate.metadata.get("options") or {})
    known = parameters(loaded.pipe)
    if unknown := [name for name in given if name not in known or name == "self"]:
        names = ", ".join(name for name in known if name not in ("self", "return_dict", "generator"))
        raise UnsupportedError(
            f"{loaded.id} has no option {unknown[0]!r} (metadata.options of its description); "
            f"{type(loaded.pipe).__name__} takes {names}"
        )
    return given


def _distilled_options(loaded: LoadedPipeline) -> Mapping[str, Any]:
    scheduler = type(getattr(loaded.pipe, "scheduler", None)).__name__
    about = f"{loaded.id} {type(loaded.pipe).__name__} {scheduler}".lower()
    return next((options for pattern, options in DISTILLED if re.search(pattern, about)), {})
