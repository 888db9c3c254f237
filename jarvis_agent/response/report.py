"""A report on a run, written without a language model: one sentence for each result.

Its template depends on the form of the output, else on the task, else on the kind of file (core/phrases.py).
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jarvis_agent.backends.languages import find_language
from jarvis_agent.backends.outputs.validators import plural
from jarvis_agent.backends.starter.images import imagenet_classes
from jarvis_agent.core.notes import Note, template_of
from jarvis_agent.core.phrases import CHINESE, Phrases, phrases
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.planning import plan as plans
from jarvis_agent.response.results import detections, input_files, scored_labels, totals
from jarvis_agent.selection.advice import NO_CANDIDATE, WITHOUT_REASONS

_SURE, _UNSURE, _MIN_ALTERNATIVE = 0.9, 0.25, 0.05  # probabilities
_MAX_FILES, _MAX_CHARACTERS, _MAX_QUOTED = 8, 3000, 40
_MISSING = {plans.NO_FILE, plans.NO_MODEL, plans.NO_TOOL, plans.NO_TASK_TYPE}
_VOWEL = re.compile(r"(?!uni|one|eu)[aeiou]|hour", re.IGNORECASE)


def report(inputs: Mapping[str, Any], note: str = "", advice: Iterable[str] = ()) -> Iterator[str]:
    """The report in paragraphs: results, failures, `note` (what else would help), and repairs of the plan.

    `inputs` are those of a responder; `advice` is for a plan without tasks.
    """
    words, plan = phrases(inputs["input"]), plan_of(inputs)
    has_tasks = bool(plan.tasks)
    empty = _describe_empty(plan, words, inputs.get("available") or (), advice)
    outcome = describe_outcome(plan, inputs.get("results") or (), words) if has_tasks else empty
    repairs = [words.translated(text) for text in plan.notes if has_tasks and text not in plan.removed]
    for index, paragraph in enumerate(filter(None, [*outcome, note, _list(words.notes, repairs)])):
        yield f"\n\n{paragraph}" if index else paragraph


def plan_of(inputs: Mapping[str, Any]) -> plans.Plan:
    """The plan in the inputs of a responder; an empty one if there is none."""
    plan = inputs.get("plan")
    return plans.Plan() if plan is None else plan


def asks_nothing(plan: plans.Plan) -> bool:
    """Whether a planner found nothing to do: a greeting, thanks, or chat."""
    return {*map(template_of, plan.notes)} == {plans.NOTHING_ASKED}


def _describe_empty(
    plan: plans.Plan, words: Phrases, available: Collection[str], advice: Iterable[str]
) -> Iterator[str]:
    """Why a plan has no tasks, and requests that work. Chat gets a greeting, and what works here."""
    abilities = [text for task, text in words.abilities.items() if task in available]
    if asks_nothing(plan) and abilities:
        listed = [words.comma.join(abilities[:-1]), abilities[-1]] if abilities[1:] else abilities
        yield words.greeting.format(abilities=words.or_.join(listed))
        return
    is_unclear = not plan.notes or plans.NOT_UNDERSTOOD in map(template_of, plan.notes)
    title = words.not_understood if is_unclear else words.unavailable
    title = words.nothing if is_unclear == is_unavailable(plan) else title
    if not asks_nothing(plan):
        reasons = _list(title, [words.translated(Note.of(note).message) for note in plan.notes]) or title
        own = (text for note in plan.notes for text in Note.of(note).advice)
        yield _with_helps(reasons, [*own, *advice], words)
    if not is_unavailable(plan):
        yield _list(words.examples[0], words.examples[1:])


def is_unavailable(plan: plans.Plan) -> bool:
    """Whether the notes of a plan say that a file, a task type, a tool or a model is missing."""
    return not _MISSING.isdisjoint(map(template_of, plan.notes))


def describe_outcome(plan: plans.Plan, results: Sequence[TaskResult], words: Phrases) -> Iterator[str]:
    """What was found, in all pictures together too, and what could not be done; each may be empty."""
    done = [result for result in results if result.status == "ok"]
    texts = [_describe(result, plan.tasks, words) for result in done]
    yield _list("", texts) if len(texts) > 1 else "".join(texts) or words.nothing
    sums, counts = totals(done), list[str]()
    if len(sums.get("by_file", ())) > 1:
        for label, number in Counter(sums.get("labels", {})).most_common():
            places = (f"{file}: {seen.get(label, 0)}" for file, seen in sums["by_file"].items())
            counts.append(f"{_count(label, number, words)} ({words.comma.join(places)})")
        yield words.total.format(counts=words.translated("; ").join(counts) or "0")
    yield describe_failures(plan, results, words)


def describe_failures(plan: plans.Plan, results: Sequence[TaskResult], words: Phrases) -> str:
    """What failed, what waits for it, what is missing in the plan, each reason once, and what would help."""
    causes: dict[int, tuple[str, str]] = {}
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for result in [result for result in results if result.status != "ok"]:
        failed = [causes[i] for i in result.task.deps if i in causes] if result.status == "skipped" else []
        state = words.failed if result.status == "failed" else words.skipped
        own = (state + words.kinds.get(result.failure or "", ""), result.error or words.no_reason)
        cause = causes[result.task.id] = failed[0] if failed else own
        subject = _subject(result.task, plan.tasks, words)
        title = result.task.task + (f" ({subject})" if subject else "")
        groups.setdefault(cause, ([], []))[bool(failed)].append(title)
    lines, helps, reported = list[str](), list[str](), set[str]()
    for (state, error), (titles, waiting) in groups.items():
        helps += Note.of(error).advice
        reason = Note.of(error).message
        if isinstance(reason, Note) and reason.template == NO_CANDIDATE:
            new = [cause for cause in reason.values["reasons"] if cause not in reported]
            reported.update(new)
            bare = Note(WITHOUT_REASONS, task=reason.values["task"])
            reason = Note(NO_CANDIDATE, **{**reason.values, "reasons": new}) if new else bare
        text = words.translated(reason).rstrip(".")
        line = words.trouble.format(titles=words.comma.join(titles), state=state, reason=text)
        too = words.skipped_too.format(tasks=words.comma.join(waiting))
        lines.append(f"{line}\n{too}" if waiting else line)
    for note in plan.removed:
        helps += Note.of(note).advice
        lines.append(words.translated(Note.of(note).message))
    return _with_helps(_list(words.troubles, lines), helps, words)


def _with_helps(text: str, helps: Sequence[str], words: Phrases) -> str:
    """A text with what would help below it, each once."""
    advice = words.translated("; ").join(map(words.translated, dict.fromkeys(helps)))
    return f"{text}\n{words.helps.format(advice=advice)}" if helps else text


def _list(title: str, lines: Iterable[str]) -> str:
    """A title with a list below it; "" without lines."""
    listed = ["- " + line.replace("\n", "\n  ") for line in lines]
    return "\n".join(filter(None, [title, *listed])) if listed else ""


def _subject(task: Task, tasks: Sequence[Task], words: Phrases) -> str:
    """What a task was given: files, and what other tasks make; else the beginning of its text, in quotes."""
    files, text, language = input_files(task), task.args.get("text"), str(task.args.get("tgt_lang") or "")
    if (known := find_language(language)) and words is CHINESE:
        language = known.chinese
    names = [*files[:_MAX_FILES], *(["…"] if len(files) > _MAX_FILES else [])]
    media = {name: value for name, value in task.args.items() if name in MEDIA}
    sources = {source.id: source for source in tasks}
    for source in [sources[number] for number in refs_in(media or task.args) if number in sources]:
        forms = _forms(words.comma.join(input_files(source)), words)
        names.append(words.output_of.format(noun=_noun(source.task, words), of=forms["of"]))
    if not names and isinstance(text, str) and text:
        names = [f"“{brief_text(text, _MAX_QUOTED)}”"]
    return words.comma.join(dict.fromkeys(names)) + (f" → {language}" if language else "")


def _forms(subject: str, words: Phrases) -> dict[str, str]:
    """What fills the templates of sentences about this subject. In Chinese, a space follows Latin letters."""
    subject += words.gap if subject and subject[-1].isascii() else ""
    forms = {name: getattr(words, name).format(subject=subject) for name in ("inside", "of", "made_from")}
    return {"it": subject, **forms} if subject else {"it": words.it, **dict.fromkeys(forms, "")}


def _noun(task: str, words: Phrases) -> str:
    """What a task makes: "depth map", "text"."""
    kind = TASKS[task].outputs[0] if task in TASKS else "any"
    return words.nouns.get(task) or words.nouns[kind]


def _describe(result: TaskResult, tasks: Sequence[Task], words: Phrases) -> str:
    """The sentence on a result of these tasks, its files, and its notes."""
    forms = _forms(_subject(result.task, tasks, words) if len(tasks) > 1 else "", words)
    template, values = _sentence(result, words)
    text = template.format(**forms, **values).strip().replace(" \n", "\n", 1)
    if template != "{text}" and text.startswith(("in ", "it ", "the ")):  # not the name of a file
        text = text[0].upper() + text[1:]
    notes = [words.note.format(text=words.translated(note)) for note in result.all_notes]
    return "\n".join(filter(None, [text, _files(result, forms, words), *notes])) or words.empty


def _sentence(result: TaskResult, words: Phrases) -> tuple[str, dict[str, str]]:
    """The template for a result, and what fills it; empty if it has only files."""
    name, part, boxes = result.task.task, result.resource("text"), detections(result)
    if boxes is not None:
        counts = Counter(str(box["label"]) for box in boxes).most_common()
        listed = [_count(label, number, words) for label, number in counts]
        listed[:-1] = [words.comma.join(listed[:-1])] if listed[1:] else []
        return words.objects if boxes else words.no_objects, {"text": words.and_.join(listed)}
    if labels := scored_labels(result):
        return _best(labels, words)
    nothing = "" if result.notes else words.empty  # a note says that nothing was heard or read
    text = "" if part is None or part.text is None else part.text.strip() or nothing
    if not result.resources and result.output not in (None, [], {}, ""):
        text = json.dumps(result.output, ensure_ascii=False, default=str)
    if (more := len(text) - _MAX_CHARACTERS) > 0:
        text = text[:_MAX_CHARACTERS] + words.more_text.format(number=more)
    key = "reading" if name == "image-to-text" and result.task.args.get("text") else name
    first = result.output[0] if isinstance(result.output, list) and result.output else None
    if isinstance(first, dict) and {"answer", "similarity"} <= first.keys():
        key = "lines"
    template = words.statements.get(key, "{text}") if name in TASKS else words.tool
    return template if text else "", {"task": name, "text": f"\n{text}" if "\n" in text else text}


def _best(labels: Sequence[tuple[str, float | None]], words: Phrases) -> tuple[str, dict[str, str]]:
    """The best label, and the next ones unless it is sure."""
    score = 1.0 if labels[0][1] is None else labels[0][1]
    template = words.sure if score >= _SURE else words.probable if score >= _UNSURE else words.unsure
    others = [label for label in labels[1:3] if score < _SURE and (label[1] or 0.0) >= _MIN_ALTERNATIVE]
    listed = words.or_.join(_label(*label, words) for label in others)
    also = words.others.format(others=listed) if listed else ""
    return template, {"best": _label(*labels[0], words), "others": also}


def _label(label: str, score: float | None, words: Phrases) -> str:
    """A label with its score: a noun if it is known to be one, else in quotes."""
    noun = label.split(", ")[0]
    is_many = noun.endswith("s") and not noun.endswith(("ss", "us", "is"))  # sunglasses
    article = "" if is_many else "an " if _VOWEL.match(noun) else "a "
    name = f"{words.gap or article}{noun}" if noun in imagenet_classes() else f"“{label}”"
    # Less than half a percent would be shown as "0 %", which says that it is impossible.
    return name + (words.percent.format(number=f"{100 * score:.0f}") if score and score >= 0.005 else "")


def _count(label: str, number: int, words: Phrases) -> str:
    """A label with its number: "3 people"."""
    noun = plural(label) if number != 1 and not words.labels else label
    return words.count.format(number=number, label=words.labels.get(label, words.measure + noun))


def _files(result: TaskResult, forms: Mapping[str, str], words: Phrases) -> str:
    """The files with their durations; several with their names, in a list."""
    paths = list(dict.fromkeys(map(str, result.paths())))
    notes = {str(resource.path): resource.name for resource in result.resources if len(paths) > 1}
    for path, seconds in totals([result]).get("seconds", {}).items():
        notes[path] = words.seconds.format(number=seconds)
    lines = [f"{path} ({notes[path]})" if notes.get(path) else path for path in paths]
    if len(lines) == 1:
        if (spec := TASKS.get(result.task.task)) is not None and spec.category == "media":
            others = {name: value for name, value in result.task.args.items() if name not in MEDIA}
            switches = {arg.name for arg in spec.inputs if arg.type == "boolean"}
            edits = [
                name if name in switches and value == 1 else f"{name} {value}"
                for name, value in others.items()
                if not refs_in(value)
            ]
            lines[0] += f" ({words.comma.join(edits)})" if edits else ""
        return words.file.format(noun=_noun(result.task.task, words), path=lines[0], **forms)
    if (more := len(lines) - _MAX_FILES) > 0:
        lines[_MAX_FILES:] = [words.more_files.format(number=more)]
    return _list(words.files.format(**forms), lines)
