"""The texts of the page by language.

text = texts_for("zh-CN,zh;q=0.9,en;q=0.8")     # from the header Accept-Language
text("summary", tasks=3, done=2)                # "任务：3 个中完成 2 个"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    (Path(__file__).parent / "data" / "texts.toml").read_text(encoding="utf-8")
)
"""Texts by language tag and name."""

Texts = Callable[..., str]
"""Returns the text of a name, with the names in braces filled in."""


def texts_for(accept_language: str) -> Texts:
    """The texts in the browser's first language: Chinese, or English for every other one."""
    table = TEXTS["zh-CN" if accept_language.strip().lower().startswith("zh") else "en"]

    def text(name: str, /, **values: object) -> str:
        return table[name].format_map(values) if values else table[name]

    return text
