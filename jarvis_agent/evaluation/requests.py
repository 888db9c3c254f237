"""Our own requests with their plans, in English and Chinese, and how close a planner comes to them.

A planner may be improved on the half "dev". The half "test" is only scored.

"Exact plan" compares tasks, links and arguments (see `same_plan`); F1 the tasks, as in the paper (Shen et
al., "HuggingGPT", 2023); graph F1 the tasks and links together.

Arguments that the gold plan leaves out are free. The others are compared by kind:

files, references, numbers         equal
languages                          the same language, by name or code
labels, sentences                  the same ones in any order, without articles and plurals
texts that are processed           the same words (translation, speech, …)
questions, prompts                 the gold words in order, among few others, or the same references; a
                                   prompt for pictures, video or sound may be in the other language
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from jarvis_agent.backends.languages import find_language
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import InputError, words_of
from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg
from jarvis_agent.core.text import texts_of_list
from jarvis_agent.core.types import Frozen, Resource, Task
from jarvis_agent.evaluation.predict import Prediction, named_files, read_records
from jarvis_agent.evaluation.report import EvaluationReport, Ratios, Score, report_on, score

Half = Literal["dev", "test"]
Kind = Literal["single", "sequential", "graph", "empty"]


class Turn(Frozen):
    """An earlier turn of the chat; `files` are those that it was given or made."""

    request: str
    answer: str
    files: list[str] = Field(default_factory=list)


class OwnRequest(Frozen):
    """A request and its plan, with the arguments that matter; `alternatives` are further correct plans.

    `id` and `half` never change. `files` are those that it names and those that come with it; none exists.
    `turns` are earlier ones of the chat, oldest first.
    """

    id: str
    half: Half = "dev"
    kind: Kind
    language: str = "en"
    request: str
    files: list[str] = Field(default_factory=list)
    turns: list[Turn] = Field(default_factory=list)
    plan: list[Task]
    alternatives: list[list[Task]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_plans(self) -> Self:
        for plan in self.plans:
            earlier: set[int] = set()
            for task in plan:
                if task.task not in TASKS:
                    raise ValueError(f'there is no task type "{task.task}"')
                if not dependencies(task) <= earlier:
                    raise ValueError(f"task {task.id} needs a task that does not precede it")
                earlier.add(task.id)
        return self

    @property
    def plans(self) -> list[list[Task]]:
        """Return all correct plans, the most obvious one first."""
        return [self.plan, *self.alternatives]

    @property
    def inputs(self) -> dict[str, Any]:
        """Return the planner's input."""
        turns = [ChatTurn(turn.request, turn.answer, _resources(turn.files)) for turn in self.turns]
        files = _resources(self.files)
        return {"input": self.request, "files": files, "chat_history": turns, "tools": TASKS}


def _resources(names: Sequence[str]) -> tuple[Resource, ...]:
    files = {file.name: file for name in names for file in named_files(f'"{name}"')}
    return tuple(files.values())


def read_requests(half: Half | Literal["all"] = "all", path: Path | None = None) -> list[OwnRequest]:
    """Read the requests of one half or both, from our own file or from `path`.

    Raises InputError: the file cannot be read, holds no request, or an invalid one.
    """
    path = path or Path(str(files("jarvis_agent.evaluation") / "data" / "requests.jsonl"))
    read: dict[str, OwnRequest] = {}
    for record in read_records(path):
        try:
            request = OwnRequest.model_validate(record)
        except ValidationError as error:
            raise InputError(f"{path}, the request {record['id']}: {words_of(error)}") from error
        if request.id in read:
            raise InputError(f"{path} has two requests with the id {request.id}")
        read[request.id] = request
    requests = [request for request in read.values() if half in ("all", request.half)]
    if not requests:
        raise InputError(f"{path} holds no requests" + ("" if half == "all" else f" of the half {half}"))
    return requests


@dataclass(frozen=True, slots=True)
class Judged:
    """A request and its predicted plan, compared with the closest correct plan; exact: with its arguments."""

    asked: OwnRequest
    tasks: tuple[Task, ...]
    exact: bool
    graph: Score
    error: str | None = None

    def as_failure(self) -> dict[str, Any]:
        """Return the plan beside the expected ones, as `--failures` lists it."""
        expected = [_plan_text(plan) for plan in self.asked.plans]
        got = self.error or _plan_text(self.tasks)
        return {"id": self.asked.id, "request": self.asked.request, "expected": expected, "got": got}


def _plan_text(tasks: Sequence[Task]) -> str:
    """A plan on one line: `0 image-to-text(image=a.jpg), 1 text-to-speech(text=<resource>-0)`."""
    texts = [
        f"{task.id} {task.task}({', '.join(f'{name}={value}' for name, value in task.args.items())})"
        for task in tasks
    ]
    return ", ".join(texts) or "no task"


def judge(request: OwnRequest, tasks: Sequence[Task], error: str | None = None) -> Judged:
    """Compare a plan with the correct ones. With an `error` there is no plan, and nothing is right."""
    compared = [(same_plan(plan, tasks), score(plan, tasks)) for plan in request.plans]
    exact, best = max(
        compared, key=lambda pair: (pair[0], pair[1].exact, pair[1].nodes[0] / (pair[1].nodes[1] or 1))
    )
    return Judged(request, tuple(tasks), exact and error is None, best, error)


FIGURES: Ratios[Judged] = {
    "exact plan": lambda judged: (float(judged.exact), 1.0),
    "F1": lambda judged: judged.graph.nodes,
    "graph F1": lambda judged: judged.graph.graph,
}

