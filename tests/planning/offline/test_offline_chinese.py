"""Plain Chinese requests: where they are cut, what each clause means, and what it is about."""

import pytest

from jarvis_agent.core.request import ChatTurn, RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.planning.offline import OfflinePlanner, chinese
from jarvis_agent.planning.offline.chinese_rules import CONTEXT, as_signs, load_rules
from jarvis_agent.planning.offline.chinese_slots import SLOTS, as_number
from jarvis_agent.planning.offline.marks import Mark, mark
from jarvis_agent.planning.offline.wordings import UNKNOWN

FILES = tuple(
    Resource(kind=kind, name=name)
    for name, kind in {
        "a.jpg": "image", "b.jpg": "image", "scan.png": "image", "v.wav": "audio", "clip.mp4": "video",
        "sales.csv": "table",
    }.items()
)  # fmt: skip
PLANNER = OfflinePlanner()


def tasks_of(request: str, at_hand: tuple[str, ...] = ()) -> list[str]:
    """The tasks that the rules name for a request, in its order."""
    return [step.task for step in chinese.steps(mark(request, FILES), at_hand)]


async def plan(request: str, **brief: object) -> list[tuple[str, dict[str, object]]]:
    made = await PLANNER.plan(
        RunContext(request, specs=TASKS, **{"files": FILES, **brief}), lambda task: None
    )  # type: ignore[arg-type]
    return [(task.task, task.args) for task in made.tasks]


def test_every_rule_names_a_task_that_there_is_and_slots_that_are_filled() -> None:
    for rule in load_rules().all:
        assert rule.task in TASKS or rule.task in ("", CONTEXT)
        slots = {*SLOTS, *(name.rstrip("0123456789") for name in rule.pattern.groupindex)}
        rule.english.format(**dict.fromkeys(slots, ""))


@pytest.mark.parametrize(
    ("request_", "task"),
    [
        ("“菜凉了，服务员还爱理不理”，这人满意吗？", "text-classification"),
        ("“周杰伦在台北开演唱会”里有哪些人名", "token-classification"),
        ("根据“店里九点开门”回答：几点开门？", "question-answering"),
        ("sales.csv 里卖得最多的是哪个商品", "table-question-answering"),
        ("“海水是[MASK]的”，空格里填什么", "fill-mask"),
        ("“火箭升空了”属于航天、美食还是体育", "zero-shot-classification"),
        ("“晚安”用法语怎么说", "translation"),
        ("给邻居写一张道歉的便条", "text-generation"),
        ("按和“修手机”的相关程度给“换屏”、“买菜”排序", "text-ranking"),
        ("a.jpg 是哪种鸟", "image-classification"),
        ("a.jpg 更像猫还是狗", "zero-shot-image-classification"),
        ("把 a.jpg 里的杯子框出来", "zero-shot-object-detection"),
        ("框出 a.jpg 里的所有物体", "object-detection"),
        ("a.jpg 里的门是什么颜色", "visual-question-answering"),
        ("scan.png 上的总金额是多少", "document-question-answering"),
        ("a.jpg 和 b.jpg 哪一页写了地址", "visual-document-retrieval"),
        ("给 a.jpg 换个背景", "image-to-image"),
        ("a.jpg 为什么好笑", "image-text-to-text"),
        ("随便画一张图", "unconditional-image-generation"),
        ("来一段小溪流水的声音", "text-to-audio"),
        ("做一个茶壶的三维模型", "text-to-3d"),
        ("能把 a.jpg 变成立体模型吗", "image-to-3d"),
        ("让 a.jpg 动起来", "image-to-video"),
        ("v.wav 里的人在说什么", "automatic-speech-recognition"),
        ("v.wav 杂音太大", "audio-to-audio"),
        ("v.wav 里哪几段有人讲话", "voice-activity-detection"),
        ("v.wav 是什么声音", "audio-classification"),
        ("只要 clip.mp4 的声音", "extract-audio"),
        ("把 clip.mp4 调亮一点", "video-to-video"),
        ("给 clip.mp4 配上 v.wav", "combine-video-audio"),
        ("sales.csv 未来一周走势如何", "time-series-forecasting"),
        ("估一估 sales.csv 里每套房值多少钱", "tabular-regression"),
        ("给 sales.csv 每一行分个类", "tabular-classification"),
    ],
)
def test_a_clause_means_a_task(request_: str, task: str) -> None:
    assert tasks_of(request_) == [task]


