"""Example selectors (LangChain BaseExampleSelectors): which examples the planning prompt shows.

    FixedExamples(load_examples("paper"))
    NearestExamples(TextSimilarity(OpenAIEmbeddings())).select_examples({"input": "Count the cats in a.jpg"})

`NearestExamples` compares the requests and, with a draft plan of the request, the tasks: a chain of tasks is
shown examples with such a chain. It uses only available tasks, with their names and arguments, and varies the
tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.planning.examples import Example, example_of_tool, load_examples, read_examples
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.retrieval import TextSimilarity

MAX_SAME_TASKS = 2
"""Number of selected examples with the same tasks."""

_SAME_KINDS, _SAME_FILES, _SAME_TASKS = 0.15, 0.1, 2.3
"""Weights of files of the same kinds, of the same number of each kind, and of the same tasks as the draft's.
That of similar words is 1."""


class FixedExamples(BaseExampleSelector):
    """Selects the same examples for every request."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self.examples = list(map(Example.of, examples))

    def add_example(self, example: dict[str, Any]) -> None:
        """Add an example (see `Example.of`)."""
        self.examples.append(Example.of(example))

    def select_examples(self, input_variables: dict[str, Any]) -> list[dict[str, Any]]:
        """All examples."""
        return [example.to_dict() for example in self.examples]


class NearestExamples(BaseExampleSelector):
    """Selects the examples most similar to the request, the most similar one last.

    Examples with a chat are for requests with a chat. A follow-up request gets at least one of them.

    Args:
        similarity: None: by MiniLM if its weights are installed, or else by shared words.
        examples: None: the bank of the package.
        count: number of examples selected.
    """

    def __init__(
        self,
        similarity: TextSimilarity | None = None,
        examples: Iterable[Any] | None = None,
        *,
        count: int = 6,
    ) -> None:
        self.similarity = similarity or TextSimilarity()
        self.examples = list(map(Example.of, load_examples("bank") if examples is None else examples))
        self.count = count

    def add_example(self, example: dict[str, Any]) -> None:
        """Add an example (see `Example.of`)."""
        self.examples.append(Example.of(example))

    def select_examples(self, input_variables: dict[str, Any]) -> list[dict[str, Any]]:
        """The nearest examples to the input of a planning chain, and to its PlanDraft in "draft"."""
        request, draft = PlanRequest.of(input_variables), input_variables.get("draft")
        is_clear = draft and (draft.is_sure or draft.plan.tasks)
        drafted = [task.task for task in draft.plan.tasks] if draft and is_clear else None
        known = [example for example in self.examples if request.turns or not example.chat]
        known = [adapted for example in known if (adapted := example.adapted_to(request.specs))]
        covered = {example.tasks for example in known}
        tools = [spec for spec in request.specs.values() if spec.category == "tool"]
        known += [example_of_tool(spec) for spec in tools if (spec.name,) not in covered]
        scores = self.similarity.scores(request.text, [example.input for example in known])
        kinds = Counter(file.kind for file in request.files)

        def score(example: Example, similarity: float) -> float:
            own = Counter(file.kind for file in example.files)
            files = _SAME_KINDS * (own.keys() == kinds.keys()) + _SAME_FILES * (own == kinds)
            same_tasks = 0.0 if drafted is None else _overlap(example.tasks, drafted)
            return similarity + files + _SAME_TASKS * same_tasks

        scored = [(score(example, each), example) for example, each in zip(known, scores, strict=True)]
        ranked = [example for _, example in sorted(scored, key=lambda each: -each[0])]
        if request.turns:
            first = next((example for example in ranked if example.chat), None)
            ranked.sort(key=lambda example: example is not first)
        chosen: list[Example] = []
        shown: Counter[tuple[str, ...]] = Counter()
        for example in ranked:
            if shown[example.tasks] < MAX_SAME_TASKS and len(chosen) < self.count:
                shown[example.tasks] += 1
                chosen.append(example)
        return [example.to_dict() for example in reversed(chosen)]


def open_selector(examples: Any, similarity: TextSimilarity, *, count: int) -> BaseExampleSelector:
    """The selector for the `examples` of a planning chain.

    Args:
        examples: "paper", "default", "nearest" or None (the same), a JSON file, a selector, or a list.
        similarity: selects the nearest examples.
        count: number of nearest examples.

    Raises:
        ConfigError: `examples` is something else, or cannot be read.
    """
    if isinstance(examples, BaseExampleSelector):
        return examples
    if examples in (None, "nearest"):
        return NearestExamples(similarity, count=count)
    if examples in ("paper", "default"):
        return FixedExamples(load_examples(str(examples)))
    if isinstance(examples, Path):
        return FixedExamples(read_examples(examples))
    if isinstance(examples, Sequence) and not isinstance(examples, str):
        return FixedExamples(examples)
    raise ConfigError(
        'examples are "paper", "default", "nearest", a list of examples, or a BaseExampleSelector, '
        f"not {examples!r}"
    )


def _overlap(tasks: Sequence[str], others: Sequence[str]) -> float:
    """F1 of the tasks of two plans; 1 for two without tasks."""
    shared = (Counter(tasks) & Counter(others)).total()
    return 2 * shared / (len(tasks) + len(others)) if tasks or others else 1.0
