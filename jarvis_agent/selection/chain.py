"""The selection chain: the LLM chooses one of the candidates for a task.

    chain = selection_chain(llm)
    choice = chain.invoke({"input": "Find the zebras in z.jpg", "task": task, "candidates": candidates})
    choice       # ModelChoice(id="facebook/detr-resnet-50", reason="it detects zebras")

The chain is prompt template | chat model | `ModelChoiceParser`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.exceptions import OutputParserException
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.runnables import Runnable, RunnableLambda

from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings, load_settings
from jarvis_agent.core.types import Candidate, Frozen
from jarvis_agent.llm.client import LLMClient, resolve_model
from jarvis_agent.llm.json_stream import JsonReader
from jarvis_agent.llm.prompts import load_prompts

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_MAX_REASON_CHARS = 400
_MAX_NAME_CHARS = 80


class ModelChoice(Frozen):
    """The model that was chosen for a task, and why."""

    id: str
    reason: str = ""


def selection_chain(
    llm: BaseChatModel | LLMClient | str,
    *,
    prompts: Any = None,
    settings: Settings | None = None,
) -> Runnable[dict[str, Any], ModelChoice]:
    """Return the chain that chooses a model. Its run is named "select".

    Its input has the keys `input` (the request), `task` and `candidates`; others are ignored.

    Args:
        llm: a chat model, or a string for `init_chat_model`.
        prompts: a ChatPromptTemplate with the variables `input`, `task`, `task_description` and
            `candidate_models`, or a prompt set by name or directory; None: `settings.prompts`.
        settings: None: those of the environment.

    Raises:
        ConfigError: the model or the prompt is invalid.
        OutputParserException: from `invoke`, if the reply names none of the candidates.
        LLMError: from `invoke`, if the model fails.
    """
    settings = settings or load_settings()
    client = llm if isinstance(llm, LLMClient) else LLMClient(resolve_model(llm, settings), settings)  # type: ignore[arg-type]
    template = prompts or load_prompts(settings.prompts)

    def messages(inputs: Mapping[str, Any]) -> Any:
        return template.select_messages(RunContext(inputs["input"]), inputs["task"], inputs["candidates"])

    def chain_for(inputs: Mapping[str, Any]) -> Runnable[Any, ModelChoice]:
        candidates = inputs["candidates"]

        async def reply(prompt: Any, config: Any) -> str:
            meter = (config.get("configurable") or {}).get("jarvis_meter")
            context = RunContext("", config=config, **({"meter": meter} if meter else {}))
            return await client.complete("select", prompt, context, schema=choice_schema(candidates))

        return _inline(messages) | RunnableLambda(reply) | ModelChoiceParser(candidates=candidates)

    return _inline(chain_for).with_config(run_name="select")


def _inline(function: Callable[[Any], Any]) -> RunnableLambda[Any, Any]:
    """Return a Runnable that calls the function in the event loop instead of a thread."""

    async def call(value: Any) -> Any:
        return function(value)

    return RunnableLambda(function, call)


def choice_schema(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the JSON schema of the reply: one of the ids, and a reason."""
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "enum": [candidate.id for candidate in candidates]},
            "reason": {"type": "string"},
        },
        "required": ["id", "reason"],
        "additionalProperties": False,
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

    Args:
        choice: a ModelChoice, a mapping with `id` and `reason`, or a text: JSON, an id, or a sentence.

    Raises:
        OutputParserException: it names no candidate, or several.
    """
    if isinstance(choice, str):
        choice = _read_reply(choice, candidates)
    fields = choice if isinstance(choice, Mapping) else {"id": getattr(choice, "id", None)}
    reason = str(fields.get("reason", getattr(choice, "reason", "")) or "")
    name = str(fields.get("id") or "").strip()
    if found := _find(name, candidates):
        return ModelChoice(id=found.id, reason=brief_text(reason, _MAX_REASON_CHARS))
    named = f"{brief_text(name, _MAX_NAME_CHARS)!r}, which is not in the list" if name else "no model"
    # A text here would get a link to LangChain's troubleshooting page appended.
    raise OutputParserException(ValueError(f"the language model named {named}"))


def _read_reply(text: str, candidates: Sequence[Candidate]) -> Mapping[str, Any]:
    reader = JsonReader()
    for found in [*reader.feed(text), *reader.close()]:
        if isinstance(found.value, dict) and isinstance(found.value.get("id"), str):
            return found.value
    named = [candidate.id for candidate in candidates if candidate.id.lower() in text.lower()]
    return {"id": named[0] if len(named) == 1 else text, "reason": text}


def _find(name: str, candidates: Sequence[Candidate]) -> Candidate | None:
    for spelling in (str, str.lower, lambda one: one.lower().rpartition("/")[2]):
        same = [candidate for candidate in candidates if spelling(candidate.id) == spelling(name)]
        if len(same) == 1:
            return same[0]
    return None
