"""Examples for training from hand-written ones: other files, words and languages, and two requests joined."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from notation import FILES, Record, read_records

from jarvis_agent.backends.languages import find_language
from jarvis_agent.core.references import ref, substitute
from jarvis_agent.core.text import detect_script
from jarvis_agent.core.types import Preference, Task
from jarvis_agent.evaluation.requests import OwnRequest, Turn, read_requests
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.messages import open_examples
from jarvis_agent.planning.offline.sequences import NOT_GIVEN

_SPOKEN = (
    "French German Spanish Italian Russian Japanese Korean Portuguese Arabic Thai Dutch Polish Turkish "
    "Vietnamese Greek Swedish Hindi Danish Finnish Czech"
)
_LANGUAGES = {name: language.chinese for name in _SPOKEN.split() if (language := find_language(name))}
"""Languages that stand for each other, by their English names."""
_JOINTS = {
    "en": (
        *("\n", " ", " and ", ", then ", ". Then ", ". Also, ", "; ", " and also ", ", and "),
        *(". After that ", " + "),
    ),
    "zh": ("，", "。", "；", "，然后", "，再", "，另外", "。还有，", "\n", "，顺便", "，同时"),
}
_LONG = ("summarization", "translation", "text-to-speech", "text-classification", "token-classification")
"""Task types whose texts may be long."""
VOICES = sorted(FILES.glob("*.txt"))
"""The files that may be learned from: those set aside are in a folder of their own."""
_SWAPPED = 0.3  # how often a value is replaced


@dataclass(frozen=True)
class Example:
    """A request with its plan, the words that the plan leaves out, and what it prefers of models."""

    asked: OwnRequest
    left: tuple[str, ...] = ()
    preference: Preference | None = None

    def with_request(self, left: Sequence[str] | None = None, **changes: Any) -> Example:
        """The example with other fields of its request."""
        left = self.left if left is None else tuple(left)
        return replace(self, asked=self.asked.model_copy(update=changes), left=left)


def read_examples(voices: Iterable[Path]) -> list[Example]:
    """The hand-written records of some files."""
    languages = [(voice, "zh" if voice.stem.startswith("zh") else "en") for voice in voices]
    return [
        Example(record.as_request(language), tuple(record.left_out), record.preference)
        for voice, language in languages
        for record in read_records(voice)
    ]


def project_examples() -> list[Example]:
    """The project's own requests that a planner may be improved on, and an example of each task type."""
    bank = [
        OwnRequest(
            id=f"bank-{number}",
            kind="graph" if example.plan else "empty",
            language="zh" if detect_script(example.input) else "en",
            request=example.input,
            files=[file.name for file in example.files],
            turns=[
                Turn(request=turn.request, answer=turn.answer, files=[file.name for file in turn.resources])
                for turn in example.chat
            ],
            plan=[Task.model_validate(task) for task in example.plan],
        )
        for number, example in enumerate(open_examples(Path(__file__).parent / "examples.json"))
    ]
    return [Example(asked) for asked in (*read_requests("dev"), *bank)]


Slots = Mapping[tuple[str, str, str], Sequence[str]]
"""Words that were copied, by language, task type and argument; and file names by "", "file" and kind."""


def slots_of(examples: Iterable[Example]) -> Slots:
    """The values of all examples."""
    slots: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for example in examples:
        for name in example.asked.files:
            slots["", "file", kind_by_name(name)].add(name)
        for task, name, value in _copied(example):
            slots[example.asked.language, task, name].add(value)
    return {key: sorted(values) for key, values in slots.items()}


def _copied(example: Example) -> Iterable[tuple[str, str, str]]:
    """Task type, argument and words of every value that stands in the request once."""
    for task in example.asked.plan:
        for name, value in task.args.items():
            for one in value if isinstance(value, list) else [value]:
                is_copied = isinstance(one, str) and example.asked.request.count(one) == 1
                if is_copied and name not in ("src_lang", "tgt_lang") and one not in example.asked.files:
                    yield task.task, name, one


def varied(example: Example, slots: Slots, rng: Random) -> Example:
    """The same request with other file names, and sometimes other words and another language."""
    swaps: dict[str, str] = {}
    chat = [text for turn in example.asked.turns for text in (turn.request, turn.answer)]
    for task, name, value in _copied(example):
        if len(value) > 1 and rng.random() < _SWAPPED and not any(value in text for text in chat):
            swaps[value] = rng.choice(slots[example.asked.language, task, name])
    for name in example.asked.files:
        if "://" not in name and rng.random() < 2 * _SWAPPED:
            swaps[name] = rng.choice(slots["", "file", kind_by_name(name)])
    targets = {task.args.get("tgt_lang") for task in example.asked.plan}
    for english, chinese in {**_LANGUAGES, "English": "英语", "Chinese": "中文"}.items():
        for said in dict.fromkeys((english, chinese, chinese.replace("语", "文"))):
            times = example.asked.request.count(said)
            is_replaced = times and (english in _LANGUAGES or (english in targets and times == 1))
            if is_replaced and rng.random() <= 2 * _SWAPPED:
                other = rng.choice(list(_LANGUAGES))
                suffix = rng.choice("语文")
                swaps[said] = other if said == english else _LANGUAGES[other].removesuffix("语") + suffix
                swaps[english] = other
    return _replaced(example, swaps) if swaps else example


