"""Plain Chinese requests: each clause becomes a step in the English words that the other stages understand.

    masked = mask_entities("把 page.png 里的文字读出来，然后转录录音", files)
    steps(masked)     # [Step("read \\ue000 aloud", …), Step("transcribe the recording", …)]

The request is cut into clauses. The first rule of `chinese_rules` that fits a clause gives its English words,
and `chinese_slots` fills their slots. Texts to be worked on stay Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.planning.offline.chinese_rules import CONTEXT, load_rules
from jarvis_agent.planning.offline.chinese_slots import Clause, ClauseMatch, clause_of, found, in_english
from jarvis_agent.planning.offline.clauses import Step
from jarvis_agent.planning.offline.masking import MARK, MAX_READ, MAX_SEARCHED, Entity, MaskedText
from jarvis_agent.planning.offline.patterns import Patterns
from jarvis_agent.planning.offline.phrases import UNKNOWN

_RE = Patterns("chinese")

LONGEST_ORDER = 150
"""A clause of more characters is pasted text, not an order."""
_FIELDS = {
    "question": re.compile(r"问题$|提问$"),
    "labels": re.compile(r"(?:标签|类别|选项|候选)(?:有|是|为|之一|中|里)?$"),
    "context": re.compile(r"(?:背景|上下文|原文|材料)$"),
    "": re.compile(
        r"补|猜|翻|译|朗读|念|读|总结|概括|摘要|缩写|情感|情绪|语气|态度|实体|人名|填|改写|润色|这段|这句|这篇|文章|下面|以下|如下|"
        r"句子?|新闻|评论|留言|短信|消息|邮件|文本|文字|段落|向量"
    ),
}
"""By the role of a text after a colon: what stands before it."""


def is_chinese(text: str) -> bool:
    """Whether the words of a text, its marks aside, are mostly Chinese."""
    return len(_RE.HAN.findall(text)) > len(re.findall(r"[A-Za-z]+", text))


def steps(masked: MaskedText, at_hand: Collection[str] = ()) -> list[Step]:
    """The steps of a masked Chinese request. A clause that no rule fits is context, unless none fits any.

    Args:
        at_hand: the kinds of attached files that it does not name, and of files of earlier turns.
    """
    if masked.is_cut:
        masked.take(_mark_fields(masked.whole, masked, until=MAX_READ // 2))
    text = re.sub(rf"[^\S\n]*({MARK})[^\S\n]*", r"\1", masked.text)
    masked.text = _mark_fields(text, masked, until=len(text))
    masked.text = _RE.LISTED.sub(r"\1，另外", _RE.CHAINED.sub(r"\1，", _RE.PARTICLES.sub("", masked.text)))
    texts = _joined([text.strip() for text in _RE.CUT.split(masked.text) if text.strip()])
    reading = _Reading(masked, set(at_hand))
    for text in texts:
        reading.add(text)
    if not reading.steps:
        return [Step(text, original=clause_of(text, masked).original(), task=UNKNOWN) for text in texts]
    last = reading.steps[-1]
    return [*reading.steps[:-1], replace(last, context=" ".join([last.context, *reading.waiting]).strip())]


class _Reading:
    """The clauses of a request, read one after the other."""

    def __init__(self, masked: MaskedText, at_hand: set[str]) -> None:
        self.steps: list[Step] = []
        self.waiting: list[str] = []
        self._masked = masked
        self._at_hand = at_hand
        self._made: set[str] = set()
        self._last: ClauseMatch | None = None

    def add(self, text: str) -> None:
        """Make a step of a clause, or add it to the one before, or keep it as context."""
        is_beside = bool(_RE.BESIDE.match(text))
        text = _RE.BESIDE.sub("", text)
        hit = None if _RE.REFUSED.match(text) or _RE.ERRAND.match(text) else self._found(text)
        last = self._last
        if last and last.rule.is_open and not re.search(MARK, text) and (hit is None or _RE.MORE.match(text)):
            longer = self._found(f"{last.clause.text}，{text}")
            if longer is not None and longer.rule.task == last.rule.task:
                self.steps.pop()
                hit = longer
        self._at_hand |= clause_of(text, self._masked).kinds()
        if _RE.ERRAND.match(text) or (hit is None and self.steps and _RE.OTHER_ORDER.match(text)):
            self.steps.append(Step(text, original=clause_of(text, self._masked).original(), task=UNKNOWN))
            return
        if hit is None or hit.rule.task == CONTEXT:
            self.waiting.append(in_english(hit) if hit else text)
            return
        if last and _says_again(hit, last):
            return
        context, original = " ".join(self.waiting), hit.clause.original()
        self.steps.append(Step(in_english(hit), context, original, hit.rule.task, is_beside))
        self.waiting = []
        self._last = hit
        if hit.rule.task in TASKS:
            self._made = {TASKS[hit.rule.task].outputs[0]}
            self._at_hand |= self._made

    def _found(self, text: str) -> ClauseMatch | None:
        """The first rule that fits the kinds in the clause, else the last result, else the files at hand."""
        if len(text) > LONGEST_ORDER:
            return None
        clause = clause_of(text, self._masked)
        named = clause.kinds() or (set() if self._made else self._at_hand)
        for kinds in [named] if named or not self._made else [self._made, self._at_hand]:
            if (hit := _first(clause, kinds)) is not None:
                return hit
        return None


def _first(clause: Clause, kinds: set[str]) -> ClauseMatch | None:
    """The first rule that fits. "Its …" is made from a file or a result, not from words."""
    rules = load_rules().all
    if _RE.OF_IT.search(clause.text):
        rules = tuple(rule for rule in rules if "{rest}" not in rule.english)
    hits = (found(rule, clause, kinds) for rule in rules)
    return next((hit for hit in hits if hit is not None), None)


def _says_again(hit: ClauseMatch, last: ClauseMatch) -> bool:
    """Whether a clause only repeats the one before it ("…, so clean it")."""
    says_more = set(re.findall(r"{(\w+)}", hit.rule.english)) - {"it", "in_language"}
    return hit.rule.task == last.rule.task and not says_more and not hit.clause.marks


def _joined(texts: list[str]) -> list[str]:
    """The clauses, with fragments joined to the clause that they belong to.

    A basis ("根据 \ue000 的姿态，…") belongs to the next clause; files alone, numbers and conditions
    belong to the clause before.
    """
    joined: list[str] = []
    opening = ""
    for place, text in enumerate(texts):
        is_opening = _RE.GOES_BY.match(text) and not _RE.MAKES.search(text)
        if place + 1 < len(texts) and (is_opening or (not joined and _RE.ONLY_MARKS.fullmatch(text))):
            opening += f"{text}，"
        elif joined and not opening and (_RE.ONLY_MARKS.fullmatch(text) or _RE.TAIL.match(text)):
            joined[-1] += f"，{text}"
        else:
            joined.append(opening + text)
            opening = ""
    return joined


def _mark_fields(text: str, masked: MaskedText, until: int) -> str:
    """`翻译成英文：今天天气很好`: what stands after a colon before `until` becomes a mark."""
    start = 0
    for _ in range(MAX_SEARCHED // (len(text) + 1)):
        match = _RE.FIELD.search(text, start)
        if match is None or match.start() >= until:
            break
        start = match.end()
        role = next((role for role, words in _FIELDS.items() if words.search(match["word"])), None)
        stop = _RE.NEXT.search(text, start)
        end = stop.start() if stop else len(text)
        value = text[start:end]
        if role is None or any(mark.is_file for mark in masked.within(value)):
            continue
        character = masked.add(Entity("text", masked.restored(value).strip(), role=role))
        text = f"{text[:start]}{character}{text[end:]}"
        start += 1
    return text
