"""The offline planner as a LangChain Runnable.

planner = OfflinePlanner()
planner.invoke({"input": "Describe cat.jpg and read the caption aloud", "files": [cat]})
planning_chain(llm).with_fallbacks([planner], exception_key="error")
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableLambda

from jarvis_agent.backends.languages import find_language, languages_in
from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.errors import describe_error
from jarvis_agent.core.file_mentions import split_names
from jarvis_agent.core.notes import Note
from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text, detect_script, map_texts
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media.access import PATTERN
from jarvis_agent.planning import plan as plans
from jarvis_agent.planning.inputs import PlanRequest, Tools, name_of, task_specs
from jarvis_agent.planning.offline.network import NetworkPlan, PointerNetwork, open_network
from jarvis_agent.planning.offline.sequences import lacks_file
from jarvis_agent.planning.offline.tools import REFERS_BACK, plan_tools, recognise, steps_of_tools, values_of
from jarvis_agent.planning.plan import Plan

SURE, UNKNOWN = 0.83, 0.15
"""Probabilities, set on voices that were not learned from. A plan below the first is noted as a guess; a task
below the second is left out."""

_PASTED = re.compile(
    r"[\"“「](?P<quoted>[^\"”」]{200,})[\"”」]"
    r"|(?<=[:：])\s*(?P<last>\S.{600,})$"
    r"|^(?![^\n]{0,80}[:：])(?P<first>\S.{600,})(?=\n\s*\n.{1,200}$)",
    re.DOTALL,
)
"""A long text in quotation marks, after a colon, or before a short last paragraph."""

_LONGEST_ROW = 5
"""Files of the longest rows that the network learned from. It sees three files of longer ones."""
_IN_ROW = re.compile(r"\W*\w{0,3}\W*")
"""What stands between two files of a row: at most one short word."""

Rows = Mapping[str, Sequence[str]]
"""By the second file of each row, those that are not shown."""

_MOST_QUOTED, _MOST_DOUBTED = 200, 60
"""Characters that a note quotes of a request, and of a doubtful value."""


class OfflinePlanner(RunnableLambda[str | dict[str, Any], Plan]):
    """Plans requests without a language model, in English and Chinese, by a small network of its own.

    What it does not understand, or what no task does, becomes a note. Its input is a text, or a dict with
    `input` and optionally `files` (Resources), `chat_history` (turns or messages), `tools`, and `error` (why
    another planner failed, which becomes the first note). A cancelled `ainvoke` stops at its next action.

    Raises:
        MissingExtraError: (when it plans) the starter models are not installed; it reads their words.
    """

    def __init__(self, tools: Tools = None, *, settings: Settings | Mapping[str, Any] | None = None) -> None:
        """Nothing is loaded before the first plan.

        Args:
            tools: what a plan may use: names, TaskSpecs or LangChain tools. None: all task types of the Hub.
            settings: where the weights of MiniLM are; a dict of some, or None: from the environment.
        """
        super().__init__(self._plan, partial(run_cpu_bound, self._plan), name="plan")
        self._specs, self._settings = task_specs(tools), read_settings(settings)

    __hash__ = object.__hash__  # type: ignore[assignment]

    def _plan(self, value: str | dict[str, Any]) -> Plan:
        inputs = {"input": value} if isinstance(value, str) else value
        planned = plan_request(PlanRequest.of(inputs, self._specs), self._settings)[0]
        if (error := inputs.get("error")) is None:
            return planned
        error = describe_error(error) if isinstance(error, BaseException) else error
        note = Note("the language model could not plan: {error}", error=error)
        return planned.model_copy(update={"notes": [note, *planned.notes]})


def plan_request(
    request: PlanRequest, settings: Settings, network: PointerNetwork | None = None
) -> tuple[Plan, float]:
    """The plan, and its probability. `network` is loaded unless it is given."""
    if not request.specs:
        return Plan(notes=[Note("no task is offered")]), 1.0
    network = network or open_network(settings)
    specs = request.specs
    if has_tools := any(spec.category == "tool" for spec in specs.values()):
        specs = recognise(specs, load_embedder(settings).encode)
    performers = {name: spec for spec in specs.values() if (name := _hub_name(spec)) in network.known_tasks}
    own = [spec for spec in specs.values() if spec not in performers.values()]
    steps: list[tuple[str, TaskSpec]] = []
    if own:
        encode = load_embedder(settings).encode
        steps, rest = steps_of_tools(request.text, own, [*performers.values()], encode)
        request = replace(request, text=rest)
    shortened, restore = _without_pasted_texts(request)
    shortened, rows = shorten_rows(shortened)
    step = f"“{brief_text(request.text.strip(' .,;!?'), _MOST_QUOTED)}”"
    draft = NetworkPlan([], [], [], 1.0)
    if request.text or not steps:
        draft = network.write(shortened, performers)
        if draft.probability < SURE and request.turns and request.files:  # perhaps it means nothing of before
            alone = network.write(replace(shortened, turns=()), performers)
            if alone.probability > draft.probability:
                draft = replace(alone, probability=draft.probability, doubt=(len(alone.tasks), ""))
        if draft.probability < SURE and performers.keys() != network.known_tasks:
            wanted = network.write(shortened, network.known_tasks)  # what is not offered may be needed
            draft = wanted if wanted.probability > draft.probability else draft
    tasks, notes = _possible(draft, performers, step, has_tools)
    if draft.left_out and not draft.tasks and _lacks_picture(shortened, network):
        notes.append(Note(plans.NO_FILE, step=step))
    else:
        notes += [Note(plans.NO_TASK_TYPE, step=f"“{text}”") for text in draft.left_out]
    for second, not_shown in rows.items():
        tasks = repeat_tasks(tasks, [second, *not_shown])
    tasks = [task.model_copy(update={"args": map_texts(task.args, restore)}) for task in tasks]
    tasks = _with_languages(tasks, request.text)
    tasks, missing = plan_tools(steps, request.files, tasks, specs)
    notes += missing
    if not tasks and not notes:
        is_chat = draft.probability >= SURE and not request.files
        reason = plans.NOTHING_ASKED if is_chat else plans.NOT_UNDERSTOOD
        notes.append(Note(reason, step=step))
    notes += _unused(request, tasks, draft.unread)
    # The network did not read the steps of tools, whose results a later step may mean.
    probability = 0.0 if steps and draft.tasks and REFERS_BACK.search(request.text) else draft.probability
    doubt = _doubt(draft) if probability else Note("{step} may mean something else", step=step)
    guess = [Note("this plan is a guess: {doubt}", doubt=doubt)]
    is_guess = bool(tasks) and probability < SURE
    plan = Plan(tasks=tasks, notes=notes + guess * is_guess, removed=notes, preference=draft.preference)
    return plan, probability


def _unused(request: PlanRequest, tasks: Sequence[Task], unread: str) -> Iterator[Note]:
    """Which files, or parts of the request, no task uses."""
    used = [str(value) for task in tasks for value in values_of(task)]
    files = {name_of(file): file.kind for file in request.files}
    named = {name for text in used for name in split_names(text, files)[1::2]}
    for name, kind in files.items():
        if tasks and name not in named:
            yield Note("no task uses {file}", file=f"“{name}”")
        elif not tasks and kind == "file":
            advice = "the content of {file} cannot be read; save it in another format, such as PDF"
            yield Note(advice, file=f"“{name}”")
    if unread and not any(unread in text for text in used):
        yield Note("only the beginning and the end of the long request were read; put texts into files")


def _doubt(draft: NetworkPlan) -> Note:
    """What is least likely in a plan."""
    number, name = draft.doubt
    if number >= len(draft.tasks):
        return Note("perhaps more was meant")
    task = draft.tasks[number]
    if not name:
        return Note("{task} may be the wrong task", task=task.task)
    value = substitute(task.args[name], lambda maker: f"the result of {draft.tasks[maker].task}")
    parts = map(str, value if isinstance(value, list) else [value])
    # Visitors see names of files alone, and a path that is cut is not known as one.
    listed = ", ".join(Path(part).name if Path(part).is_absolute() else part for part in parts)
    value = f"“{brief_text(listed, _MOST_DOUBTED)}”"
    return Note("{value} may be wrong as {name} of {task}", value=value, name=name, task=task.task)


def _lacks_picture(request: PlanRequest, network: PointerNetwork) -> bool:
    """Whether a request without files, which no task can do, would probably be done with a picture."""
    if request.files or any(turn.resources for turn in request.turns):
        return False
    picture = Resource(kind="image", name="picture.png")
    draft = network.write(replace(request, files=(picture,)), network.known_tasks)
    is_used = any(picture.name in task.args.values() for task in draft.tasks)
    return is_used and not draft.left_out and draft.probability > 0.5


def _without_pasted_texts(request: PlanRequest) -> tuple[PlanRequest, Callable[[str], str]]:
    """The request with names of text files in place of long texts, and what puts these texts back."""
    pasted: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        numbers = (f"pasted{number}.txt" for number in count(len(pasted) + 1))
        name = next(name for name in numbers if name not in request.text)
        pasted[name] = next(filter(None, match.groups()))
        return f" {name} "

    text = _PASTED.sub(name, request.text)
    inside = " ".join(pasted.values())
    named = (file for file in request.files if name_of(file) in text or name_of(file) not in inside)
    texts = (Resource(kind="text", name=name) for name in pasted)

    def restore(text: str) -> str:
        for short, whole in pasted.items():
            text = text.replace(short, whole)
        return text

    return replace(request, text=text, files=(*named, *texts)), restore


def _with_languages(tasks: Sequence[Task], request: str) -> list[Task]:
    """The tasks, those of speech with its language as their purpose.

    A spoken translation is in the language that it is translated into; a recording in another one that the
    request names, else perhaps in that of a Chinese, Japanese or Korean request.
    """
    into = {task.id: find_language(str(task.args.get("tgt_lang") or "")) for task in tasks}
    named = languages_in(request) - {language.code for language in into.values() if language}
    heard = named or {detect_script(request) or ""}
    changed = []
    for task in tasks:
        spoken = {language.code for number in task.deps if (language := into.get(number))}
        codes = {"automatic-speech-recognition": heard, "text-to-speech": spoken}.get(task.task, set())
        language = find_language(next(iter(codes))) if len(codes) == 1 else None
        changed.append(task.model_copy(update={"purpose": language.name}) if language else task)
    return changed


def _hub_name(spec: TaskSpec) -> str:
    """The Hub's task that a task type performs; "" if none is known."""
    return next(iter(spec.aliases[-1:]), "") if spec.category == "tool" else spec.name


