"""A report on a run, written without a language model.

examples/cat.jpg is probably a tiger cat (38 %); it could also be an Egyptian cat (35 %).
…
What did not work:
- text-to-video: failed: no model can do text-to-video here
What helps: with HF_TOKEN set, hosted models can be used

About the plan:
- the task fly is unknown and was left out
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from jarvis_agent.core.messages import Phrases, phrases
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.answer_checker import admits
from jarvis_agent.response.questions import find_questions, is_answered
from jarvis_agent.response.results import totals
from jarvis_agent.response.sentences import bullets, count_of, sentences, subject
from jarvis_agent.selection.advice import HELP

_COUNTS = 8
NO_MODEL = "no model for it is available"
"""Is in the note on a task that has no model."""

NOTHING_ASKED = "asks for no"
"""Is in the note on a request that needs no task."""

_UNAVAILABLE = re.compile(f"{NO_MODEL}|not one of the tools|no (?:task type|tool) ")
_LATE = re.compile("did not finish in its time|could not be read within")
_NOT_UNDERSTOOD = re.compile("is not understood|names nothing to do")
_QUOTED = re.compile(r"[“\"(「]([^”\")」]{3,80})[”\")」]")


def report(request: str, plan: Plan, results: Sequence[TaskResult], note: str = "") -> Iterator[str]:
    """The report in paragraphs: the results, what could not be done, what would help, and what was repaired.

    Args:
        note: what else could not be done, or would help.
    """
    words = phrases(request)
    notes = [words.translated(text) for text in plan.notes if text not in plan.removed]
    if plan.tasks:
        parts = [*outcome(request, plan, results), note, _list(words.notes, notes)]
    else:
        parts = [*_on_nothing(plan, words), note]
    whole = [paragraph for paragraph in parts if paragraph]
    for place, paragraph in enumerate(whole):
        yield paragraph if place == len(whole) - 1 else f"{paragraph}\n\n"


def is_unavailable(plan: Plan) -> bool:
    """Whether the notes of a plan say that a task type, a tool or a model is missing."""
    return _UNAVAILABLE.search("\n".join(plan.notes)) is not None


def _on_nothing(plan: Plan, words: Phrases) -> Iterator[str]:
    said, notes = "\n".join(plan.notes), map(words.translated, plan.notes)
    is_late = bool(plan.notes) and all(map(_LATE.search, plan.notes))
    if is_late or is_unavailable(plan):
        yield _list(words.nothing if is_late or _NOT_UNDERSTOOD.search(said) else words.unavailable, notes)
        return
    if {NOTHING_ASKED in note for note in plan.notes} != {True}:
        yield _list(words.not_understood, notes)
    title, *examples = words.examples
    yield _list(title, examples)


def outcome(request: str, plan: Plan, results: Sequence[TaskResult]) -> Iterator[str]:
    """What was found, in all pictures together too, and what could not be done; each may be empty."""
    words = phrases(request)
    done = [result for result in results if result.status == "ok"]
    yield found(request, plan, done, words) if done else words.nothing
    yield _sum_over_images(results, words)
    yield troubles(plan, results, words)


def found(request: str, plan: Plan, results: Sequence[TaskResult], words: Phrases) -> str:
    """What these tasks produced; first the questions that it does not answer."""
    questions = find_questions(request)
    unanswered = [
        words.unanswered.format(question=question.text)
        for question in questions
        if not is_answered(question, results)
    ]
    return "\n\n".join([*unanswered, sentences(results, plan.tasks, questions, words)])


def troubles(plan: Plan, results: Sequence[TaskResult], words: Phrases, answer: str = "") -> str:
    """What failed, was skipped or is missing in the plan, each with the reason, and what would help.

    Tasks with the same reason are listed together, and the tasks that wait for a failed one below it. What
    made several fail, such as a Hub that cannot be reached, is said once.

    Args:
        answer: what it admits is left out.
    """
    alike: dict[tuple[str, str], list[TaskResult]] = {}
    waiting: dict[tuple[str, str], list[TaskResult]] = {}
    causes: dict[int, tuple[str, str]] = {}
    for result in results:
        if result.status == "ok":
            continue
        others = [causes[i] for i in result.task.deps if i in causes] if result.status == "skipped" else []
        causes[result.task.id] = cause = [*others, (result.status, result.error or words.no_reason)][0]
        (waiting if others else alike).setdefault(cause, []).append(result)

    def titles(several: Iterable[TaskResult]) -> str:
        return ", ".join(_title(result.task, plan.tasks, words) for result in several)

    lines, helps, said = list[str](), dict[str, None](), set[str]()
    for cause, failed in alike.items():
        reason, _, help_ = cause[1].partition(HELP)
        if admits(answer, _names_of(failed), reason):
            continue
        helps |= dict.fromkeys(help_.split("; ") if help_ else ())
        state = words.failed if cause[0] == "failed" else words.skipped
        state += words.kinds.get(failed[0].failure or "", "")
        reason = words.translated(_unsaid(reason.rstrip("."), said))
        line = words.trouble.format(titles=titles(failed), state=state, reason=reason)
        after = words.skipped_too.format(tasks=titles(waiting[cause])) if cause in waiting else ""
        lines.append(f"{line}\n{after}".rstrip())
    missing = [note for note in plan.removed if not admits(answer, _QUOTED.findall(note), note)]
    lines += map(words.translated, missing)
    listed = _list(words.troubles, lines)
    advice = "; ".join(map(words.translated, helps))
    return f"{listed}\n{words.helps.format(advice=advice)}" if helps else listed


def _unsaid(reason: str, said: set[str]) -> str:
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
    for label, count in Counter(sums.get("labels", {})).most_common(_COUNTS):
        places = ", ".join(f"{file}: {seen.get(label, 0)}" for file, seen in by_file.items())
        counts.append(f"{count_of(label, count, words)} ({places})")
    return words.total.format(counts="; ".join(counts) or "0")
