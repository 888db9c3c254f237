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
    r"|(?<=图)\s*(?:和|与|以及|及|、)\s*(?=(?:一张)?\s*(?:canny|hed|边缘|轮廓|姿态|深度|法线|分割|线段|直线|涂鸦)\S*\s*\S*图)",
    re.IGNORECASE,
)
_OPENING = re.compile(r"^(?:请|先|再)?(?:根据|依据|按照?|依照|照着|基于|参照|参考)")
_LANGUAGES = {
    "中": "Chinese", "汉": "Chinese", "英": "English", "法": "French", "德": "German", "日": "Japanese",
    "韩": "Korean", "俄": "Russian", "西班牙": "Spanish", "意大利": "Italian", "葡萄牙": "Portuguese",
    "阿拉伯": "Arabic",
}  # fmt: skip
_ONE = rf"(?:{'|'.join(_LANGUAGES)})(?:文|语)"
_LANGUAGE = rf"(?P<language>{_ONE}(?:(?:、|和|与|及|以及|还有)*{_ONE})*)"
_MAKE = r"(?:生成|画出?(?!的|了|着|面|里|中)|绘制|创作|制作|创建|渲染)"
_MAPS = {
    r"canny|边缘|轮廓": "canny edge",
    r"姿态|姿势|骨架|骨骼": "pose",
    r"深度图": "depth map",
    r"法线": "normal map",
    r"分割图": "segmentation map",
    r"涂鸦|草图": "scribble",
    r"直线|线段|mlsd": "straight line",
    r"hed|软边": "HED",
}
"""The control maps: how they are called, and what the planner's other stages call them."""
_DRAWN = {"canny edge": "canny edge image", "HED": "HED image", "straight line": "straight line image"}
_GUIDED = (
    r"(?=.*(?:生成|画|绘|创建|创作|制作|做|渲染))"
    r"(?=.*(?:根据|依据|按|依照|照着|基于|参照|参考|沿用|利用|使用|用|以|从|和提示|与提示))"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A clause in which `pattern` is found means `english`.

    Slots: `{it}` what the clause names, else `noun`; `{language}`; `{number}` the pattern's group of that
    name; `{a}` the mark that the group of that name holds and `{others}` the other ones; `{rest}` and
    `{clause}`: the group of that name, or the whole clause, as a quoted text; `{labels}`: the listed ones.
    A rule with a `kind` is for clauses that name a file of that kind.
    """

    pattern: re.Pattern[str]
    english: str
    noun: str = "it"
    kind: str = ""


def _rule(pattern: str, english: str, noun: str = "it", kind: str = "") -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), english, noun, kind)


def _map_rules(nouns: str, map_: str) -> tuple[Rule, ...]:
    """A control map with what a picture shows, with a prompt, and by itself."""
    drawn = _DRAWN.get(map_, map_)
    make = "detect the pose of the person in {it}" if map_ == "pose" else f"make a {drawn} of {{it}}"
    from_it = f"from the {drawn} {{a}} and the prompt, generate an image {{others}}"
    return (
        _rule(
            rf"{_GUIDED}.*?(?P<a>{MARK})[^{MARK[1:-1]}]*?(?:{nouns}).*{MARK}.*?(?:描述|内容|说明)",
            f"based on the {map_} of {{a}} and the description of {{others}}, generate a new image",
        ),
        _rule(rf"{_GUIDED}.*(?:{nouns})图?片?\s*(?P<a>{MARK}).*{MARK}", from_it),
        _rule(
            rf"{_GUIDED}(?=.*(?:提示|文字|文本|{MARK}.*{MARK})).*(?:{nouns})",
            f"from the {drawn} and the prompt, generate an image {{it}}",
            "",
        ),
        _rule(
            rf"{_GUIDED}.*?(?:{nouns}).*{_MAKE}(?:一[张幅个只位])?(?P<rest>(?!.*新的?图)[^{MARK[1:-1]}]{{2,}}?)的?(?:图片|图像|照片|图)?$",
            f"from the {drawn} and the prompt {{rest}}, generate an image {{it}}",
            "",
        ),
        _rule(nouns, make),
    )


RULES: tuple[Rule, ...] = (
    *(rule for nouns, map_ in _MAPS.items() for rule in _map_rules(nouns, map_)),
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
    _rule(
        rf"(?:{_MAKE}|来|要)(?:一[段首])?(?P<rest>.+?)的?(?:音乐|歌曲?|曲子?)$", "generate music of {rest}"
    ),
    _rule(rf"{_MAKE}(?:一段|一首)?(?P<rest>.+?)的?(?:音乐|歌曲|曲子)", "generate music of {rest}"),
    _rule(r"关键点|关节", "find the keypoints in the image {it}", ""),
    _rule(r"随机.*(?:图|画)", "generate a random image"),
    _rule(rf"(?:翻译?|译|改写?|换|转)(?:成|为|到|作)?{_LANGUAGE}", "translate {it} to {language}"),
    _rule(rf"用{_LANGUAGE}(?:怎么|如何|该怎么)", "translate {it} to {language}"),
    _rule(rf"{_LANGUAGE}(?:是什么|怎么[说写讲]|版本?|译文|翻译)", "translate {it} to {language}"),
    _rule(r"翻译", "translate {it}"),
    _rule(
        r"转录|转写|听写|语音识别|(?:写|变|记|整理|转换?|换|打)(?:成|为|出)(?:文字|文本|文稿|字幕|稿)|"
        r"(?:录音|音频|语音).*(?:说|讲)(?:的|了|些)*(?:什么|内容)|(?:文字稿|逐字稿|字幕)",
        "transcribe {it}",
        "the recording",
    ),
    _rule(r"降噪|去噪|噪音|噪声", "remove the noise from the recording {it}", "it"),
    _rule(
        r"朗读|读出|念出|念给|读给|念一?遍|读一?遍|配音|讲给|说给|听一?听|听听|给我听|朗诵|播报|用语音|有声|做成(?:语音|音频)|转(?:换)?(?:成|为)语音|说出来|大声",
        "read {it} aloud",
    ),
    _rule(r"深度|(?:离|距离).*(?:多远|远近)", "estimate the depth of {it}"),
    _rule(r"分割|抠图", "segment the image {it}", ""),
    _rule(
        r"(?:分|归)(?:类)?(?:为|成|到|入)(?P<labels>[^，。]+?[、或和][^，。]+)|"
        r"(?:是|像|属于)(?P<either>[^，。是]+还是[^，。？?]+)",
        "classify {it} as {labels}",
    ),
    _rule(
        r"(?:做|变|制|转换?)(?:成|为)(?:一[段个])?(?:视频|动画|短片|影片)",
        "make a video from the image {it}",
        "",
    ),
    _rule(
        r"金额|总[价额]|日期|编号|号码|地址|多少钱|签[名字]|电话",
        "answer the question {clause} from the document image {it}",
        "",
        kind="image",
    ),
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
    _rule(r"向量|特征|嵌入", "compute the embedding of the image {it}", "", kind="image"),
    _rule(
        r"(?:变|改|换|转|画)(?:成|为)|风格|上色|修复|放大|清晰|去掉|去除|加上|添加|背景",
        "change the image {it} as told {clause}",
        "",
        kind="image",
    ),
    _rule(
        r"什么(?:声|乐器|音乐|动物|语言)|声音.*(?:什么|分类|类)",
        "what kind of sound is in the recording {it}",
        "",
        kind="audio",
    ),
    _rule(
        r"(?:什么时候|哪[些段]|何时).*(?:说话|讲话|人声|语音)|语音活动",
        "when does somebody speak in the recording {it}",
        "",
        kind="audio",
    ),
    _rule(r"(?:是|有|画)(?:了|的是|着)?(?:什么|啥)(?:内容)?$", "describe {it}", "the image", kind="image"),
    _rule(
        r"吗|谁|哪|怎么|为什么|颜色|穿|戴|拿|天气|什么|是不是|有没有",
        "answer the question {clause} about the image {it}",
        "",
        kind="image",
    ),
    _rule(r"描述|讲述", "describe the video {it}", "", kind="video"),
    _rule(
        r"什么|吗|谁|哪|怎么|为什么", "answer the question {clause} about the video {it}", "", kind="video"
    ),
    _rule(r"描述|说说|讲讲|介绍|(?:图|照片).*(?:内容|有什么|是什么$)", "describe {it}", "the image"),
    _rule(r"总结|摘要|概括|归纳|概要|大意|要点|缩短|精简", "summarize {it}"),
    _rule(
        r"情感|情绪|正面|负面|褒义|贬义|好评|差评|积极|消极|语气|态度|高兴|开心|生气|心情",
        "classify the sentiment of {it}",
    ),
    _rule(r"(?:相似|意思.*(?:一样|相同|接近)|像不像)", "how similar are the sentences {it}", ""),
    _rule(r"(?:填|补|猜).*(?:词|空|字)|mask", "fill in the missing word in {it}", "the text"),
    _rule(r"向量|嵌入|embedding", "compute the embedding of {it}", "the text"),
    _rule(r"实体|人名|地名", "find the named entities in {it}"),
    _rule(
        r"(?:写|编|讲|作)(?:一|几|两|三)?(?:首|篇|个|段|封|则|句|份|点|条)|续写|改写|润色|想(?:一|几)?个|起(?:一|几)?个",
        "write a story or a poem: {clause}",
    ),
    _rule(rf"{_MAKE}(?:一(?:张|幅))?(?P<rest>.+?)的?(?:图片|图像|照片|图)?$", "generate an image of {rest}"),
)


def is_chinese(text: str) -> bool:
    """Whether the words of a text, its marks aside, are mostly Chinese."""
    return len(_HAN.findall(text)) > len(re.findall(r"[A-Za-z]+", text))


def steps(marked: Marked) -> list[Step]:
    """The steps of a marked Chinese request. Clauses that no rule fits are context, or all are steps."""
    clauses = _joined([clause.strip() for clause in _CUT.split(marked.text) if clause.strip()])
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


def _joined(clauses: list[str]) -> list[str]:
    """Clauses, those that only say what the next one goes by joined with it ("根据 \ue000 的姿态，…")."""
    joined: list[str] = []
    opening = ""
    for place, clause in enumerate(clauses):
        if _OPENING.match(clause) and not re.search(_MAKE, clause) and place + 1 < len(clauses):
            opening += f"{clause}，"
            continue
        joined.append(opening + clause)
        opening = ""
    return joined


def _in_english(clause: str, marked: Marked) -> str | None:
    kinds = {mark.kind for mark in marked.within(clause)}
    for rule in RULES:
        match = rule.pattern.search(clause)
        if match is None or (rule.kind and rule.kind not in kinds):
            continue
        marks = re.findall(MARK, clause)
        named = " ".join(marks)
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
        languages = re.findall("|".join(_LANGUAGES), groups.get("language") or "")
        language = " and ".join(_LANGUAGES[name] for name in languages)
        listed = groups.get("labels") or groups.get("either") or ""
        a = groups.get("a") or ""
        number = groups.get("number") or ""
        above = " above" if re.search(r"上面|刚才|之前|上一", clause) else ""
        return rule.english.format(
            it=(named or rule.noun) + above,
            a=a,
            others=" ".join(character for character in marks if character != a),
            language=language,
            number=number,
            labels=", ".join(re.split(r"、|还是|或者?|和", listed.removesuffix("类"))),
            **slots,
        ).strip()
    return None
