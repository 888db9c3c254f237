"""Requests with their plans, in the notation of `requests/*.txt`. README.md explains it.

    python training/notation.py [FILE]...        # checks files, all by default, and counts what they hold

read_records(Path("requests/zh_senior.txt"))         # [Record(…), …]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from jarvis_agent.backends.languages import LANGUAGES
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.references import ref, refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec, split_kind
from jarvis_agent.core.types import PREFERENCES, Preference, Task
from jarvis_agent.evaluation.requests import Kind, OwnRequest, Turn
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.offline.sequences import NOT_GIVEN, WORDS

FILES = Path(__file__).parent / "requests"
PLANNER = Path(__file__).parent.parent / "weights" / "jarvis_agent_weights" / "planner.npz"

_SUFFIXES = {"image": ".png", "audio": ".wav", "video": ".mp4", "table": ".csv", "3d": ".glb"}
_LANGUAGES = {language.name for language in LANGUAGES}

_TWINS = {
    "object-detection": ["zero-shot-object-detection"],
    "visual-question-answering": ["image-text-to-text"],
    "image-to-image": ["image-text-to-image"],
    "image-to-video": ["image-text-to-video"],
    "depth-estimation": ["depth-control"],
    "keypoint-detection": ["openpose-control"],
    "image-segmentation": ["seg-control"],
}
_TWINS |= {second: [first] for first, (second,) in _TWINS.items()}
"""Pairs of task types of which either is right where the other one is."""

_MOST_PLANS = 64
_RESULT = re.compile(r"(?:\^(\d+))?#(\d+)|\^(\d+)")
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?:\s*,\s*-?\d+(?:\.\d+)?)*")


class NotationError(ValueError):
    """A record breaks a rule of the notation."""


@dataclass(slots=True)
class Record:
    """A request after the turns of its chat, and its plan."""

    place: str  # its file and first line
    turns: tuple[Record, ...] = ()
    request: str = ""
    attached: list[str] = field(default_factory=list)  # files that the request does not name
    plans: list[list[Task]] = field(default_factory=lambda: [[]])  # the plan, then others that are as good
    preference: Preference | None = None
    left_out: list[str] = field(default_factory=list)  # what no task can do, in the words of the request
    answers: list[str] = field(default_factory=list)  # texts of the plan: one for all its tasks, or for each

    @property
    def files(self) -> list[str]:
        """The attached files and those that the request names."""
        return list(dict.fromkeys((*self.attached, *mentions(self.request))))

    def made_file(self, task: Task) -> str:
        """The file that a task makes as its main output; "" if that is no file."""
        suffix = _SUFFIXES.get(TASKS[task.task].outputs[0], "")
        return f"/outputs/{len(self.turns) + 1}/{task.task}-{task.id}{suffix}" if suffix else ""

    @property
    def kind(self) -> Kind:
        """One task, a chain, another graph, or no task."""
        if len(self.plans[0]) < 2:
            return "single" if self.plans[0] else "empty"
        is_chain = all(task.deps == (task.id - 1,) for task in self.plans[0][1:])
        return "sequential" if is_chain else "graph"

    def as_request(self, language: str) -> OwnRequest:
        """The record in the form of `jarvis_agent.evaluation`, which makes a planner's input and judges."""
        turns = []
        for turn in self.turns:
            files = [*turn.files, *filter(None, map(turn.made_file, turn.plans[0]))]
            answer = " ".join(filter(None, turn.answers))
            turns.append(Turn(request=turn.request, answer=answer, files=files))
        common = {"language": language, "request": self.request, "files": self.files, "turns": turns}
        plan, *others = islice(chain.from_iterable(map(_equivalents, self.plans)), _MOST_PLANS)
        return OwnRequest(id=self.place, kind=self.kind, plan=plan, alternatives=others, **common)


