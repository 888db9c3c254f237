"""The selection chain: the LLM chooses one of the candidates for a task.

chain = selection_chain(llm)     # prompt template | chat model | ModelChoiceParser
choice = chain.invoke({"input": "Find the zebras in z.jpg", "task": task, "candidates": candidates})
choice       # ModelChoice(id="facebook/detr-resnet-50", reason="it detects zebras")
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.exceptions import OutputParserException
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.graph import Graph
from pydantic import BaseModel, Field, ValidationError

from jarvis_agent.core.errors import InputError, describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.sync import AsyncRunnable
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate, Frozen, Task
from jarvis_agent.llm.client import LanguageModel, LLMClient, open_client
from jarvis_agent.llm.prompts import PromptSource, fill, load_prompts
from jarvis_agent.llm.replies import read_json
from jarvis_agent.llm.tokens import clip, clip_rows
from jarvis_agent.selection.ranking import datasets_of, is_subject

if TYPE_CHECKING:
    from langchain_core.decisions import BaseDecisionModel

_MAX_REASON_CHARS, _MAX_NAME_CHARS = 400, 80
_DESCRIPTION_TOKENS, _TASK_TOKENS = 100, 250
LEAST_CONFIDENCE = 0.5
"""Confidence of a decision model below which the ranking decides."""
_LIST_SHARE = 3
"""The candidates take at most a third of the context window."""


class SelectionInput(BaseModel):
    """The input of the chain. A task or a candidate may be a dict of its fields."""

    input: Any = None
    task: Task
    candidates: list[Candidate] = Field(min_length=1)


class ModelChoice(Frozen):
    """The model that was chosen for a task, and why."""

    id: str
    reason: str = ""


def selection_chain(
    llm: LanguageModel,
    *,
    prompts: PromptSource | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Runnable[dict[str, Any], ModelChoice]:
    """Return the chain that chooses a model. Its run is named "select".

    Its input has the keys `input` (the request, optional), `task` (a Task) and `candidates` (Candidates);
    others are ignored. A dict of its fields may stand for a Task or a Candidate.

    Args:
        llm: a chat model, or a string for `init_chat_model`.
        prompts: a ChatPromptTemplate with the variables `input`, `task`, `task_description` and
            `candidate_models`, or a prompt set by name or directory; None: `settings.prompts`.
        settings: a dict of some is enough; None: those of the environment.

    Raises:
        ConfigError: the model or the prompt is invalid.
        InputError: from `invoke`, if the task or the candidates are missing or invalid.
        OutputParserException: from `invoke`, if the reply names none of the candidates.
        LLMError: from `invoke`, if the model fails.
    """
    client = open_client(llm, settings)
    return SelectionChain(client, load_prompts(prompts or client.settings.prompts, "select").select)


def decision_selector(model: BaseDecisionModel) -> Runnable[dict[str, Any], ModelChoice]:
    """Return a selector that asks a decision model. It raises OutputParserException if that is not sure."""
    from langchain_core.decisions import Choice

    async def choose(inputs: dict[str, Any], config: RunnableConfig) -> ModelChoice:
        criteria: Any = {candidate.id: describe_candidate(candidate) for candidate in inputs["candidates"]}
        question = Choice(instructions="Which model does this task best?", criteria=criteria)
        state = {"request": str(inputs["input"] or ""), "task": inputs["task"].model_dump(mode="json")}
        reply = await model.ainvoke({"state": state, "questions": {"model": question}}, config)
        answer = reply.choices["model"]
        if answer.confidence < LEAST_CONFIDENCE:
            raise OutputParserException(f"{model.model} is not sure ({answer.confidence:.0%})")
        return ModelChoice(id=answer.choice, reason=f"{model.model} is sure by {answer.confidence:.0%}")

    return RunnableLambda(choose, name="select")


@dataclass(eq=False, repr=False)
class SelectionChain(AsyncRunnable[dict[str, Any], ModelChoice]):
    """See `selection_chain`."""

    name = "select"
    InputType: ClassVar[Any] = SelectionInput

    client: LLMClient
    template: BasePromptTemplate[Any]

    async def astream(
        self,
        input: dict[str, Any],  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[ModelChoice, None]:
        """The choice, in one piece."""
        try:
            inputs = SelectionInput.model_validate(input)
        except ValidationError as error:
            raise InputError(f"the selection chain cannot use its input: {describe_error(error)}") from error
        window = await self.client.window()
        spec = find_task(inputs.task.task)
        task, candidates = inputs.task, inputs.candidates
        texts = {
            "candidate_models": clip_rows(_rows(candidates), window // _LIST_SHARE),
            "task": clip_rows([task.model_dump()], _TASK_TOKENS),
            "input": str(inputs.input or ""),
        }
        values = fill(self.template, texts, window, task_description=spec.description if spec else "")
        yield await self._chain(inputs.candidates).ainvoke(values, config)

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The graph of the chain: prompt, model, parser."""
        return self._chain([]).get_graph(config)

    def _chain(self, candidates: Sequence[Candidate]) -> Runnable[Any, ModelChoice]:
        ids = [candidate.id for candidate in candidates]
        schema = {
            "type": "object",
            "properties": {"id": {"type": "string", "enum": ids}, "reason": {"type": "string"}},
            "required": ["id", "reason"],
            "additionalProperties": False,
        }
        model = self.client.for_stage("select", schema=schema)
        parser = ModelChoiceParser(candidates=list(candidates))
        return (self.template | model | parser).with_config(run_name="select")


