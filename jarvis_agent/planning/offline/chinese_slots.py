"""The slots of a rule's English words: marks, numbers, labels and texts of a Chinese clause.

    hit = found(rule, clause_of("把 \\ue000 缩到 256 像素宽", masked), {"image"})
    in_english(hit)     # "resize \\ue000 to 256 pixels wide"

Texts to be worked on become marks, so that they stay Chinese and complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jarvis_agent.planning.offline.chinese_rules import KINDS, Rule, as_signs, clue, load_rules
from jarvis_agent.planning.offline.masking import MARK, Entity, MaskedText

_NOUN_OF_FILE = {"image": "图片", "audio": "录音", "video": "视频", "table": "表格", "text": "文件"}
_DIGITS = {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a Chinese request.

    Attributes:
        text: its words, with marks.
        masked: the request, with what the marks stand for.
        signs: the same text with signs for marks and spaces for polite words; positions are equal.
    """

    text: str
    masked: MaskedText
    signs: str

    @property
    def marks(self) -> list[str]:
        """Its marks, in order, each once."""
        return list(dict.fromkeys(re.findall(MARK, self.text)))

    def kinds(self) -> set[str]:
        """The kinds of files that it names or mentions, and "document"."""
        rules = load_rules()
        named = {KINDS[sign] for sign in self.signs if sign in KINDS}
        about = clue("wanted").sub("", self.signs)
        spoken = {kind for kind, words in rules.nouns.items() if words.search(about)}
        if "ⓓ" in self.signs or rules.documents.search(self.signs):
            spoken.add("document")
            spoken |= {"image"} if not named else set()
        return named | spoken

    def original(self) -> str:
        """Its words as the user wrote them, with spaces between file names and words."""
        marks = {c: f"\0{m.value}\0" if m.is_file else m.value for c, m in self.masked.marks.items()}
        text = "".join(marks.get(character, character) for character in self.text)
        return re.sub("\0+", " ", re.sub(r"\0+(?=[^\w\0]|$)|(?:(?<=[^\w\0])|^)\0+", "", text)).strip()

    def plain(self) -> str:
        """Its words with nouns in place of files, and with quoted texts."""
        words = clue("noun twice").sub(r"\1", "".join(self._called(character) for character in self.text))
        return clue("opener").sub("", words).strip(" ，,。：:！!")

    def add(self, text: str, role: str = "") -> str:
        """A text as a new mark."""
        return self.masked.add(Entity("text", text, role=role))

    def quoted(self, text: str) -> str:
        """A text as a new mark; its own marks where it has nothing else."""
        marks = re.findall(MARK, text)
        if marks and not re.sub(rf"{MARK}|[\s的是为叫做：:，,]|图[片像]?|内容", "", text):
            return " ".join(marks)
        return self.add(self.masked.restored(text).strip(" ：:，,。！!"))

    def _called(self, character: str) -> str:
        mark = self.masked.marks.get(character)
        if mark is None:
            return character
        return _NOUN_OF_FILE.get(mark.kind, "文件") if mark.is_file else f"“{mark.value}”"


@dataclass(frozen=True, slots=True)
class ClauseMatch:
    """A rule that fits a clause.

    Attributes:
        groups: the words of the clause by the pattern's group, without digits at the end of the group's name.
    """

    rule: Rule
    clause: Clause
    groups: Mapping[str, str]

    @property
    def others(self) -> list[str]:
        """The marks outside the groups of labels, prompt and map."""
        held = "".join(self.groups.get(name, "") for name in ("a", "rest", "labels", "quote"))
        return [mark for mark in self.clause.marks if mark not in held]

    @property
    def quotes(self) -> list[str]:
        """The marks of quoted texts."""
        return [mark for mark in self.clause.marks if not self.clause.masked.marks[mark].is_file]


def clause_of(text: str, masked: MaskedText) -> Clause:
    """A clause with its signs."""
    signs = as_signs(text, masked)
    for cue in ("polite", "aloud") if clue("asks politely").search(signs) else ("aloud",):
        signs = clue(cue).sub(lambda words: " " * len(words.group()), signs)
    return Clause(text, masked, signs)