def _adapted_args(spec: TaskSpec, task: Task) -> dict[str, Any] | None:
    """Arguments for another task type, by name, then by kind; None if a required one has no value."""
    kinds = {arg.name: arg.kind for arg in TASKS[task.task].inputs}
    left = dict(task.args)
    args = {arg.name: left.pop(arg.name) for arg in spec.inputs if arg.name in left}
    for arg in spec.inputs:
        if arg.required and arg.name not in args:
            name = next((name for name in left if kinds.get(name) == arg.kind), None)
            if name is None:
                return None
            args[arg.name] = left.pop(name)
    return args


def _possible(
    draft: NetworkPlan, performers: Mapping[str, TaskSpec], step: str, has_tools: bool
) -> tuple[list[Task], list[Note]]:
    """The tasks of a draft that are likely and offered, with new ids; and notes on the others."""
    places: dict[int, int] = {}
    tasks: list[Task] = []
    notes: list[Note] = []
    unknown: set[int] = set()
    lacking: set[int] = set()
    for task, likely in zip(draft.tasks, draft.probabilities, strict=True):
        lost = [draft.tasks[dep].task for dep in task.deps if dep not in places]
        spec = performers.get(task.task)
        args = _adapted_args(spec, task) if spec and spec.category == "tool" else task.args
        if likely < UNKNOWN or unknown & {*task.deps}:
            unknown.add(task.id)
        elif lacks_file(task) or lacking & {*task.deps}:
            lacking.add(task.id)
            notes.append(Note(plans.NO_FILE, step=step))
        elif lost:
            left_out = "{task} is left out: it depends on {other}, which is left out"
            notes.append(Note(left_out, task=task.task, other=lost[0]))
        elif spec is None or args is None:
            reason = plans.NO_TOOL if has_tools else plans.NO_MODEL
            helps = () if has_tools else Note("`jarvis models {task}` has the reasons", task=task.task)
            notes.append(Note(reason, step=step, task=task.task, advice=helps))
        else:
            args = substitute(args, lambda number: ref(places[number]))
            places[task.id] = len(tasks)
            tasks.append(Task(task=spec.name, id=len(tasks), dep=refs_in(args) or [-1], args=args))
    if unknown:
        notes.append(Note("{step} is only understood in part" if tasks else plans.NOT_UNDERSTOOD, step=step))
    return tasks, list(dict.fromkeys(notes))


