"""The pages under docs/ agree with the code."""

from __future__ import annotations

import asyncio
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.registry import make_backends
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.selection.sources.registered import RegisteredSource, Registration

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["settings.md", "tasks.md"])
def test_the_written_pages_are_those_of_the_code(page: str) -> None:
    spec = spec_from_file_location("write_pages", DOCS / "write_pages.py")
    assert spec is not None
    assert spec.loader is not None
    writer = module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert (DOCS / page).read_text(encoding="utf-8") == writer.PAGES[page](), "run python docs/write_pages.py"


def test_the_list_of_models_is_one_that_is_read(tmp_path: Path) -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "weights" / "detr").mkdir(parents=True)
    (tmp_path / "weights" / "detr" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "models.yaml").write_text(written, encoding="utf-8")
    source = RegisteredSource.from_yaml(tmp_path / "models.yaml")
    listed = {
        task: asyncio.run(source.candidates(TASKS[task], 9)) for task in ("translation", "text-to-image")
    }
    assert [model.backend for model in listed["translation"]] == ["openai"]
    assert [model.backend for model in listed["text-to-image"]] == ["spaces", None]
    assert listed["text-to-image"][1].metadata["options"] == {"num_inference_steps": 2, "guidance_scale": 0.0}


def test_the_fields_of_a_description_are_those_that_there_are() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?`) \|", page.partition("| field |")[2], re.MULTILINE)
    named = {name.partition(".")[0] for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    assert len(named) > 10
    assert named <= Registration.model_fields.keys()


def test_the_backends_that_the_models_page_names_are_there() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    rows = page.partition("| backend | models |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| ([\w-]+) \|", rows, re.MULTILINE))
    settings = Settings(offline=True)
    there = {backend.name for backend in make_backends(settings, ModelPool(1))}
    assert named <= there
    assert there - named == {"starter", "opencv", "media-tools"}