def lengthened(example: Example, slots: Slots, rng: Random) -> Example:
    """The same request with a long text in place of one that its plan copies, if there is one."""
    language = example.asked.language
    for task, name, value in _copied(example) if not example.asked.turns else ():
        if name == "text" and task in _LONG and len(value) > 12:
            sentences = [text for one in _LONG for text in slots[language, one, "text"] if len(text) > 12]
            long = ("" if language == "zh" else " ").join(rng.choices(sentences, k=rng.randint(4, 40)))
            return _replaced(example, {value: long})
    return example


_LISTS = {
    "en": ((", ", " and "), (", ", ", "), (" ", " "), (" + ", " + ")),
    "zh": (("、", "和"), ("，", "，"), ("、", "、")),
}
"""What stands between the names of several files, and before the last one."""


def repeated(example: Example, slots: Slots, rng: Random) -> Example:
    """The same request for two to four files, if it names one, and every task works on it."""
    asked = example.asked
    name = asked.files[0] if len(asked.files) == 1 else ""
    is_on_it = all(task.deps or name in task.args.values() for task in asked.plan)
    if not name or asked.turns or not 1 <= len(asked.plan) <= 3 or not is_on_it:
        return example
    names = [name, *rng.sample(slots["", "file", kind_by_name(name)], rng.choice((1, 1, 1, 2, 2, 3)))]
    if asked.request.count(name) != 1 or len({*names}) < len(names):
        return example
    middle, last = rng.choice(_LISTS[asked.language])
    request = asked.request.replace(name, f"{middle.join(names[:-1])}{last}{names[-1]}")
    return example.with_request(request=request, files=names, plan=_for_each(asked.plan, name, names))


def _moved(plan: Sequence[Task], by: int) -> list[Task]:
    """A plan whose tasks are counted from `by`."""

    def moved(task: Task) -> Task:
        args = substitute(task.args, lambda number: ref(number + by))
        return Task(task=task.task, id=task.id + by, dep=[dep + by for dep in task.deps] or [-1], args=args)

    return list(map(moved, plan))


def _with_values(plan: Sequence[Task], change: Callable[[Any], Any]) -> list[Task]:
    """A plan with other values of arguments."""
    return [
        task.model_copy(update={"args": {name: change(value) for name, value in task.args.items()}})
        for task in plan
    ]


def _for_each(plan: Sequence[Task], name: str, files: Sequence[str]) -> list[Task]:
    """The tasks of a plan for several files, one after the other, in place of a single one."""
    tasks = list[Task]()
    for file in files:
        moved = _moved(plan, len(tasks))
        tasks += _with_values(moved, lambda value, file=file: file if value == name else value)
    return tasks


_NOUNS = {
    ("en", "image"): "picture photo image",
    ("en", "audio"): "recording audio clip",
    ("en", "video"): "video clip film",
    ("en", "table"): "table list file",
    ("en", "text"): "text file letter",
    ("zh", "image"): "张图 张照片 张图片 张",
    ("zh", "audio"): "段录音 段音频 段",
    ("zh", "video"): "个视频 段视频 段",
    ("zh", "table"): "张表 个表格 个文件",
    ("zh", "text"): "个文件 篇 份",
}
"""Words for files, in Chinese with the word that counts them."""
_ORDINALS = {"en": "first second third fourth", "zh": "一 二 三 四"}
_DRAWN = ("object-detection", "zero-shot-object-detection", "image-segmentation", "mask-generation")
"""Task types whose image only shows what they found: "the picture" is still the one before."""


