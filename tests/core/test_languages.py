"""Languages are known by the names that people and models give them."""

from __future__ import annotations

import re

import pytest

from jarvis_agent.core.languages import LANGUAGES, find_language, language_of_script


@pytest.mark.parametrize("name", ["French", "french ", "fr", "FR", "fr-CA", "fr_XX", "fra", "fra_Latn"])
def test_a_language_is_found_by_any_of_its_names(name: str) -> None:
    found = find_language(name)
    assert found is not None
    assert found.flores == "fra_Latn"


@pytest.mark.parametrize("name", ["Mandarin", "simplified Chinese", "zh-CN", "cmn_Hans", "zho_Hans"])
def test_other_names_of_chinese(name: str) -> None:
    found = find_language(name)
    assert found is not None
    assert found.code == "zh"


@pytest.mark.parametrize("name", ["", "Klingon", "xx", "frog"])
def test_what_is_no_language_is_not_found(name: str) -> None:
    assert find_language(name) is None


def test_the_table_is_well_formed() -> None:
    for field in zip(*LANGUAGES, strict=True):
        assert len(set(field)) == len(field)
    assert all(re.fullmatch("[a-z]{2}", language.code) for language in LANGUAGES)
    assert all(re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", language.flores) for language in LANGUAGES)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Where is the station?", "en"),
        ("你好，世界", "zh"),
        ("駅はどこですか", "ja"),
        ("안녕하세요", "ko"),
        ("Где вокзал?", "ru"),
        ("The word Привет is Russian", "en"),
        ("42", "en"),
    ],
)
def test_the_script_of_a_text_hints_at_its_language(text: str, code: str) -> None:
    assert language_of_script(text) == code