def shorten_rows(request: PlanRequest) -> tuple[PlanRequest, Rows]:
    """The request with files in place of their folder, and of each long row the first two and the last."""
    kinds = {name_of(file): file.kind for file in request.files}
    parts = split_names(_with_files_of_folders(request.text, request.files), kinds)
    rows: list[list[int]] = []
    for place in range(1, len(parts), 2):
        is_next = place > 1 and kinds[parts[place - 2]] == kinds[parts[place]]
        if is_next and _IN_ROW.fullmatch(parts[place - 1]):
            rows[-1].append(place)
        else:
            rows.append([place])
    attached = sorted((name for name in kinds if name not in parts), key=kinds.__getitem__)
    listed = [[parts[place] for place in row] for row in rows]
    listed += [list(same) for _, same in groupby(attached, kinds.__getitem__)]
    hidden = {row[1]: row[2:-1] for row in listed if len(set(row)) == len(row) > _LONGEST_ROW}
    for row in reversed(rows):
        if len(row) > _LONGEST_ROW and parts[row[1]] in hidden:
            del parts[row[2] - 1 : row[-1] - 1]
    left_out = {name for names in hidden.values() for name in names}
    files = tuple(file for file in request.files if name_of(file) not in left_out)
    return replace(request, text="".join(parts), files=files), hidden


