"""Plain Chinese requests, put step by step in the English words that the planner's other stages know.

    masked = mask_entities("把 page.png 里的文字读出来，然后转录录音", files)
    steps(masked)     # [Step("read \\ue000 aloud", …), Step("transcribe the recording", …)]

The request is cut into clauses; the first rule of `chinese_rules` that fits a clause says what it means, and
`chinese_slots` what it is about. Texts that are to be worked on stay Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from jarvis_agent.offline.chinese_rules import CONTEXT, load_rules
from jarvis_agent.offline.chinese_slots import Found, clause_of, found, in_english
from jarvis_agent.offline.clauses import Step
from jarvis_agent.offline.limits import MOST_READ
from jarvis_agent.offline.masking import MARK, MOST_SEARCHED, Entity, MaskedText
from jarvis_agent.offline.phrases import UNKNOWN
from jarvis_agent.tools.table import TASKS

LONGEST_ORDER = 150
"""A clause of more letters is a text that somebody pasted, not an order."""
_HAN = re.compile(r"[\u4e00-\u9fff]")
_VERB = (
    r"(?:把|将|给|对|用|让|请|帮|再|就|翻|译|总结|概括|朗|念|读|转|生成|画|做|配|合|提取|分[割析类]|检测|描述|写|识别|"
    r"找|框|判断|估|抽|裁|缩|放大|变|换|改|说|告诉|列|计算|数|标|抠|预测|制作)"
)
_MAP = r"(?:一张)?\s*(?:canny|hed|边缘|轮廓|姿态|姿势|骨架|深度|法线|分割|线段|直线|涂鸦|草图)"
_CUT = re.compile(
    r"[。！!？；;\n]+|[，,](?!\s*\d)|(?<!\d)[，,]"
    r"|然后|接着|随后|紧接着|最后|(?=同时|另外|此外|顺便|顺带)|并且|并(?![且不非排列])(?<!合并)"
    rf"|(?<=[\u4e00-\u9fff\ue000-\uf8ff ])再(?!见|次|一|加上?[^，]{{0,4}}图)"
    rf"|(?:之后|以后|完(?:了|后)?|(?<=[\u4e00-\u9fff])后)(?=\s*{_VERB})"
    rf"|(?:以及|还有|和|与|及)(?=(?:把|将|给我?|告诉我|帮我)\S)"
    r"|(?:(?<=视频)|(?<=声音)|(?<=音乐)|(?<=音效)|(?<=图片)|(?<=图)|(?<=故事)|(?<=诗))(?:和|与|以及|、|还有)(?=一[段张首幅个篇])",
    re.IGNORECASE,
)
_RESULT = (
    r"(?:摘要|总结|概要|要点|情[感绪]分析|翻译|描述|说明|标题|分割图?|检测|分类|转写|朗读|语音|关键词|实体|人名|地名|"
    r"文字稿|深度图|边缘图|轮廓图|姿态图|姿势图|骨架图|法线图|直线图|草图|线稿|涂鸦|Canny图?|HED图?)"
)
_LISTED = re.compile(
    rf"(?<=[\u4e00-\u9fff\ue000-\uf8ff、])({_RESULT})\s*(?:、|和|与|跟|以及|还有|及)\s*(?={_RESULT}(?!的))(?!人名和地名)",
    re.IGNORECASE,
)
"""Results in a row ("做摘要和情感分析"); each is a step of its own."""
_CHAINED = re.compile(
    r"((?:翻译?|译)成[\u4e00-\u9fff]{1,5}?[语文]|(?:总结|概括|描述|翻译)(?:一下|出来)?)(?=(?:念|读|朗读)(?:给|出))"
)
"""A verb after which the next one follows at once ("翻译成法语念给我听")."""
_BESIDE = re.compile(r"^(?:同时|另外|此外|顺便|顺带|还有)+(?:也|还|再|请)*")
"""What says that a step goes beside the one before it, rather than on with what that one makes."""
_PARTICLES = re.compile(
    r"(?:呗|呀|啊|嘛|哈|哦|咯|啦|哟|呐|哒|(?<![酒网贴氧水书茶话迪餐])吧)+(?=[。！!？?，,；;\s]|$)"
)
_GOES_BY = re.compile(
    r"^(?:请|先|再)?(?:根据|依据|按照?|依照|照着|基于|参照|参考)|"
    r"^(?:以|沿用|保持|用)(?!.*(?:描述|总结|翻译|说|念|读|概括|介绍|回答|讲|[做转]成))|"
    rf"^(?:这是|这张)?{_MAP}图?片?{MARK}$|"
    rf"^(?:结合|综合|对照)[^？?]*{MARK}$|^(?:已知|给定|假设|假如)[^？?]*{MARK}$|"
    r"^(?!.*合[成并]).*(?:放在?一起|结合(?:起来|着)?|对照着?)(?:看|听|来看|分析|一下|考虑)*$"
)
_MAKES = re.compile(
    r"生成|画出?(?!的|了|着|面|里|中)|绘制|创作|制作|创建|渲染|[吗呢？]|什么|多少|几|哪|谁|写"
)
_ONLY_MARKS = re.compile(
    rf"(?:你?(?:听听|听一下|看看|看一下|看一看|瞧瞧|打开)\s*(?=.*{MARK}))?(?:这[张个段份])?(?:{MARK}|[\s、和与或及:：。])+"
)
_TAIL = re.compile(
    r"^(?:一?共|总共|大约|大概|最好|只)?(?:要|需要|取|截|抽)?\s*(?:\d+|[一二两三四五六七八九十百]+)(?:张|个|帧|次|行|天|份|条)\S{0,3}$|"
    r"^(?:如果|若|要是)?(?:有|没有|是|能|可以)的?话|^(?:要|改成|变成|设为|调到|缩到)?[宽高]|^在哪|^分别是|^(?:图[中里]|画面?[中里])(?!有|是)|^.{0,6}(?:姿势|姿态|动作|轮廓|构图|布局)(?:和|跟|与|同|像).*(?:一样|相同|一致)|^(?:内容|主题|画面)(?:就|要)?(?:是|为)|"
    r"^(?:请|就)?用?一两?句话(?:说|描述|概括|说明|回答|介绍)*(?:一下|清楚)?(?:就行|即可)?$|^简单(?:说说|描述|概括)|^(?:越|尽量|尽可能)详细|"
    r"^(?:请|帮我|再)?(?:圈|框|标|指)(?:一下|出来?|起来)(?:位置)?$|^\S{1,6}(?:那种|的那种)$|^(?:候选)?(?:标签|类别|选项|分类)(?:有|是|为)*[：:]"
)
_MORE = re.compile(
    r"^(?:背景|说明|风格|画面|要求|色调|主题|内容|里面|天空|旁边|远处|要有|带有|穿着?|手里|不要|字数|语气|大约|大概|就说|"
    r"说|提到|包括|题目|押韵|要|用词|格式|最好|适合|署名|收件人|开头|结尾|控制在|不超过)"
)
_REFUSED = re.compile(r"^(?:不要|别|不用|不必|无需|不需要)")
_FIELD = re.compile(rf"(?P<word>[^。！？；，,\n：:{MARK[1:-1]}]{{0,14}})[：:]\s*(?=[^{MARK[1:-1]}\s])")
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
_NEXT = re.compile(
    r"[。！？；\n]\s*(?=(?:然后|接着|再|最后|请|并|把|将|顺便|同时|问题|标签|类别)|(?:帮我|给我))"
)


def is_chinese(text: str) -> bool:
    """Whether the words of a text, its marks aside, are mostly Chinese."""
    return len(_HAN.findall(text)) > len(re.findall(r"[A-Za-z]+", text))


def steps(masked: MaskedText, at_hand: Collection[str] = ()) -> list[Step]:
    """The steps of a masked Chinese request. Clauses that no rule fits are context, or all are steps.

    Args:
        at_hand: the kinds of files that came with it unnamed, or are of earlier turns of the chat.
    """
    if masked.is_cut:
        masked.take(_mark_fields(masked.whole, masked, until=MOST_READ // 2))
    text = re.sub(rf"[^\S\n]*({MARK})[^\S\n]*", r"\1", masked.text)
    masked.text = _mark_fields(text, masked, until=len(text))
    masked.text = _LISTED.sub(r"\1，另外", _CHAINED.sub(r"\1，", _PARTICLES.sub("", masked.text)))
    texts = _joined([text.strip() for text in _CUT.split(masked.text) if text.strip()])
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
        self._last: Found | None = None

    def add(self, text: str) -> None:
        """Make a step of a clause, or add it to the one before, or keep it as context."""
        is_beside = bool(_BESIDE.match(text))
        text = _BESIDE.sub("", text)
        hit = None if _REFUSED.match(text) else self._found(text)
        last = self._last
        if last and last.rule.is_open and not re.search(MARK, text) and (hit is None or _MORE.match(text)):
            longer = self._found(f"{last.clause.text}，{text}")
            if longer is not None and longer.rule.task == last.rule.task:
                self.steps.pop()
                hit = longer
        self._at_hand |= clause_of(text, self._masked).kinds()
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

    def _found(self, text: str) -> Found | None:
        """The first rule that fits what the clause names, else what was made last, else what is at hand."""
        if len(text) > LONGEST_ORDER:
            return None
        clause = clause_of(text, self._masked)
        named = clause.kinds() or (set() if self._made else self._at_hand)
        for kinds in [named] if named or not self._made else [self._made, self._at_hand]:
            hits = (found(rule, clause, kinds) for rule in load_rules().all)
            hit = next((hit for hit in hits if hit is not None), None)
            if hit is not None:
                return hit
        return None


def _says_again(hit: Found, last: Found) -> bool:
    """Whether a clause names nothing and says nothing that the one before did not ("…, so clean it")."""
    says_more = set(re.findall(r"{(\w+)}", hit.rule.english)) - {"it", "tongue"}
    return hit.rule.task == last.rule.task and not says_more and not hit.clause.marks


def _joined(texts: list[str]) -> list[str]:
    """Clauses, with those that are no clause by themselves joined to the one that they belong to.

    What the next one goes by ("根据 \ue000 的姿态，…") goes before it; files alone, numbers and conditions go
    to the one before.
    """
    joined: list[str] = []
    opening = ""
    for place, text in enumerate(texts):
        is_opening = _GOES_BY.match(text) and not _MAKES.search(text)
        if place + 1 < len(texts) and (is_opening or (not joined and _ONLY_MARKS.fullmatch(text))):
            opening += f"{text}，"
        elif joined and not opening and (_ONLY_MARKS.fullmatch(text) or _TAIL.match(text)):
            joined[-1] += f"，{text}"
        else:
            joined.append(opening + text)
            opening = ""
    return joined


def _mark_fields(text: str, masked: MaskedText, until: int) -> str:
    """`翻译成英文：今天天气很好`: what stands after a colon before `until` becomes a mark."""
    start = 0
    for _ in range(MOST_SEARCHED // (len(text) + 1)):
        match = _FIELD.search(text, start)
        if match is None or match.start() >= until:
            break
        start = match.end()
        role = next((role for role, words in _FIELDS.items() if words.search(match["word"])), None)
        stop = _NEXT.search(text, start)
        end = stop.start() if stop else len(text)
        value = text[start:end]
        if role is None or any(mark.is_file for mark in masked.within(value)):
            continue
        character = masked.add(Entity("text", masked.restored(value).strip(), role=role))
        text = f"{text[:start]}{character}{text[end:]}"
        start += 1
    return text
