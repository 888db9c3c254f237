"""What the characters of fonts of symbols show, where a file has only their codes in the font.

symbol("\uf062", ["ABCDEF+SymbolMT"])     # "β"
symbol("\x15", ["CMSY10"])               # "≥"
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

PRIVATE = re.compile("[\uf020-\uf0ff\uf8e5-\uf8fe]")
_TABLES = tomllib.loads((Path(__file__).parent / "data" / "symbols.toml").read_text(encoding="utf-8"))
_TEX = re.compile("CM(?:MI|SY|EX)")


def symbol(character: str, fonts: Sequence[str]) -> str:
    """What a character shows in the first of these fonts that is one of symbols; "�" if that is not known.

    A character that is not `PRIVATE` is itself, but in fonts of TeX.
    """
    code, names = ord(character), [font[:100].rpartition("+")[2].partition("-")[0] for font in fonts]
    stems = [name.replace(" ", "").removesuffix("MT") for name in names]
    if not PRIVATE.match(character):
        table = next((_TABLES[tex[0]] for stem in stems if (tex := _TEX.match(stem))), "")
        return table[code : code + 1] or character
    if code >= 0xF8E5:
        return str(_TABLES["pieces"][code - 0xF8E5])
    # In any font the first is a blank.
    shown = next((_TABLES[stem] for stem in stems if stem in _TABLES), " ")
    return shown[code - 0xF020 :][:1] or "�"
