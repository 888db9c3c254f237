"""Structured answers: a value of the user's type, from the request, the results and the answer.

The chain returns plain JSON, which can be stored; `ResponseFormat.read` makes the user's type of it. A reply
that does not fit goes back to the model once, with the error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from pydantic import TypeAdapter

from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.errors import ConfigError, UnsupportedError, describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.sync import run_sync
from jarvis_agent.llm.client import LanguageModel, open_client, write_json
from jarvis_agent.llm.prompts import fill, load_prompts
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.response.chain import ResponseInput, response_texts


class ResponseFormat:
    """A pydantic model, dataclass, TypedDict or JSON schema, or one of them in a strategy of LangChain."""

    def __init__(self, schema: Any) -> None:
        """Read the type. Raises ConfigError if it is none of these."""
        # Imported late: it loads langgraph.
        from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy

        if isinstance(schema, AutoStrategy | ProviderStrategy | ToolStrategy):
            schema = schema.schema
        self._adapter: TypeAdapter[Any] | None = None
        try:
            if isinstance(schema, Mapping):
                from jsonschema import validators

                self.json_schema = dict(schema)
                self._validator = validators.validator_for(self.json_schema)(self.json_schema)
                self._validator.check_schema(self.json_schema)
            else:
                self._adapter = TypeAdapter(schema)
                self.json_schema = self._adapter.json_schema()
        except Exception as error:
            raise ConfigError(
                "response_format is a pydantic model, a dataclass, a TypedDict or a JSON schema, not "
                f"{str(schema)[:100]}: {describe_error(error)}"
            ) from error

    def read(self, value: Any, *, strict: bool = False) -> Any:
        """The value as the user's type; a JSON schema leaves it as it is.

        Raises:
            ValueError: plain JSON of another form; `strict`: also if a part must be converted.
        """
        if self._adapter is not None:
            return self._adapter.validate_json(json.dumps(value), strict=strict)
        if errors := sorted(self._validator.iter_errors(value), key=str):
            raise ValueError(f"{errors[0].json_path}: {errors[0].message}")
        return value

    def fits(self, value: Any) -> bool:
        """Whether a value is of the type as it is, and sets a part of it. Nothing is converted or guessed."""
        try:
            read = self.read(value, strict=True)
        except ValueError:
            return False
        return bool(self._adapter.dump_python(read, exclude_unset=True) if self._adapter else read)


def structured_chain(
    llm: LanguageModel, response_format: ResponseFormat, settings: Settings | None = None
) -> Runnable[ResponseInput, Any]:
    """A Runnable that writes an answer as plain JSON of a type. Its run is named "structure".

    Its input is that of `response_chain`, and "answer". Running it raises LLMError if the model fails, or
    writes twice what does not fit.
    """
    client, json_schema = open_client(llm, settings), response_format.json_schema
    template = load_prompts(client.settings.prompts).structure
    schema = json.dumps(json_schema, ensure_ascii=False)
    model = client.for_stage("structure", schema=json_schema)

    async def write(inputs: Any, config: RunnableConfig) -> Any:
        window = await client.window()
        texts = await run_cpu_bound(response_texts, inputs, PlanRequest.of(inputs), window)
        values = fill(template, {**texts, "answer": inputs.get("answer", "")}, window, schema=schema)
        messages = (await template.aformat_prompt(**values)).to_messages()
        return await write_json(model, messages, response_format.read, config, what="structured answer")

    def write_now(inputs: Any, config: RunnableConfig) -> Any:
        return run_sync(write, inputs, config)

    return RunnableLambda(write_now, write, name="structure")


def last_fitting_output(response_format: ResponseFormat) -> Runnable[ResponseInput, Any]:
    """A Runnable for the last output that is of the type, without a language model, or UnsupportedError."""

    def find(inputs: Any) -> Any:
        for result in reversed(list(inputs.get("results") or ())):
            if response_format.fits(result.output):
                return result.output
        raise UnsupportedError("no result has the form of response_format; a language model can write it")

    return RunnableLambda(find, name="structure")
