"""Plain Chinese requests, put step by step in the English words that the planner's other stages know.

    marked = mark("把 page.png 里的文字读出来，然后转录录音", files)
    steps(marked)     # [Step("read \\ue000 aloud", …), Step("transcribe the recording", …)]

A handful of rules, the first that fits a clause wins. Texts that are to be worked on stay Chinese.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from jarvis_agent.offline.marks import MARK, Mark, Marked
from jarvis_agent.offline.steps import Step

_HAN = re.compile(r"[\u4e00-\u9fff]")
_CUT = re.compile(
    r"[。！？；，,;!\n]+|然后|接着|随后|最后|同时|另外|并且|(?<!合)并(?!且)|(?<=[\u4e00-\u9fff])再(?!见)"
)
_LANGUAGES = {
    "中": "Chinese", "汉": "Chinese", "英": "English", "法": "French", "德": "German", "日": "Japanese",
    "韩": "Korean", "俄": "Russian", "西班牙": "Spanish", "意大利": "Italian", "葡萄牙": "Portuguese",
    "阿拉伯": "Arabic",
}  # fmt: skip
_LANGUAGE = rf"(?P<language>{'|'.join(_LANGUAGES)})(?:文|语)"
_MAKE = r"(?:生成|画出?|绘制|创作|制作|创建)"
_MAP_PROMPT = r"(?=.*(?:生成|画|创建).*(?:新|图))(?=.*(?:提示|文字|文本))"


@dataclass(frozen=True, slots=True)
class Rule:
    """A clause in which `pattern` is found means `english`.

    Slots: `{it}` what the clause names, else `noun`; `{language}`; `{number}` the pattern's group of that
    name; `{rest}` and `{clause}`: the group of that name, or the whole clause, as a quoted text.
    """

    pattern: re.Pattern[str]
    english: str
    noun: str = "it"


def _rule(pattern: str, english: str, noun: str = "it") -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), english, noun)


RULES: tuple[Rule, ...] = (
    _rule(r"(?:提取|抽取|分离|取出).*(?:音频|声音|音轨)", "extract the audio from the video {it}", ""),
    _rule(r"(?P<number>\d+)\s*(?:个|张)?(?:帧|截图|画面)", "extract {number} frames from {it}", "the video"),
    _rule(r"(?:提取|抽取|截取).*(?:帧|截图|画面)", "extract frames from {it}", "the video"),
    _rule(r"(?P<number>\d+\s*[x×*]\s*\d+)", "resize {it} to {number} pixels", "the image"),
    _rule(r"裁剪|裁出|剪裁", "crop the image {it}", ""),
    _rule(r"预测.*?(?P<number>\d+)", "forecast the next {number} rows of {it}", "the table"),
    _rule(r"预测", "forecast {it}", "the table"),
    _rule(r"表格.*(?:谁|哪|什么|多少|几|吗|最)", "answer the question {clause} from the table {it}", ""),
    _rule(rf"{MARK}.*(?:3d|三维)|(?:3d|三维).*{MARK}", "make a 3D model from {it}"),
    _rule(rf"{_MAKE}(?:一个)?(?P<rest>.+?)的?(?:3d|三维)模型", "make a 3D model of {rest}"),
    _rule(r"动起来|活起来", "animate the image {it}", ""),
    _rule(rf"{_MAKE}(?:一段|一首)?(?P<rest>.+?)的?(?:音乐|歌曲|曲子)", "generate music of {rest}"),
    _rule(r"关键点|关节", "find the keypoints in the image {it}", ""),
    _rule(r"随机.*(?:图|画)", "generate a random image"),
    _rule(rf"(?:翻译|译)(?:成|为|到)?{_LANGUAGE}", "translate {it} to {language}"),
    _rule(r"翻译", "translate {it}"),
    _rule(
        r"转录|转写|听写|语音识别|转(?:换)?(?:成|为)文字|(?:录音|音频).*(?:说|讲)了?什么",
        "transcribe {it}",
        "the recording",
    ),
    _rule(r"降噪|去噪|噪音|噪声", "remove the noise from the recording {it}", "it"),
    _rule(
        r"朗读|读出|念出|念给|读给|念一?遍|读一?遍|配音|转(?:换)?(?:成|为)语音|说出来|大声", "read {it} aloud"
    ),
    _rule(
        rf"{_MAP_PROMPT}(?:canny|边缘|轮廓)",
        "from the canny edge image and the prompt, generate an image {it}",
        "",
    ),
    _rule(r"canny|边缘|轮廓", "make a canny edge image of {it}"),
    _rule(rf"{_MAP_PROMPT}(?:姿态|姿势)", "from the pose and the prompt, generate an image {it}", ""),
    _rule(r"姿态|姿势|骨架", "detect the pose of the person in {it}"),
    _rule(rf"{_MAP_PROMPT}深度", "from the depth map and the prompt, generate an image {it}", ""),
    _rule(r"深度图", "make a depth map of {it}"),
    _rule(r"深度", "estimate the depth of {it}"),
    _rule(r"法线", "make a normal map of {it}"),
    _rule(r"分割|抠图", "segment the image {it}", ""),
    _rule(
        r"(?:图|照片|画面).*(?:做什么|吗|谁|哪|怎么|为什么|颜色)",
        "answer the question {clause} about the image {it}",
        "",
    ),
    _rule(rf"{_MAKE}.*?(?:视频|动画)[:：]?(?P<rest>[^的]+)$", "generate a video of {rest}"),
    _rule(rf"{_MAKE}(?:一(?:个|段))?(?P<rest>.+?)的?(?:视频|动画)", "generate a video of {rest}"),
    _rule(r"多少|几(?:只|个|辆|人|头|条|匹|位)|数一数|计数", "how many objects are in {it}", "the image"),
    _rule(r"检测|目标|有哪些(?:物体|东西)", "detect the objects in {it}", "the image"),
    _rule(r"什么(?:动物|东西|品种|鸟|花|狗|猫)|图.*分类", "what animal is in {it}", "the image"),
    _rule(
        r"(?:提取|识别|读|认|写着|写了|抄).*(?:文字|字|什么|内容)|文字.*(?:提取|识别)|ocr",
        "read the text in {it}",
        "the image",
    ),
    _rule(r"描述|说说|讲讲|介绍|(?:图|照片).*(?:内容|有什么|是什么$)", "describe {it}", "the image"),
    _rule(r"总结|摘要|概括|归纳", "summarize {it}"),
    _rule(r"情感|情绪|正面|负面|褒义|贬义", "classify the sentiment of {it}"),
    _rule(r"实体|人名|地名", "find the named entities in {it}"),
    _rule(r"写(?:一)?(?:首|篇|个|段|封)", "write {clause}"),
    _rule(rf"{_MAKE}(?:一(?:张|幅))?(?P<rest>.+?)的?(?:图片|图像|照片|图)?$", "generate an image of {rest}"),
)


def is_chinese(text: str) -> bool:
    """Whether the words of a text, its marks aside, are mostly Chinese."""
    return len(_HAN.findall(text)) > len(re.findall(r"[A-Za-z]+", text))


def steps(marked: Marked) -> list[Step]:
    """The steps of a marked Chinese request. Clauses that no rule fits are context, or all are steps."""
    clauses = [clause.strip() for clause in _CUT.split(marked.text) if clause.strip()]
    found: list[Step] = []
    waiting: list[str] = []
    for clause in clauses:
        english = _in_english(clause, marked)
        if english is None:
            waiting.append(clause)
            continue
        found.append(Step(english, " ".join(waiting), told=marked.restored(clause)))
        waiting = []
    if not found:
        return [Step(clause, told=marked.restored(clause)) for clause in clauses]
    found[-1] = replace(found[-1], context=" ".join([found[-1].context, *waiting]).strip())
    return found


def _in_english(clause: str, marked: Marked) -> str | None:
    for rule in RULES:
        match = rule.pattern.search(clause)
        if match is None:
            continue
        named = " ".join(re.findall(MARK, clause))
        groups = match.groupdict()
        quoted = {"rest": groups.get("rest") or "", "clause": clause}
        slots = {
            slot: marked.add(Mark("text", marked.restored(text).strip("：: ")))
            if f"{{{slot}}}" in rule.english
            else ""
            for slot, text in quoted.items()
        }
        if re.search(MARK, groups.get("rest") or ""):
            slots["rest"] = named
        language = _LANGUAGES.get(groups.get("language") or "", "")
        number = groups.get("number") or ""
        above = " above" if re.search(r"上面|刚才|之前|上一", clause) else ""
        return rule.english.format(
            it=(named or rule.noun) + above, language=language, number=number, **slots
        ).strip()
    return None
