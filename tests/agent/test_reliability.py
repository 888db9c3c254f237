"""What docs/reliability.md names is there: tests, modules, settings with their limits, the corpus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jarvis_agent.core.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")

UNITS = {"s": 1, "MB": 10**6, "GB": 10**9, "million pixels": 10**6, "hour": 3600, "day": 86_400, "": 1}

LIMITS = [
    (amount, setting)
    for told, settings in re.findall(r"^\| [^|]+ \| ([^|]+) \| (`\w+`(?:, `\w+`)*) \|$", PAGE, re.MULTILINE)
    for amount, setting in zip(told.split(";")[0].split(", "), re.findall(r"\w+", settings), strict=True)
]
"""What the tables say beside a setting, in their words, and its name."""


@pytest.mark.parametrize(("told", "setting"), LIMITS, ids=[setting for _, setting in LIMITS])
def test_a_limit_beside_a_setting_is_its_default(told: str, setting: str) -> None:
    number, _, unit = told.partition(" ")
    amount = float(1 if number == "one" else number)
    assert amount * UNITS[unit] == Settings.model_fields[setting].default


def test_all_tables_of_limits_are_read() -> None:
    assert {"run_timeout", "max_files", "max_seconds", "retention"} <= {setting for _, setting in LIMITS}


def test_the_corpus_is_as_large_as_it_says() -> None:
    outputs = (ROOT / "tests" / "data" / "planner_outputs.jsonl").read_text("utf-8").splitlines()
    assert f"| {len(outputs)} outputs as models write them" in PAGE
