"""The task type of any LangChain tool, read from the tool itself.

    spec_of(my_tool)     # TaskSpec(name="weather", category="tool", inputs=(Arg("city", "any"),), …)

Tools take and make what they like: every argument is of the kind "any", and the result is text or data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from jarvis_agent.core.tasks.spec import Arg, TaskSpec


def spec_of(tool: BaseTool) -> TaskSpec:
    """The task type of a LangChain tool, from its name, description and argument schema."""
    schema = convert_to_openai_tool(tool)["function"]["parameters"]
    required = set(schema.get("required", ()))
    return TaskSpec(
        name=tool.name,
        category="tool",
        description=" ".join(tool.description.split()),
        inputs=tuple(
            Arg(
                name,
                "any",
                required=name in required,
                many=_takes_a_list(about),
                description=about.get("description", ""),
            )
            for name, about in schema.get("properties", {}).items()
        ),
        outputs=("text", "data"),
        needs_model=False,
    )


def _takes_a_list(about: Mapping[str, Any]) -> bool:
    """Whether a property of a JSON schema may be an array."""
    forms = [about, *about.get("anyOf", ())]
    return any(form.get("type") == "array" for form in forms)