def followed(first: Example, second: Example, slots: Slots, rng: Random) -> Example | None:
    """The second request as a follow-up that means files or results of the first one, or None."""
    one, other, language = first.asked, second.asked, first.asked.language
    name = other.files[0] if len(other.files) == 1 else ""
    kind = kind_by_name(name)
    nouns = _NOUNS.get((language, kind))
    if one.turns or other.turns or other.language != language or not nouns or other.request.count(name) != 1:
        return None
    used = {dep for task in one.plan for dep in task.deps}
    results = [task for task in one.plan if task.id not in used and task.task not in _DRAWN]
    made = {task.id: Record("").made_file(task) for task in one.plan}
    results_of_kind = [made[task.id] for task in results if kind_by_name(made[task.id]) == kind]
    choice = results_of_kind or [file for file in one.files if kind_by_name(file) == kind]
    texts = [str(value) for task in other.plan for value in task.args.values() if value != name]
    if not 1 <= len(choice) <= 4 or any(name in text for text in texts):
        return None
    noun = rng.choice(nouns.split())
    wanted, said = _mention(choice, noun, language, is_result=bool(results_of_kind), rng=rng)
    answer = rng.choice(slots[language, rng.choice(_LONG), "text"]) if rng.random() < 0.3 else ""
    files = [*one.files, *filter(None, made.values())]
    turns = [Turn(request=one.request, answer=answer, files=files)]
    request, plan = other.request.replace(name, said), _for_each(other.plan, name, wanted)
    return second.with_request(request=request, files=[], turns=turns, plan=plan)


def _mention(
    files: Sequence[str], noun: str, language: str, *, is_result: bool, rng: Random
) -> tuple[Sequence[str], str]:
    """Some of the files of an earlier turn, and how a request may refer to them."""
    count, place = len(files), rng.randrange(len(files))
    number, ordinal = place + 1, _ORDINALS[language].split()[place]
    is_all, is_last = rng.random() < 0.3, number == count and rng.random() < 0.5
    said: tuple[str, ...]
    if language == "zh":
        if count == 1:
            said = ("它", f"这{noun}", f"那{noun}", f"刚才那{noun}")
            said += ("结果", f"新的那{noun}") if is_result else ()
        elif is_all:
            said = (f"这{'零一两三四'[count]}{noun}", "它们", "全部")
        else:
            said = (f"第{ordinal}{noun}", f"第{number}{noun}", f"第{ordinal}个")
            said = (f"最后一{noun}",) if is_last else said
    elif count == 1:
        said = ("it", "that", f"the {noun}", f"that {noun}", f"this {noun}", "that one")
        said += ("the result", "the new one", f"the new {noun}") if is_result else ()
    elif is_all:
        said = ("both" if count == 2 else f"all {count}", f"the {count} {noun}s", "them")
    else:
        said = (f"the {ordinal} one", f"the {ordinal} {noun}", f"the {ordinal}", f"number {number}")
        said = ("the last one", f"the last {noun}") if is_last else said
    return files if count > 1 and is_all else files[place : place + 1], rng.choice(said)


def fileless(example: Example, rng: Random) -> Example:
    """The same request without its only picture, recording, video or table, if it names it at most once."""
    asked = example.asked
    name = asked.files[0] if len(asked.files) == 1 and not asked.turns else ""
    kind, count = kind_by_name(name), asked.request.count(name)
    nouns = _NOUNS.get((asked.language, kind)) if kind != "text" else None
    values = [value for task in asked.plan for value in task.args.values()]
    inside = [*example.left, *(str(value) for value in values if value not in (name, [name]))]
    if not name or not nouns or count > 1 or any(name in text for text in inside):
        return example
    said = _mention([name], rng.choice(nouns.split()), asked.language, is_result=False, rng=rng)[1]
    changed = {name: NOT_GIVEN, str([name]): [NOT_GIVEN]}
    plan = _with_values(asked.plan, lambda value: changed.get(str(value), value))
    return example.with_request(request=asked.request.replace(name, said), files=[], plan=plan)


def _replaced(example: Example, swaps: Mapping[str, str]) -> Example:
    """The example with other words for some, in the request, its files and its plan."""
    longest_first = "|".join(map(re.escape, sorted(swaps, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{longest_first})(?![A-Za-z0-9_])")

    def change(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda found: swaps[found[0]], value)
        return [change(one) for one in value] if isinstance(value, list) else value

    asked = example.asked
    files = change(asked.files)
    if len({*files}) < len(files):
        return example
    turns = [
        turn.model_copy(update={"request": change(turn.request), "files": change(turn.files)})
        for turn in asked.turns
    ]
    plan, left = _with_values(asked.plan, change), change([*example.left])
    return example.with_request(left, request=change(asked.request), files=files, turns=turns, plan=plan)


def joined(first: Example, second: Example, rng: Random) -> Example | None:
    """One request for both; None if it would be no such thing: in chats, or with equal file names."""
    one, other = first.asked, second.asked
    if other.turns or one.language != other.language or {*one.files} & {*other.files} or not one.plan:
        return None
    if first.preference and second.preference:
        return None
    joint = rng.choice(_JOINTS[one.language])
    start = one.request if joint == "\n" else one.request.rstrip(" .!。！")
    plan = [*one.plan, *_moved(other.plan, len(one.plan))]
    request, files = start + joint + other.request, [*one.files, *other.files]
    both = replace(first, preference=first.preference or second.preference)
    return both.with_request((*first.left, *second.left), request=request, files=files, plan=plan)
