"""What the tests of local backends share: calls of tiny models, each loaded once for a module.

bench = Bench(TransformersBackend, built, media, tmp_path)
raw = bench.ask("image-classification", "vit", image="photo")
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub.model_card import model_at
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.testing import HubDouble


@dataclass
class Bench:
    """A backend with tiny models.

    Attributes:
        kind: the class of the backend.
        built: gives the folder of a tiny model.
        media: files by name; a media argument of a call is such a name or a path.
        folder: where calls write.
    """

    kind: Callable[..., LocalBackend]
    built: Callable[[str], Path]
    media: dict[str, Path]
    folder: Path
    experts: dict[Any, Any] = field(default_factory=dict)

    def call(
        self,
        task: str,
        model: str | Path,
        metadata: dict[str, Any] | None = None,
        *,
        name: str = "org/model",
        settings: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> Call:
        """A call of a tiny model, or of the model in a folder."""
        path = model if isinstance(model, Path) else self.built(model)
        kinds = {arg.name: arg.kind for arg in TASKS[task].inputs}

        def given(name: str, value: Any) -> Any:
            if isinstance(value, list) and kinds[name] not in ("text", "data"):
                return [given(name, item) for item in value]
            if isinstance(value, str | Path) and kinds[name] not in ("text", "data"):
                return Resource(kind=kinds[name], path=self.media.get(str(value), Path(value)))
            return value

        made = len(list(self.folder.iterdir()))
        return Call(
            spec=TASKS[task],
            candidate=Candidate(id=name, task=task, metadata=metadata or {}, **model_at(path)),
            inputs={name: given(name, value) for name, value in inputs.items()},
            new_path=lambda suffix: self.folder / f"{made}{suffix}",
            settings=Settings(**{"device": "cpu", "offline": True, **(settings or {})}),
        )

    def load(self, call: Call) -> Any:
        """The call's model, loaded by the real code at its first use."""
        used = call.settings
        model = (call.spec.models_of or call.spec.name, call.candidate.model_dump_json(exclude={"task"}))
        key = (*model, used.allow_pickle, used.trust_remote_code)
        if key not in self.experts:
            backend = self.kind(used, ModelPool(10**9))
            assert backend.unsupported_reason(call.spec, call.candidate) is None
            self.experts[key] = backend.load(call.spec, call.candidate, used)
        return self.experts[key]

    def ask(self, task: str, model: str | Path, metadata: dict[str, Any] | None = None, **given: Any) -> Any:
        """The raw output of a call; see `call`."""
        call = self.call(task, model, metadata, **given)
        return self.load(call)(call)


def fetched(hub: HubDouble) -> set[str]:
    """The files that were downloaded."""
    paths = [request.path for request in hub.requests if "/resolve/" in request.path]
    return {path.split("/resolve/")[1].partition("/")[2] for path in paths}


def as_pickle(file: Path) -> None:
    """Replace a file of weights with a pickle of them."""
    import torch
    from safetensors.torch import load_file

    name = file.stem if file.stem != "model" else "pytorch_model"
    torch.save(load_file(file), file.with_name(f"{name}.bin"))
    file.unlink()


def surest_at_the_end(model: Any, patch: pytest.MonkeyPatch, start: int, end: int) -> list[Any]:
    """Make a reader surer of each later window, at tokens counted from its end; return its windows."""
    windows: list[Any] = []
    forward = model.forward

    def surer(**inputs: Any) -> Any:
        output = forward(**inputs)
        windows.append(inputs)
        last = int(inputs["attention_mask"][0].sum())
        output.start_logits[:] = output.end_logits[:] = 0.0
        output.start_logits[0, last - start] = output.end_logits[0, last - end] = 4.0 + len(windows)
        return output

    patch.setattr(model, "forward", surer)
    return windows


def roughly(value: Any) -> Any:
    """The same lists and dicts, whose numbers need be equal only approximately."""
    if isinstance(value, dict):
        return {key: roughly(item) for key, item in value.items()}
    if isinstance(value, list):
        return [roughly(item) for item in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value
