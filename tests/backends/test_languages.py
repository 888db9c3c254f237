"""Languages are found by name or code, and guessed from the script of a text."""

import re

from jarvis_agent.backends.languages import LANGUAGES, find_language, language_of_script
from jarvis_agent.core.text import detect_script


def test_languages_are_found_by_name_and_code() -> None:
    names = {
        "fr": ["French", "french ", "fr", "FR", "fr-CA", "fr_XX", "fra", "fra_Latn"],
        "zh": ["Mandarin", "simplified Chinese", "zh-CN", "cmn_Hans", "zho_Hans"],
        None: ["", "Klingon", "xx", "frog"],
    }
    for code, spellings in names.items():
        for spelling in spellings:
            found = find_language(spelling)
            assert (found.code if found else None) == code, spelling


def test_the_table_is_well_formed() -> None:
    for field in zip(*LANGUAGES, strict=True):
        assert len(set(field)) == len(field)
    assert all(re.fullmatch("[a-z]{2}", language.code) for language in LANGUAGES)
    assert all(re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", language.flores) for language in LANGUAGES)


def test_the_language_is_guessed_from_the_script() -> None:
    codes = {
        "Where is the station?": "en",
        "你好，世界": "zh",
        "駅はどこですか": "ja",
        "안녕하세요": "ko",
        "Где вокзал?": "ru",
        "The word Привет is Russian": "en",
        "42": "en",
    }
    assert {text: language_of_script(text) for text in codes} == codes


def test_of_a_long_text_only_the_ends_are_read() -> None:
    middle, end = "a" * 10_000 + "你好" * 9_000 + "a" * 10_000, "a" * 1_000_000 + "你好" * 2_000
    assert [language_of_script(middle), language_of_script(end)] == ["en", "en"]
    assert [detect_script(middle), detect_script(end)] == ["", "zh"]
