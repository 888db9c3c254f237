"""The languages of translation models, under every name that models and plans have for them.

To add a language, add it to languages.csv.
"""

import csv
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from jarvis_agent.core.text import excerpt


class Language(NamedTuple):
    """A language: its English name, ISO 639-1 code, code in FLORES-200 (as of NLLB), and Chinese name."""

    name: str
    code: str
    flores: str
    chinese: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its names as requests write them."""
        return (self.name, self.chinese, self.chinese[:-1] + "文", self.chinese[:-1] + "语")


with Path(__file__).with_name("languages.csv").open(encoding="utf-8", newline="") as _rows:
    LANGUAGES: tuple[Language, ...] = tuple(Language(**row) for row in csv.DictReader(_rows))
_OTHER_NAMES = {
    "castilian": "es",
    "cmn": "zh",
    "farsi": "fa",
    "filipino": "tl",
    "flemish": "nl",
    "mandarin": "zh",
    "nb": "no",
    "simplified chinese": "zh",
    "普通话": "zh",
    "汉语": "zh",
}
_BY_NAME: dict[str, Language] = {
    name.lower(): language
    for language in LANGUAGES
    for name in (*language.spellings, language.code, language.flores[:3])
}
_BY_NAME |= {name: _BY_NAME[code] for name, code in _OTHER_NAMES.items()}
_CODES = {language.name.lower(): language.code for language in LANGUAGES} | {"mandarin": "zh"}
_SCRIPTS = {
    "LATIN": "en",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CJK": "zh",
    "CYRILLIC": "ru",
    "ARABIC": "ar",
    "HEBREW": "he",
    "GREEK": "el",
    "DEVANAGARI": "hi",
    "BENGALI": "bn",
    "TAMIL": "ta",
    "THAI": "th",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
}
"""Languages by the first word of the Unicode names of their letters."""


def find_language(name: str) -> Language | None:
    """The language of an English or Chinese name or of a code; None if it is not in the table."""
    wanted = name.strip().lower()
    return _BY_NAME.get(wanted) or _BY_NAME.get(re.split(r"[-_]", wanted)[0])


def languages_in(text: str) -> frozenset[str]:
    """The ISO 639-1 codes of the languages that a text names in English or Chinese."""
    words = {_CODES[word] for word in re.findall(r"[^\W\d_]+", text.lower()) if word in _CODES}
    named = (language.code for language in LANGUAGES if any(name in text for name in language.spellings[1:]))
    return frozenset(words) if text.isascii() else frozenset({*words, *named})


def language_of_script(text: str) -> str:
    """The ISO 639-1 code of the most widespread language written like a text; a guess, "" if unknown.

    Kana among Chinese characters mean Japanese. Of a long text the first and last characters count.
    """
    letters = Counter(
        unicodedata.name(char, "").split(" ")[0].split("-")[0] for char in excerpt(text) if char.isalpha()
    )
    if letters["CJK"] and letters["HIRAGANA"] + letters["KATAKANA"]:
        return "ja"
    return _SCRIPTS.get(max(letters, key=lambda script: letters[script], default="LATIN"), "")