def _rows(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """The candidates as the LLM sees them, without the metadata in which they are equal."""
    rows = [describe_candidate(candidate) for candidate in candidates]
    first, *others = (row["metadata"] for row in rows)
    equal = {name for name in first if others and all(other.get(name) == first[name] for other in others)}
    for row in rows:
        row["metadata"] = {name: value for name, value in row["metadata"].items() if name not in equal}
    return rows


def describe_candidate(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate as the paper shows it to the LLM, with the beginning of its description."""
    facts = {
        "downloads": candidate.downloads,
        "likes": candidate.likes,
        "license": candidate.license,
        "languages": list(candidate.languages),
        "megabytes": round(candidate.size / 1e6) if candidate.size else None,
        "on_this_machine": candidate.local,
        "good_for": list(candidate.traits),
        "datasets": datasets_of(candidate)[:4],
        "results_on": candidate.metadata.get("results"),
        "experience": candidate.metadata.get("experience"),
        "price_per_call": candidate.metadata.get("price_per_call"),
        "providers": list(candidate.providers),
        "tags": [tag for tag in candidate.tags if is_subject(tag, candidate)][:8],
    }
    return {
        "model_id": candidate.id,
        "metadata": {name: value for name, value in facts.items() if value},
        "description": clip(candidate.description, _DESCRIPTION_TOKENS),
    }


class ModelChoiceParser(BaseOutputParser[ModelChoice]):
    """Parses a reply and checks its id against the candidates.

    An id matches exactly, in other case, or without its organisation, if that is unambiguous. A reply
    without JSON counts if it names exactly one candidate.
    """

    candidates: list[Candidate]

    @property
    def _type(self) -> str:
        return "model_choice"

    def parse(self, text: str) -> ModelChoice:
        """Return the choice. Raises OutputParserException if it is not one of the candidates."""
        return resolve_choice(text, self.candidates)


def resolve_choice(choice: Any, candidates: Sequence[Candidate]) -> ModelChoice:
    """Return the choice with the id of the candidate it names.

    It is a ModelChoice, a mapping with `id` and `reason`, or a text: JSON, an id, or a sentence. Raises
    OutputParserException if it names no candidate, or several.
    """
    if isinstance(choice, str):
        objects = (part.value for part in read_json(choice) if isinstance(part.value, dict))
        named = [candidate.id for candidate in candidates if candidate.id.lower() in choice.lower()]
        mentioned = {"id": named[0] if len(named) == 1 else choice, "reason": choice}
        choice = next((value for value in objects if isinstance(value.get("id"), str)), mentioned)
    fields = choice if isinstance(choice, Mapping) else {"id": getattr(choice, "id", None)}
    reason = str(fields.get("reason", getattr(choice, "reason", "")) or "")
    name = str(fields.get("id") or "").strip()
    if candidate := _find(name, candidates):
        return ModelChoice(id=candidate.id, reason=brief_text(reason, _MAX_REASON_CHARS))
    what = f"{brief_text(name, _MAX_NAME_CHARS)!r}, which is not in the list" if name else "no model"
    # A text here would get a link to LangChain's troubleshooting page appended.
    raise OutputParserException(ValueError(f"the selector named {what}"))


def _find(name: str, candidates: Sequence[Candidate]) -> Candidate | None:
    for spelling in (str, str.lower, lambda text: text.lower().rpartition("/")[2]):
        same = [candidate for candidate in candidates if spelling(candidate.id) == spelling(name)]
        if len(same) == 1:
            return same[0]
    return None
