"""A report on a run, written in sentences without a language model.

examples/cat.jpg is probably a tiger cat (38 %); it could also be an Egyptian cat (35 %).
…
What did not work:
- text-to-video: failed: no model can do text-to-video here
What helps: with HF_TOKEN set, hosted models can be used

About the plan:
- the task fly is unknown and was left out

The template of a sentence depends on the form of the output, else on the task, else on the kind of the file.
The templates are in core/messages.py and core/data/chinese.toml.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jarvis_agent.backends.outputs.validators import plural
from jarvis_agent.backends.starter.images import imagenet_classes
from jarvis_agent.core.messages import Phrases, phrases
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.planning.plan import (
    NO_FILE,
    NO_MODEL,
    NO_TASK_TYPE,
    NO_TOOL,
    NOT_UNDERSTOOD,
    NOTHING_ASKED,
    Plan,
)
from jarvis_agent.response.answer_checker import mentions_failure
from jarvis_agent.response.questions import Question, decide, find_questions, is_answered
from jarvis_agent.response.results import detections, input_files, scored_labels, totals
from jarvis_agent.selection.advice import HELP

_SURE = 0.9
_UNSURE = 0.25
_MIN_ALTERNATIVE = 0.05
"""Probabilities: the best label is stated from `_SURE` and a mere guess below `_UNSURE`. Others are
named from `_MIN_ALTERNATIVE`."""

_MAX_ALTERNATIVES = 2
_MAX_COUNTS = 8
_MAX_FILES = 8
_MAX_CHARACTERS = 3000
_MAX_QUOTED = 40
_START = re.compile(r"^(?:in|it|the) ")
_VOWEL = re.compile(r"(?!uni|one|eu)[aeiou]|hour", re.IGNORECASE)
_LATE = re.compile("did not finish in its time|could not be read within")
_QUOTED = re.compile(r"[“\"(「]([^”\")」]{3,80})[”\")」]")


def report(request: str, plan: Plan, results: Sequence[TaskResult], note: str = "") -> Iterator[str]:
    """The report in paragraphs: the results, what could not be done, what would help, and what was repaired.

    Args:
        note: what else could not be done, or would help.
    """
    words = phrases(request)
    notes = [words.translated(text) for text in plan.notes if text not in plan.removed]
    if plan.tasks:
        parts = [*describe_outcome(request, plan, results), note, _list(words.notes, notes)]
    else:
        parts = [*_report_without_tasks(plan, words), note]
    whole = [paragraph for paragraph in parts if paragraph]
    for index, paragraph in enumerate(whole):
        yield paragraph if index == len(whole) - 1 else f"{paragraph}\n\n"


def is_unavailable(plan: Plan) -> bool:
    """Whether the notes of a plan say that a file, a task type, a tool or a model is missing."""
    missing = (NO_FILE, NO_MODEL, NO_TOOL, NO_TASK_TYPE)
    return any(words in note for note in plan.notes for words in missing)


def _report_without_tasks(plan: Plan, words: Phrases) -> Iterator[str]:
    said, notes = "\n".join(plan.notes), map(words.translated, plan.notes)
    is_late = bool(plan.notes) and all(map(_LATE.search, plan.notes))
    if is_late or is_unavailable(plan):
        yield _list(words.nothing if is_late or NOT_UNDERSTOOD in said else words.unavailable, notes)
        return
    if not plan.notes or not all(NOTHING_ASKED in note for note in plan.notes):
        yield _list(words.not_understood, notes)
    title, *examples = words.examples
    yield _list(title, examples)


def describe_outcome(request: str, plan: Plan, results: Sequence[TaskResult]) -> Iterator[str]:
    """What was found, in all pictures together too, and what could not be done; each may be empty."""
    words = phrases(request)
    done = [result for result in results if result.status == "ok"]
    yield describe_results(request, plan, done, words) if done else words.nothing
    yield _sum_over_images(results, words)
    yield describe_failures(plan, results, words)


def describe_results(request: str, plan: Plan, results: Sequence[TaskResult], words: Phrases) -> str:
    """What these tasks produced; first the questions that it does not answer."""
    questions = find_questions(request)
    unanswered = [question for question in questions if not is_answered(question, results)]
    lines = [words.unanswered.format(question=question.text) for question in unanswered]
    return "\n\n".join([*lines, sentences(results, plan.tasks, questions, words)])


def describe_failures(plan: Plan, results: Sequence[TaskResult], words: Phrases, answer: str = "") -> str:
    """What failed, was skipped or is missing in the plan, each with the reason, and what would help.

    Tasks with the same reason are listed together, and the tasks that wait for a failed one below it. What
    made several fail, such as a Hub that cannot be reached, is said once.

    Args:
        answer: failures that it mentions are left out.
    """
    by_cause: dict[tuple[str, str], list[TaskResult]] = {}
    waiting: dict[tuple[str, str], list[TaskResult]] = {}
    causes: dict[int, tuple[str, str]] = {}
    for result in results:
        if result.status == "ok":
            continue
        others = [causes[i] for i in result.task.deps if i in causes] if result.status == "skipped" else []
        cause = others[0] if others else (result.status, result.error or words.no_reason)
        causes[result.task.id] = cause
        (waiting if others else by_cause).setdefault(cause, []).append(result)

    def titles(several: Iterable[TaskResult]) -> str:
        return ", ".join(_title(result.task, plan.tasks, words) for result in several)

    lines, helps, said = list[str](), dict[str, None](), set[str]()
    for cause, failed in by_cause.items():
        reason, _, help_ = cause[1].partition(HELP)
        if mentions_failure(answer, _names_of(failed), reason):
            continue
        helps |= dict.fromkeys(help_.split("; ") if help_ else ())
        state = words.failed if cause[0] == "failed" else words.skipped
        state += words.kinds.get(failed[0].failure or "", "")
        reason = words.translated(_without_repeats(reason.rstrip("."), said))
        line = words.trouble.format(titles=titles(failed), state=state, reason=reason)
        after = words.skipped_too.format(tasks=titles(waiting[cause])) if cause in waiting else ""
        lines.append(f"{line}\n{after}".rstrip())
    missing = [note for note in plan.removed if not mentions_failure(answer, _QUOTED.findall(note), note)]
    lines += map(words.translated, missing)
    listed = _list(words.troubles, lines)
    advice = "; ".join(map(words.translated, helps))
    return f"{listed}\n{words.helps.format(advice=advice)}" if helps else listed


def _without_repeats(reason: str, said: set[str]) -> str:
    """A reason without those of its causes, in brackets at its end, that are in `said`. Adds the others."""
    what, bracket, causes = reason.partition(" (")
    if not bracket or not causes.endswith(")"):
        return reason
    new = [cause for cause in causes[:-1].split("; ") if cause not in said]
    said.update(new)
    return f"{what} ({'; '.join(new)})" if new else what


def _names_of(results: Iterable[TaskResult]) -> set[str]:
    """The names of tasks and of the models that were tried, also without their owners."""
    tried = {attempt.model for result in results for attempt in result.attempts}
    models = tried | {result.model for result in results if result.model}
    return models | {model.rpartition("/")[2] for model in models} | {result.task.task for result in results}


def _list(title: str, lines: Iterable[str]) -> str:
    """A title with a list below it; without lines "", or the title if it ends with a full stop."""
    listed = list(lines)
    if not listed:
        return "" if title.endswith((":", "：")) else title
    return f"{title}\n{bullets(listed)}"


def _title(task: Task, tasks: Sequence[Task], words: Phrases) -> str:
    about = subject(task, tasks, words)
    return task.task + (f" ({about})" if about else "")


def _sum_over_images(results: Sequence[TaskResult], words: Phrases) -> str:
    sums = totals(results)
    if len(sums.get("by_file", ())) < 2:
        return ""
    by_file: dict[str, dict[str, int]] = sums["by_file"]
    counts = []
    for label, count in Counter(sums.get("labels", {})).most_common(_MAX_COUNTS):
        places = ", ".join(f"{file}: {seen.get(label, 0)}" for file, seen in by_file.items())
        counts.append(f"{count_of(label, count, words)} ({places})")
    return words.total.format(counts="; ".join(counts) or "0")


def sentences(
    results: Sequence[TaskResult], tasks: Sequence[Task], questions: Sequence[Question], words: Phrases
) -> str:
    """The sentences on these results of a plan: a list if there are several.

    If the plan has no other task, they do not say what they are about.
    """
    alone = len(results) == len(tasks) == 1
    said = [
        _say(result, "" if alone else subject(result.task, tasks, words), questions, words)
        for result in results
    ]
    return said[0] if len(said) == 1 else bullets(said)


def bullets(texts: Sequence[str]) -> str:
    """A list of these texts, with hanging indents."""
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts)


def subject(task: Task, tasks: Sequence[Task], words: Phrases) -> str:
    """What a task was given: files, and what other tasks make; else the beginning of its text, in quotes."""
    names = input_files(task)
    names[_MAX_FILES:] = ["…"] if len(names) > _MAX_FILES else []
    sources = {source.id: source for source in tasks}
    media = {name: value for name, value in task.args.items() if name in MEDIA}
    for source in [sources[number] for number in refs_in(media or task.args) if number in sources]:
        files = words.comma.join(input_files(source))
        of_files = words.of.format(subject=_spaced(files, words)) if files else ""
        names.append(words.output_of.format(noun=_noun(source.task, words), of=of_files))
    text = task.args.get("text")
    if not names and isinstance(text, str) and text:
        names = [f"“{brief_text(text, _MAX_QUOTED)}”"]
    language = task.args.get("tgt_lang")
    return words.comma.join(dict.fromkeys(names)) + (f" → {language}" if language else "")


def _noun(task: str, words: Phrases) -> str:
    """What a task makes: "depth map", "text"."""
    kind = TASKS[task].outputs[0] if task in TASKS else "any"
    return words.nouns.get(task) or words.nouns.get(kind) or words.nouns["any"]


def _say(result: TaskResult, about: str, questions: Sequence[Question], words: Phrases) -> str:
    """The statement, the files, and the notes."""
    about = _spaced(about, words)
    fields = {
        "it": about or words.it,
        "inside": about and words.inside.format(subject=about),
        "of": about and words.of.format(subject=about),
        "made_from": about and words.made_from.format(subject=about),
    }
    statement = _statement(result, fields, words)
    verdict = next((yes for question in questions if (yes := decide(question, result)) is not None), None)
    if verdict is not None:
        statement = (words.yes if verdict else words.no).format(said=statement)
    notes = [words.note.format(text=words.translated(note)) for note in result.all_notes]
    parts = [statement, _files(result, fields, words), *notes]
    return "\n".join(filter(None, parts)) or words.empty


def _spaced(text: str, words: Phrases) -> str:
    """A text before the next word of a sentence: in Chinese, a space follows Latin letters."""
    return text + (words.gap if text[-1:].isascii() else "") if text else ""


def _statement(result: TaskResult, fields: Mapping[str, str], words: Phrases) -> str:
    boxes = detections(result)
    if boxes is not None:
        template = words.objects if boxes else words.no_objects
        return _fill(template, fields, text=_counts(boxes, words))
    if labels := scored_labels(result):
        return _best(labels, fields, words)
    name = result.task.task
    text = _text(result, words)
    if not text or name not in TASKS:
        return text and words.tool.format(task=name, text=text)
    key = "reading" if name == "image-to-text" and result.task.args.get("text") else name
    if fitting := words.statements.get(key):
        return _fill(fitting, fields, text=f"\n{text}" if "\n" in text else text).replace(" \n", "\n", 1)
    return text


def _fill(template: str, fields: Mapping[str, str], **more: str) -> str:
    return _START.sub(lambda word: word[0].capitalize(), template.format(**fields, **more).strip())


def _best(labels: Sequence[tuple[str, float | None]], fields: Mapping[str, str], words: Phrases) -> str:
    """The best label, and the next ones unless it is sure."""
    score = labels[0][1]
    is_sure = score is None or score >= _SURE
    template = words.sure if is_sure else words.probable if (score or 0.0) >= _UNSURE else words.unsure
    others = [] if is_sure else [label for label in labels[1:] if (label[1] or 0.0) >= _MIN_ALTERNATIVE]
    also = [_label(*label, words) for label in others[:_MAX_ALTERNATIVES]]
    said = words.others.format(others=_join(also, words.comma, words.or_)) if also else ""
    return _fill(template, fields, best=_label(*labels[0], words), others=said)


def _label(label: str, score: float | None, words: Phrases) -> str:
    """A label with its score: a noun if it is known to be one, else in quotes."""
    # Less than half a percent would be shown as "0 %", which says that it is impossible.
    percent = words.percent.format(number=f"{100 * score:.0f}") if score and score >= 0.005 else ""
    noun = label.split(", ")[0]
    return (_noun_phrase(noun, words) if noun in imagenet_classes() else f"“{label}”") + percent


def _noun_phrase(noun: str, words: Phrases) -> str:
    is_many = noun.endswith("s") and not noun.endswith(("ss", "us", "is"))  # sunglasses
    if words.gap or is_many:
        return words.gap + noun
    return f"{'an' if _VOWEL.match(noun) else 'a'} {noun}"


def _counts(boxes: Sequence[Mapping[str, Any]], words: Phrases) -> str:
    counts = Counter(str(box["label"]) for box in boxes).most_common()
    said = [count_of(label, number, words) for label, number in counts[:_MAX_COUNTS]]
    more = sum(number for _, number in counts[_MAX_COUNTS:])
    return _join([*said, *([words.more.format(number=more)] if more else [])], words.comma, words.and_)


def count_of(label: str, number: int, words: Phrases) -> str:
    """A label with its number: "3 people"."""
    noun = plural(label) if number != 1 and not words.labels else label
    return words.count.format(number=number, label=words.labels.get(label, words.measure + noun))


def _join(texts: Sequence[str], comma: str, last: str) -> str:
    return last.join(filter(None, [comma.join(texts[:-1]), *texts[-1:]]))


def _text(result: TaskResult, words: Phrases) -> str:
    part = result.resource("text")
    if part is None or part.text is None:
        is_text = not result.resources and result.output not in (None, [], {}, "")
        return json.dumps(result.output, ensure_ascii=False, default=str) if is_text else ""
    text = part.text.strip()
    if (rest := len(text) - _MAX_CHARACTERS) > 0:
        return text[:_MAX_CHARACTERS] + words.more_text.format(number=rest)
    return text or words.empty


def _files(result: TaskResult, fields: Mapping[str, str], words: Phrases) -> str:
    """The files with their durations; several with their names, in a list."""
    seconds = totals([result]).get("seconds", {})
    paths = list(dict.fromkeys(map(str, result.paths())))
    if not paths:
        return ""
    named = result.resources if len(paths) > 1 else ()
    notes = {str(resource.path): resource.name for resource in named if resource.path}
    notes |= {path: words.seconds.format(number=length) for path, length in seconds.items()}
    lines = [path + (f" ({notes[path]})" if notes.get(path) else "") for path in paths[:_MAX_FILES]]
    if len(paths) == 1:
        return words.file.format(noun=_noun(result.task.task, words), path=lines[0], **fields)
    if len(paths) > _MAX_FILES:
        lines.append(words.more_files.format(number=len(paths) - _MAX_FILES))
    return f"{words.files.format(**fields)}\n{bullets(lines)}"