def _with_files_of_folders(text: str, files: Sequence[Resource]) -> str:
    """The text with the names of files in place of their folder or pattern: photos/, scans/*.jpg."""
    by_kind = sorted(files, key=lambda file: file.kind)
    names = [name for name in map(name_of, by_kind) if name not in text]
    folders = {name[: max(name.rfind("/"), name.rfind("\\")) + 1] for name in names} - {""}
    folders |= {folder[:-1] for folder in folders if "/" in folder[1:-1]}
    above = {name[: slash.end()] for name in names for slash in re.finditer(r"[/\\]", name)} - folders
    places = [*map(re.escape, sorted(folders, key=len, reverse=True))]
    places += [rf"{re.escape(folder)}(?=\*\*/)" for folder in sorted(above, key=len, reverse=True)]
    places.append(f"(?={PATTERN.pattern})")

    def listed(place: re.Match[str]) -> str:
        folder, pattern = place["folder"], (place["pattern"] or "*").lower().replace("**/", "*")
        inside = (name for name in names if name.startswith(folder))
        fitting = (name for name in inside if fnmatchcase(name[len(folder) :].lower(), pattern))
        return ", ".join(fitting) or place[0]

    return re.sub(f"(?P<folder>{'|'.join(places)})(?P<pattern>{PATTERN.pattern})?", listed, text)


def repeat_tasks(tasks: Sequence[Task], row: Sequence[str]) -> list[Task]:
    """The tasks with new numbers. Those on the first file come again for the others; lists have all."""
    repeated: list[Task] = []
    copies: dict[int, list[str]] = {}
    for task in tasks:
        refs = refs_in(task.args)
        is_copied = row[0] in task.args.values() or (refs and all(len(copies[old]) > 1 for old in refs))
        renamed = {ref(old): new for old, new in copies.items()} | {row[0]: list(row)}
        for number, name in enumerate(row if is_copied else row[:1]):
            own = {
                old: new[number % len(new)] if is_copied else ", ".join(new) for old, new in copies.items()
            }
            args = {
                key: [
                    part for item in value for part in renamed.get(str(item)) or [substitute(item, own.get)]
                ]
                if isinstance(value, list)
                else substitute(name if value == row[0] else value, own.get)
                for key, value in task.args.items()
            }
            copies.setdefault(task.id, []).append(ref(len(repeated)))
            repeated.append(Task(task=task.task, id=len(repeated), dep=refs_in(args) or [-1], args=args))
    return repeated