def _equivalents(plan: Sequence[Task]) -> Iterator[list[Task]]:
    """A plan, then those with interchangeable task types. A source language need not be written."""

    def as_type(task: Task, name: str) -> Task:
        args = {key: value for key, value in task.args.items() if key != "src_lang" and TASKS[name].arg(key)}
        return task.model_copy(update={"task": name, "args": args})

    options = [[as_type(task, name) for name in (task.task, *_TWINS.get(task.task, ()))] for task in plan]
    return map(list, product(*options))


def read_records(path: Path) -> list[Record]:
    """The records of a file. Raises NotationError: one breaks a rule; the message has its place and line."""
    records: list[Record] = []
    record: Record | None = None
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        place = f"{path.name}:{number}"
        try:
            if line.startswith("# "):
                continue
            if line.strip():
                if record is None:
                    is_later = line.startswith(">>")
                    if is_later and not records:
                        raise NotationError("a follow-up needs a record before it")
                    record = Record(place, (*records[-1].turns, records[-1]) if is_later else ())
                _add(record, line.strip())
            elif record:
                _check(record)
                records.append(record)
                record = None
        except NotationError as error:
            raise NotationError(f"{place}: {line.strip()}: {error}") from None
    return records


def _add(record: Record, line: str) -> None:
    sign, _, rest = line.partition(" ")
    if sign in (">", ">>"):
        record.request = f"{record.request}\n{rest}".strip()
    elif sign == "+":
        if kind_by_name(rest) == "file" and "://" not in rest:
            raise NotationError("the ending of the name does not tell the kind of the file")
        record.attached.append(rest)
    elif line in PREFERENCES:
        record.preference = line
    elif sign == "-":
        _require_said(rest, [record.request])
        record.left_out.append(rest)
    elif sign == "=":
        record.answers.append(rest)
    elif line == "or":
        record.plans.append([])
    elif line == "none":
        if record.plans != [[]]:
            raise NotationError("`none` stands alone, without another plan")
        record.plans = [[], []]  # a task after it would be in the second one
    else:
        record.plans[-1].append(_task(line, record))


def _check(record: Record) -> None:
    if record.plans == [[], []]:
        record.plans = [[]]
    elif not record.request or not all(record.plans):
        raise NotationError("a record has a request (>), then tasks, or `none` if there is nothing to do")
    if len(record.answers) not in (0, 1, len(record.plans[0])):
        raise NotationError("there is one answer (=) for all tasks, or one for each")


def _task(line: str, record: Record) -> Task:
    name, _, rest = line.partition(" ")
    spec = TASKS.get(name)
    if spec is None:
        raise NotationError(f"there is no task type {name!r}")
    args: dict[str, Any] = {}
    for written in (part.strip() for part in rest.split(" | ")) if rest else ():
        key, _, value = written.partition("=")
        if named := spec.arg(key):
            args[named.name] = _value(spec, named, value, record)
            continue
        free = [arg for arg in spec.inputs if arg.name not in args and arg.name != "src_lang"]
        if result := _RESULT.fullmatch(written):  # what takes the main output goes first
            main = _maker(result, record)[0].outputs[0]
            free = sorted(free, key=lambda arg: arg.kind != main)
        errors = []
        for arg in free:
            try:
                args[arg.name] = _value(spec, arg, written, record)
                break
            except NotationError as error:
                errors.append(f"{arg.name}: {error}")
        else:
            raise NotationError(f"no argument takes {written!r} ({'; '.join(errors) or 'all are given'})")
    if missing := [name for name in spec.required if name not in args]:
        raise NotationError(f"{', '.join(missing)} missing")
    return Task(task=name, id=len(record.plans[-1]), dep=refs_in(args) or [-1], args=args)


def _value(spec: TaskSpec, arg: Arg, written: str, record: Record) -> Any:
    if arg.many:
        return [_one_value(spec, arg, part, record) for part in written.split(" / ")]
    return _one_value(spec, arg, written, record)