def found(rule: Rule, clause: Clause, kinds: set[str]) -> ClauseMatch | None:
    """The match of a rule with a clause that is about these kinds, if it fits."""
    if rule.kinds and not rule.kinds & kinds:
        return None
    match = rule.pattern.search(clause.signs)
    if match is None:
        return None
    held = {name: span for name in match.groupdict() if (span := match.span(name)) != (-1, -1)}
    return ClauseMatch(
        rule, clause, {name.rstrip("0123456789"): clause.text[a:b] for name, (a, b) in held.items()}
    )


def in_english(hit: ClauseMatch) -> str:
    """The English words of a rule, its slots filled."""
    names = re.findall(r"{(\w+)}", hit.rule.english)
    slots = {name: SLOTS[name](hit) if name in SLOTS else hit.groups.get(name, "") for name in names}
    aloud = " aloud" if clue("aloud").search(hit.clause.text) else ""
    is_detailed = hit.rule.task == "image-to-text" and clue("detail").search(hit.clause.text)
    detail = " in as much detail as possible" if is_detailed else ""
    return re.sub(r"\s+", " ", hit.rule.english.format(**slots) + detail + aloud).strip()


def _it(hit: ClauseMatch) -> str:
    named = " ".join(hit.others)
    if hit.rule.task in ("text-to-speech", "translation"):
        made = (noun for noun in ("description", "summary") if clue(f"{noun} of").search(hit.clause.signs))
        named = "".join(f"the {noun} of " for noun in made) + named
    above = " above" if clue("earlier").search(hit.clause.text) else ""
    both = " both" if not named and clue("plural").search(hit.clause.text) else ""
    return (named or _reference(hit)) + both + above


def _reference(hit: ClauseMatch) -> str:
    """The English reference of a clause that names nothing ("把译文…", "它")."""
    words = re.search(
        r"(?:把|将|给|对|用|比较|计算|根据|按照?|基于|为|朗读|翻译|总结|[读念])(?P<of>.*)", hit.clause.signs
    )
    for pattern, english in load_rules().references.items():
        if words and re.match(
            rf"(?:这|那|其|它的?|你的?|上面的?|刚才的?|生成的|得到的|一下|[段张份个条篇首些])*(?:{pattern})",
            words["of"],
        ):
            return english
    return hit.rule.noun


def _source(hit: ClauseMatch) -> str:
    language = hit.groups.get("source", "")
    return f" from {_languages(language)}" if language else ""


def _languages(text: str) -> str:
    rules = load_rules()
    names = re.findall(rules.language, text) or [text]
    known = (name if name in rules.languages else re.sub(r"[文语]$", "", name) for name in names)
    return " and ".join(map(rules.languages.__getitem__, known))


def _in_language(hit: ClauseMatch) -> str:
    """The language in which a text is wanted ("用法语描述")."""
    language = load_rules().language
    words = re.search(
        rf"(?:用|以)({language})|({language})(?:的|版)?(?:描述|说明|标题|总结|摘要|概括)", hit.clause.signs
    )
    name = words and (words[1] or words[2])
    return f" in {_languages(name)}" if name and not re.match("中|汉|普通话|国语", name) else ""


def _number(name: str) -> Callable[[ClauseMatch], str]:
    return lambda hit: str(as_number(hit.groups.get(name, "")))


def as_number(text: str) -> int:
    """A number below a thousand, in digits or in Chinese ("二十四")."""
    if text.isdecimal():
        return int(text)
    total = digit = 0
    for sign in text:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
        else:
            total += (digit or 1) * {"十": 10, "百": 100}.get(sign, 1)
            digit = 0
    return total + digit


def _box(hit: ClauseMatch) -> str:
    return ", ".join(re.findall(r"-?\d+", hit.groups["box"]))


