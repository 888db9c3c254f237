"""The languages of translation models, under every name that models use for them.

    find_language("French")       # Language("French", "fr", "fra_Latn"), as for "fr", "fr-CA" or "fra_Latn"
    language_of_script("你好")     # "zh"

To add a language, add it to _TABLE.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple


class Language(NamedTuple):
    """A language: its English name, its ISO 639-1 code, and its code in FLORES-200 (as NLLB uses it)."""

    name: str
    code: str
    flores: str


_TABLE = """
Afrikaans af afr_Latn, Albanian sq als_Latn, Amharic am amh_Ethi, Arabic ar arb_Arab,
Armenian hy hye_Armn, Azerbaijani az azj_Latn, Basque eu eus_Latn, Belarusian be bel_Cyrl,
Bengali bn ben_Beng, Bosnian bs bos_Latn, Bulgarian bg bul_Cyrl, Burmese my mya_Mymr,
Catalan ca cat_Latn, Chinese zh zho_Hans, Croatian hr hrv_Latn, Czech cs ces_Latn, Danish da dan_Latn,
Dutch nl nld_Latn, English en eng_Latn, Esperanto eo epo_Latn, Estonian et est_Latn,
Finnish fi fin_Latn, French fr fra_Latn, Galician gl glg_Latn, Georgian ka kat_Geor,
German de deu_Latn, Greek el ell_Grek, Gujarati gu guj_Gujr, Hausa ha hau_Latn, Hebrew he heb_Hebr,
Hindi hi hin_Deva, Hungarian hu hun_Latn, Icelandic is isl_Latn, Indonesian id ind_Latn,
Irish ga gle_Latn, Italian it ita_Latn, Japanese ja jpn_Jpan, Kannada kn kan_Knda, Kazakh kk kaz_Cyrl,
Khmer km khm_Khmr, Korean ko kor_Hang, Lao lo lao_Laoo, Latvian lv lvs_Latn, Lithuanian lt lit_Latn,
Macedonian mk mkd_Cyrl, Malay ms zsm_Latn, Malayalam ml mal_Mlym, Maltese mt mlt_Latn,
Marathi mr mar_Deva, Mongolian mn khk_Cyrl, Nepali ne npi_Deva, Norwegian no nob_Latn,
Pashto ps pbt_Arab, Persian fa pes_Arab, Polish pl pol_Latn, Portuguese pt por_Latn,
Punjabi pa pan_Guru, Romanian ro ron_Latn, Russian ru rus_Cyrl, Serbian sr srp_Cyrl,
Sinhala si sin_Sinh, Slovak sk slk_Latn, Slovenian sl slv_Latn, Somali so som_Latn,
Spanish es spa_Latn, Swahili sw swh_Latn, Swedish sv swe_Latn, Tagalog tl tgl_Latn, Tamil ta tam_Taml,
Telugu te tel_Telu, Thai th tha_Thai, Turkish tr tur_Latn, Ukrainian uk ukr_Cyrl, Urdu ur urd_Arab,
Uzbek uz uzn_Latn, Vietnamese vi vie_Latn, Welsh cy cym_Latn, Xhosa xh xho_Latn, Yoruba yo yor_Latn,
Zulu zu zul_Latn
"""
LANGUAGES: tuple[Language, ...] = tuple(Language(*row.split()) for row in _TABLE.split(","))

_OTHER_NAMES = {
    "castilian": "es",
    "cmn": "zh",
    "farsi": "fa",
    "filipino": "tl",
    "flemish": "nl",
    "mandarin": "zh",
    "nb": "no",
    "simplified chinese": "zh",
}
_SCRIPTS = {
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


@lru_cache(maxsize=256)
def find_language(name: str) -> Language | None:
    """The language of an English name or of a code, in any spelling; None if it is not in the table."""
    wanted = name.strip().lower()
    wanted = _OTHER_NAMES.get(wanted, wanted)
    short = re.split(r"[-_]", wanted)[0]
    short = _OTHER_NAMES.get(short, short)
    for language in LANGUAGES:
        if wanted == language.name.lower() or short in (language.code, language.flores[:3]):
            return language
    return None


def language_of_script(text: str) -> str:
    """The ISO 639-1 code of the most widespread language written like a text; "en" for Latin letters.

    A guess for texts whose language is not given. Kana among Chinese characters mean Japanese.
    """
    letters = Counter(
        unicodedata.name(char, "").split(" ")[0].split("-")[0] for char in text if char.isalpha()
    )
    if letters["CJK"] and letters["HIRAGANA"] + letters["KATAKANA"]:
        return "ja"
    return _SCRIPTS.get(max(letters, key=lambda script: letters[script], default=""), "en")
