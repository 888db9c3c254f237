"""The task type of any LangChain tool, read from the tool itself.

Every argument takes any kind. The output kinds are declared by `metadata={"outputs": ["image"]}`, or inferred
from the return annotation. Else, as for MCP tools, they are "text" and "any", so that a plan can pass the
result to any task. A wrong guess is reported when the result is used.
"""

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, TypeAdapter, ValidationError

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.spec import ARG_ALIASES, MEDIA, Arg, ArgKind, TaskSpec

_UNKNOWN: tuple[ArgKind, ...] = ("text", "any")
_OUTPUTS = TypeAdapter(tuple[ArgKind, ...])


def spec_of(tool: BaseTool) -> TaskSpec:
    """The task type of a LangChain tool, from its name, description, argument schema and output kinds.

    Raises ConfigError: `metadata["outputs"]` is not a list of kinds.
    """
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
                many=any(form.get("type") == "array" for form in (about, *about.get("anyOf", ()))),
                description=about.get("description", ""),
                is_text=_takes_text(name, about, tool.description if len(required) == 1 else ""),
            )
            for name, about in schema.get("properties", {}).items()
        ),
        outputs=_outputs(tool),
        needs_model=False,
        read_only=_is_read_only(tool),
    )


def _is_read_only(tool: BaseTool) -> bool:
    """Whether the annotations of an MCP tool say so, in the metadata by langchain.mcp."""
    about: Any = tool.metadata
    for name in ("mcp", "tool", "annotations", "read_only_hint"):
        about = about.get(name) if isinstance(about, Mapping) else None
    return about is True


_SAYS_TEXT = re.compile(r"(^|[\W_])(texts?|content|body|sentences?|document|passage)($|[\W_])", re.IGNORECASE)
REQUEST_NAMES = frozenset({
    "query", "question", "prompt", "input", "inputs", "instruction", "request", "search", "q", "topic",
    "message", "description", "task",
})  # fmt: skip
"""Names of arguments that can hold any words, also those of the request itself."""
_SAYS_FILE = re.compile(r"(^|[\W_])(paths?|files?|folders?|urls?|attachment)($|[\W_])", re.IGNORECASE)


def _takes_text(name: str, about: Mapping[str, Any], purpose: str) -> bool:
    """Whether an argument takes a text: by its name and description, else by what the tool is for."""
    text = f"{name} {about.get('description', '')}"
    purpose = "" if name in REQUEST_NAMES or ARG_ALIASES.get(name, name) in MEDIA else purpose
    is_text = about.get("type") == "string" and not _SAYS_FILE.search(text)
    return is_text and bool(_SAYS_TEXT.search(f"{text} {purpose}"))


def _outputs(tool: BaseTool) -> tuple[ArgKind, ...]:
    metadata = tool.metadata or {}
    if declared := metadata.get("outputs"):
        try:
            return _OUTPUTS.validate_python(declared)
        except ValidationError as error:
            kinds = ", ".join(get_args(get_args(ArgKind)[0]))
            raise ConfigError(
                f"the outputs of the tool {tool.name!r} are {declared!r}; give a list of {kinds} or any"
            ) from error
    function = getattr(tool, "coroutine", None) or getattr(tool, "func", None)
    for method in (function, type(tool)._run, type(tool)._arun):
        try:
            annotation = get_type_hints(method)["return"]
        except (KeyError, NameError, TypeError):
            continue
        return _kinds(annotation, tool.response_format == "content_and_artifact")
    return _UNKNOWN


def _kinds(annotation: Any, has_artifact: bool = False) -> tuple[ArgKind, ...]:
    """The kinds of a return annotation. A tuple of content and artifact has those of both."""
    parts = get_args(annotation)
    if has_artifact and get_origin(annotation) is tuple and len(parts) == 2:
        content, artifact = _kinds(parts[0]), _kinds(parts[1])
        return _UNKNOWN if artifact is _UNKNOWN else tuple(dict.fromkeys((*artifact, *content)))
    kind = get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return _UNKNOWN
    if (kind.__module__, kind.__name__) == ("PIL.Image", "Image"):
        return ("image",)
    if issubclass(kind, Mapping | BaseModel) or is_typeddict(kind) or is_dataclass(kind):
        return ("data", "text")
    return ("text", "data") if issubclass(kind, str | int | float) else _UNKNOWN