def _labels(hit: ClauseMatch) -> str:
    text = hit.groups.get("labels", "")
    if marks := re.findall(MARK, text):
        values = [hit.clause.masked.marks[mark].value for mark in marks]
    else:
        values = [_label(label) for label in clue("and").split(clue("after labels").sub("", text))]
    return hit.clause.add(", ".join(filter(None, values)), "labels")


def _label(words: str) -> str:
    bare = clue("after labels").sub("", clue("label head").sub("", words.strip()))
    tail = clue("label tail").sub("", bare)
    return tail if len(tail) > 1 else bare


def _question(hit: ClauseMatch) -> str:
    """A quoted question, else the clause."""
    return next(iter(_quoted_questions(hit)), "") or hit.clause.add(hit.clause.plain(), "question")


def _asked(hit: ClauseMatch) -> str:
    """The question about a text: the last quoted question, else the words that ask."""
    quoted, words = _quoted_questions(hit), _question_words(hit)
    if quoted and (len(hit.quotes) > 1 or not words):
        return quoted[-1]
    return hit.clause.add(words or hit.clause.plain(), "question")


def _quoted_questions(hit: ClauseMatch) -> list[str]:
    marks = hit.clause.masked.marks
    return [mark for mark in hit.quotes if clue("question").search(marks[mark].value)]


def _question_words(hit: ClauseMatch) -> str:
    text = re.sub(rf"^{MARK}(?=[^里中内上的，,。：:；;\s{MARK[1:-1]}])", "这段文字", hit.clause.text)
    pieces = [p.strip() for p in re.split(rf"{MARK}|[，,。：:；;]", text)]
    asking = [p for p in pieces if clue("question").search(p)]
    words = clue("before question").sub("", asking[-1]) if asking else ""
    return re.sub(r"^(?:里面?|中|来?看|这段话|文中|请问|请|那么|的)+(?=\S{4})", "", words)


def _about(hit: ClauseMatch) -> str:
    asked = _asked(hit)
    return " ".join(mark for mark in hit.clause.marks if mark != asked) or "it"


def _rank(hit: ClauseMatch) -> str:
    """The texts to be ranked, and the query if the clause has one."""
    cue = clue("query").search(hit.clause.signs)
    place = next((cue.start(name) for name in ("a", "b") if cue and cue[name]), None)
    query = hit.clause.text[place] if place is not None else ""
    texts = [mark for mark in hit.quotes if mark != query]
    relevant = f"by how relevant they are to the query {query}" if query else "by relevance"
    return f"{' '.join(texts)} {relevant}"


def _write(hit: ClauseMatch) -> str:
    """The request to a language model: the clause, with its files."""
    refers = re.search(
        r"(?:根据|用|把|以|给|按照?|基于|为|围绕)(?:这|那|上|刚|它|其|描述|摘要|译文|文字|内容|结果|故事|标题|诗)",
        hit.clause.text,
    )
    if hit.quotes or not (hit.clause.marks or refers):
        return _clause(hit)
    return hit.clause.text if hit.clause.marks else f"{hit.clause.text} (it)"


def _clause(hit: ClauseMatch) -> str:
    return hit.clause.add(hit.clause.plain())


def _rest(hit: ClauseMatch) -> str:
    words = hit.groups.get("rest", "")
    return hit.clause.quoted(words) if words.strip(" ，,。") else ""


SLOTS: Mapping[str, Callable[[ClauseMatch], str]] = {
    "it": _it,
    "others": lambda hit: " ".join(hit.others),
    "quote": lambda hit: hit.groups.get("quote") or " ".join(hit.quotes) or hit.rule.noun,
    "language": lambda hit: _languages(hit.groups["language"]),
    "source": _source,
    "in_language": _in_language,
    "number": _number("number"),
    "width": _number("width"),
    "height": _number("height"),
    "box": _box,
    "labels": _labels,
    "question": _question,
    "asked": _asked,
    "about": _about,
    "rank": _rank,
    "write": _write,
    "clause": _clause,
    "rest": _rest,
}
"""The function that fills each slot. Any other slot is the pattern's group of that name."""