_LANGUAGES = {"en": "English", "zh": "Chinese"}
_GROUPS = ("all", *get_args(Kind), *_LANGUAGES.values())


def score_requests(
    requests: Sequence[OwnRequest], predictions: Mapping[str, Prediction]
) -> tuple[list[EvaluationReport], list[Judged]]:
    """Return a report for each group that has requests, and every request as it was judged."""
    judged = [
        judge(request, predictions[request.id].plan, predictions[request.id].error) for request in requests
    ]
    reports = []
    for name in _GROUPS:
        members = [
            row for row in judged if name in ("all", row.asked.kind, _LANGUAGES.get(row.asked.language))
        ]
        if members:
            answers = [predictions[row.asked.id] for row in members]
            empty = sum(bool(row.error) or (not row.tasks and row.asked.kind != "empty") for row in members)
            reports.append(report_on(name, members, FIGURES, answers, unanswered=empty))
    return reports, judged


_LITERAL_TEXT = {
    *("text-classification", "token-classification", "zero-shot-classification", "fill-mask", "translation"),
    *("summarization", "feature-extraction", "sentence-similarity", "text-to-speech"),
}
"""Tasks whose text is processed as it is, and is not an instruction."""

_EXTRA_WORDS, _EXTRA_PROMPT_WORDS = 16, 8
"""How many words may stand beside the gold ones; two Chinese characters are about one word."""
_HAN = "\u3400-\u9fff"
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def same_plan(gold: Sequence[Task], predicted: Sequence[Task]) -> bool:
    """Whether tasks can be paired so that names, links and arguments agree, whatever their ids and order."""

    def can_be_paired(tasks: Sequence[Task], pairs: Mapping[int, int]) -> bool:
        if not tasks:
            return True
        first, *rest = tasks
        return any(
            _same_task(first, task, pairs) and can_be_paired(rest, {**pairs, first.id: task.id})
            for task in predicted
            if task.id not in pairs.values()
        )

    return len(gold) == len(predicted) and can_be_paired(gold, {})


def _same_task(gold: Task, predicted: Task, pairs: Mapping[int, int]) -> bool:
    if gold.task != predicted.task or {pairs[i] for i in dependencies(gold)} != dependencies(predicted):
        return False
    wanted = substitute(gold.args, lambda number: ref(pairs[number]))
    return all(same_argument(gold.task, name, v, predicted.args.get(name)) for name, v in wanted.items())


def dependencies(task: Task) -> set[int]:
    """Return the ids of the tasks that a task waits for or refers to."""
    return {*task.deps, *refs_in(task.args)}


def same_argument(task: str, name: str, gold: Any, predicted: Any) -> bool:
    """Whether an argument of a predicted task is what the gold plan has, by the rules of this module."""
    if predicted is None:
        return False
    arg = TASKS[task].arg(name) or Arg(name, "text")
    is_processed = task in _LITERAL_TEXT or name == "context"
    normalise: Callable[[Any], Any] = _words
    if arg.many:
        normalise = _labels
    elif refs_in(gold):
        normalise = _text if is_processed or arg.kind != "text" else lambda text: {*refs_in(text)}
    elif arg.kind in MEDIA:
        normalise = _names
    elif arg.kind == "data":
        normalise = _numbers
    elif name in ("src_lang", "tgt_lang"):
        normalise = _language
    elif PurePath(_text(gold)).suffix and " " not in _text(gold):
        normalise = _text
    elif not is_processed:
        is_prompt = TASKS[task].outputs[0] in MEDIA and name == "text"
        return _is_near(_words(gold), _words(predicted), is_prompt)
    return bool(normalise(gold) == normalise(predicted))


def _is_near(gold: Sequence[str], predicted: Sequence[str], is_prompt: bool) -> bool:
    """Whether the gold words come in order, among few others or as many as the gold words.

    A prompt in another language cannot be compared, and counts as right.
    """
    if is_prompt and predicted and _has_han(gold) != _has_han(predicted):
        return True
    rest, length = iter(predicted), _length(gold)
    in_order = all(word in rest for word in gold if word not in ("a", "an", "the"))
    extra = _EXTRA_PROMPT_WORDS if is_prompt else _EXTRA_WORDS
    return in_order and _length(predicted) <= length + max(length, extra)


def _has_han(words: Sequence[str]) -> bool:
    return any(re.match(f"[{_HAN}]", word) for word in words)


def _length(words: Sequence[str]) -> float:
    return sum(0.5 if _has_han([word]) else 1.0 for word in words)


def _words(value: Any) -> list[str]:
    return _WORD.findall(_text(value).casefold())


def _names(value: Any) -> list[str]:
    return sorted(map(_text, texts_of_list(value)))


def _labels(value: Any) -> list[str]:
    texts = (_text(label).casefold().strip(" .,;!?'\"") for label in texts_of_list(value))
    bare = [re.sub(r"^(?:an?|the)\s+", "", text) for text in texts]
    return sorted(text if refs_in(text) else text.removesuffix("s") for text in bare)


def _numbers(value: Any) -> list[float]:
    text = value if isinstance(value, str) else json.dumps(value)
    return [float(number) for number in _NUMBER.findall(text)]


def _language(value: Any) -> str:
    language = find_language(_text(value))
    return language.code if language else _text(value).casefold()


def _text(value: Any) -> str:
    only = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return str(only).strip().removeprefix("./")