def test_what_no_rule_fits_is_no_task_of_the_bank() -> None:
    assert tasks_of("你好，今天过得好吗") == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    ("request_", "plan_"),
    [
        ("把 a.jpg 缩到三百像素宽", [("resize-image", {"image": "a.jpg", "width": 300})]),
        ("a.jpg 改成宽200高100", [("resize-image", {"image": "a.jpg", "width": 200, "height": 100})]),
        ("从 clip.mp4 里截图，一共要十二张", [("extract-frames", {"video": "clip.mp4", "count": 12})]),
        (
            "把 a.jpg 从 (10, 20) 到 (30, 40) 裁下来",
            [("crop-image", {"image": "a.jpg", "box": [10, 20, 30, 40]})],
        ),
        ("译成德语：今天下雨。", [("translation", {"text": "今天下雨。", "tgt_lang": "de"})]),
        (
            "顾客问“几点关门”。把“晚上十点”、“在二楼”按相关性排序",
            [("text-ranking", {"text": "几点关门", "sentences": ["晚上十点", "在二楼"]})],
        ),
        (
            "给“台风将至”打标签，候选标签：天气、财经",
            [("zero-shot-classification", {"text": "台风将至", "labels": ["天气", "财经"]})],
        ),
        (
            "照着姿势图 a.jpg 画一个剑客",
            [("openpose-text-to-image", {"text": "一个剑客", "image": "a.jpg"})],
        ),
        (
            "画一座灯塔，背景是夕阳，然后用它做一段视频",
            [
                ("text-to-image", {"text": "一座灯塔，背景是夕阳"}),
                ("image-to-video", {"image": "<resource>-0"}),
            ],
        ),
        (
            "把“涨价了”分为财经或体育，再翻成英文",
            [
                ("zero-shot-classification", {"text": "涨价了", "labels": ["财经", "体育"]}),
                ("translation", {"text": "涨价了", "tgt_lang": "en"}),
            ],
        ),
        (
            "描述 a.jpg，然后根据描述写一首诗",
            [
                ("image-to-text", {"image": "a.jpg"}),
                ("text-generation", {"text": "根据描述写一首诗 (it): <resource>-0"}),
            ],
        ),
        (
            "用语音告诉我 a.jpg 里有什么",
            [("image-to-text", {"image": "a.jpg"}), ("text-to-speech", {"text": "<resource>-0"})],
        ),
        ("不要翻译，总结“这是一篇长文”", [("summarization", {"text": "这是一篇长文"})]),
    ],
)
async def test_the_plan_of_a_chinese_request(
    request_: str, plan_: list[tuple[str, dict[str, object]]]
) -> None:
    assert await plan(request_) == plan_


async def test_a_file_without_a_name_and_one_of_an_earlier_turn_are_at_hand() -> None:
    image = Resource(kind="image", name="x.jpg")
    assert await plan("里面有几个人？", files=(image,)) == [("object-detection", {"image": "x.jpg"})]
    turn = ChatTurn("画一只鸭子", "", (Resource(kind="image", name="duck.png"),))
    assert await plan("把刚才那张图变成水彩画", files=(), turns=(turn,)) == [
        ("image-to-image", {"image": "duck.png", "text": "把刚才那张图变成水彩画"})
    ]


@pytest.mark.parametrize(
    ("words", "number"), [("12", 12), ("十", 10), ("二十四", 24), ("两百", 200), ("八", 8)]
)
def test_a_number_in_words(words: str, number: int) -> None:
    assert as_number(words) == number


def test_marks_are_seen_as_their_kinds() -> None:
    marked = mark("a.jpg v.wav “x” scan.png", FILES)
    assert as_signs(marked.text, marked).split() == ["ⓘ", "ⓐ", "ⓠ", "ⓓ"]


def test_a_colon_after_a_question_is_read_as_one() -> None:
    marked = mark("请看材料。问题：谁赢了比赛", FILES)
    chinese.steps(marked)
    assert Mark("text", "谁赢了比赛", role="question") in marked.marks.values()
