"""`jarvis doctor`: what is installed and reachable, and how to fix what is not. It shows no keys."""

from __future__ import annotations

import platform
import re
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import constants
from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jarvis_agent.backends.starter.models import MINILM, STARTERS, find_weights, may_download
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Frozen
from jarvis_agent.interfaces.cli.probes import Check, check, check_cluster, check_hub, check_model

DISTRIBUTION = "langchain-hugginggpt"

_SHOWN = 5
_MARKS = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "red")}


class Report(Frozen):
    """All checks; `ready` is False if one is a problem."""

    ready: bool
    checks: list[Check]


def examine(settings: Settings) -> Report:
    """Run every check. A server that does not answer takes 10 seconds."""
    hub, llm, token = check_hub(settings), check_model(settings), settings.token is not None
    online, local = hub.state == "ok", find_spec("transformers") is not None
    importable = [name for name, one in STARTERS.items() if all(map(find_spec, one.needs))]
    installed = {name for name in importable if find_weights(STARTERS[name])}
    absent = [one for name, one in STARTERS.items() if name not in installed]
    usable = {
        "starter models": bool(installed),
        "downloaded models": local and any(Path(constants.HF_HUB_CACHE).glob("models--*")),
        "models of the Hub, downloaded when needed": local and online,
        "models hosted by Hugging Face": online and token,
    }
    experts = ", ".join(name for name, is_usable in usable.items() if is_usable)
    can_plan = MINILM in installed or (
        MINILM in importable and online and may_download(STARTERS[MINILM], settings)
    )
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    planner = MINILM if can_plan else f"{MINILM} is missing"
    found = f"{len(installed)} of {len(STARTERS)}"
    found += f"; missing: {', '.join(one.id for one in absent)}" if absent else ""
    extras = _install(",".join(sorted({one.extra for one in absent if one.extra})))
    installs = dict.fromkeys(extras if one.extra else one.install for one in absent)
    checks = [
        check("Python", True, system),
        llm,
        check("offline planner", can_plan, planner, _install("starter"), needed=llm.state != "ok"),
        *_extras(),
        _gpu(),
        *([check_cluster(settings.cluster)] if settings.cluster else []),
        hub,
        check("Hugging Face token", token, "found" if token else "none", "set HF_TOKEN for hosted models"),
        check("starter models", not absent, found, "; ".join(installs)),
        check("experts", bool(experts), experts, _install("starter,starter-tts"), needed=True),
        _output_directory(settings),
    ]
    return Report(ready=all(one.state != "problem" for one in checks), checks=checks)


def _install(extras: str) -> str:
    return f'pip install "{DISTRIBUTION}[{extras}]"'


def _extras() -> Iterator[Check]:
    """One check per extra. Nothing is imported."""
    missing: dict[str, list[str]] = {}
    for one in map(Requirement, requires(DISTRIBUTION) or []):
        for extra in set(re.findall(r'extra == "([\w-]+)"', str(one.marker))) - {"all", "dev"}:
            lacking = missing.setdefault(extra, [])
            if one.marker and one.marker.evaluate({"extra": extra}) and not _is_installed(one):
                lacking.append(f"{one.name}{one.specifier}")
    for name, lacking in missing.items():
        found = f"missing: {', '.join(lacking[:_SHOWN])}" if lacking else "installed"
        found += f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        yield check(f"extra {name}", not lacking, found, _install(name))


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _gpu() -> Check:
    if find_spec("torch") is None:
        return check("GPU", False, "unknown: torch is not installed", _install("local"))
    import torch

    advice = "if there is one, install torch for it: https://pytorch.org/get-started/locally"
    found = torch.cuda.is_available() or torch.backends.mps.is_available()
    return check("GPU", found, "used by torch" if found else "none; models run on the CPU", advice)


def _output_directory(settings: Settings) -> Check:
    """Whether files can be written there. Nothing is left behind."""
    target = settings.output_dir.absolute()
    try:
        with tempfile.TemporaryFile(dir=next(p for p in (target, *target.parents) if p.exists())):
            return check("output directory", True, str(target))
    except OSError as error:
        found = f"{target} cannot be written ({error.strerror or error})"
        return check("output directory", False, found, "set JARVIS_OUTPUT_DIR or --out", needed=True)


def report_text(report: Report) -> RenderableType:
    """Return the report with one line per check and its advice below."""
    lines = Table.grid(padding=(0, 1))
    for one in report.checks:
        mark, style = _MARKS[one.state]
        lines.add_row(Text(mark, style), Text.assemble((one.name, "bold"), f": {clean(one.found)}"))
        if one.advice:
            lines.add_row("", Text(f"→ {clean(one.advice)}", "dim"))
    verdict = "Requests can be run." if report.ready else "Fix the checks marked ✗ to run requests."
    return Group(lines, Text(verdict, "bold"))