def _one_value(spec: TaskSpec, arg: Arg, written: str, record: Record) -> Any:
    if result := _RESULT.fullmatch(written):
        return _result(result, arg, record)
    chat = (*record.turns, record)
    if written in {name for one in chat for name in one.files}:
        kind = kind_by_name(written)
        if kind not in split_kind(arg.kind) and arg.kind != "file" and "://" not in written:
            raise NotationError(f"it takes {arg.kind}, and this is {kind}")
        return written
    if arg.kind in MEDIA and written == NOT_GIVEN and not any(one.files for one in chat):
        return written
    if arg.kind in MEDIA:
        raise NotationError(f"it takes {arg.kind}, and this is no file of the record")
    if arg.kind == "data" and _NUMBERS.fullmatch(written):
        numbers = [float(number) if "." in number else int(number) for number in written.split(",")]
        return numbers if len(numbers) > 1 else numbers[0]
    if arg.kind == "data" and not arg.many and arg.name != "box":
        raise NotationError("it takes a number")
    own_words = _LANGUAGES if arg.name in ("src_lang", "tgt_lang") else WORDS.get(spec.name, ())
    if written not in own_words:
        _require_said(written, [text for one in chat for text in (one.request, *one.answers)])
    written = re.sub(r"\s*…\s*", " ", written)
    return _RESULT.sub(lambda result: _result(result, arg, record), written)


def _maker(result: re.Match[str], record: Record) -> tuple[TaskSpec, int, Record | None]:
    """What made a result: the task type, its number in its plan, and the earlier turn, if it is one."""
    back = int(result[1] or result[3] or 0)
    if back > len(record.turns):
        raise NotationError(f"there are {len(record.turns)} turns before")
    turn = record.turns[-back] if back else None
    plan = turn.plans[0] if turn else record.plans[-1]
    number = int(result[2]) if result[2] else len(plan) - 1
    if not 0 <= number < len(plan):
        raise NotationError("there is no such task before")
    return TASKS[plan[number].task], number, turn


def _result(result: re.Match[str], arg: Arg, record: Record) -> str:
    maker, number, turn = _maker(result, record)
    kinds = {"data": ("text", "data"), "file": maker.outputs}.get(arg.kind, (arg.kind,))
    if not any(map(maker.makes, kinds)):
        raise NotationError(f"it takes {arg.kind}, and {maker.name} makes {', '.join(maker.outputs)}")
    if turn is None:
        return ref(number)
    if arg.kind in MEDIA:
        return turn.made_file(turn.plans[0][number])
    if not turn.answers:
        raise NotationError("that turn needs its answer in a line with =")
    return turn.answers[number if len(turn.answers) > 1 else 0]


def _require_said(text: str, said: Sequence[str]) -> None:
    """Each piece of a text, between results and …, is words of the request or the chat."""
    texts = [" ".join(one.casefold().split()) for one in said]
    for piece in _RESULT.sub("…", text).split("…"):
        if not any(" ".join(piece.casefold().split()) in one for one in texts):
            raise NotationError(f"{piece.strip()!r} is not in the request")


def _counts(files: Sequence[Path]) -> Iterator[str]:
    tasks: Counter[str] = Counter()
    for file in files:
        records = read_records(file)
        kinds = Counter(record.kind for record in records)
        tasks.update(task.task for record in records for task in record.plans[0])
        chats = sum(bool(record.turns) for record in records)
        noted = sum(bool(record.left_out) or record.kind == "empty" for record in records)
        counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("single", "sequential", "graph"))
        yield f"{file.stem}: {len(records)} records: {counts}; {chats} follow-ups; {noted} none or in part"
    yield "tasks: " + ", ".join(f"{name} {count}" for name, count in tasks.most_common())
    yield "none of: " + ", ".join(name for name in TASKS if not tasks[name])


if __name__ == "__main__":
    print(*_counts([Path(name) for name in sys.argv[1:]] or sorted(FILES.rglob("*.txt"))), sep="\n")
