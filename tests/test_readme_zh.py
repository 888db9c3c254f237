"""The Chinese README has the same code, structure, links and numbers as the English one, section by section.

tests/test_docs.py runs the code.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from doc_blocks import blocks_of

ROOT = Path(__file__).parent.parent
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
SWITCH = {"README.md", "README.zh-CN.md"}


def sections(page: Path) -> list[tuple[str, str]]:
    """The headings of a page, each with the prose and tables below it; fenced blocks are left out."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(#+ [^\n]+)\n(.*?)(?=^#+ |\Z)", prose, re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if link not in SWITCH]


def inline_code(text: str) -> Counter[str]:
    return Counter(re.findall(r"`([^`\n]+)`", text))


def numbers(text: str) -> Counter[str]:
    """Numbers, with a unit where both languages write it alike."""
    return Counter(re.findall(r"\d+(?:[.,]\d+)*(?: ?(?:[KMG]B|%))?", text))


PAIRS = list(zip(sections(ENGLISH), sections(CHINESE), strict=False))
each_section = pytest.mark.parametrize(
    ("english", "chinese"),
    [pytest.param(ours[1], theirs[1], id=ours[0].strip("# ")) for ours, theirs in PAIRS],
)


def test_the_code_blocks_are_the_same() -> None:
    english, chinese = ([(b.lang, b.code) for b in blocks_of(page)] for page in (ENGLISH, CHINESE))
    assert english
    assert chinese == english


def test_the_headings_have_the_same_levels_in_the_same_order() -> None:
    english, chinese = (
        [heading.partition(" ")[0] for heading, _ in sections(page)] for page in (ENGLISH, CHINESE)
    )
    assert len(english) > 1
    assert chinese == english


@each_section
def test_a_section_has_the_same_links_code_and_numbers(english: str, chinese: str) -> None:
    assert Counter(links(chinese)) == Counter(links(english))
    assert inline_code(chinese) == inline_code(english)
    assert numbers(chinese) == numbers(english)


def test_each_page_links_to_the_other() -> None:
    assert "English | [简体中文](README.zh-CN.md)" in ENGLISH.read_text(encoding="utf-8").splitlines()
    assert "[English](README.md) | 简体中文" in CHINESE.read_text(encoding="utf-8").splitlines()
