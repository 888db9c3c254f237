"""A task type of the Hub as a LangChain tool: it selects a model, and runs it.

    tool = hf_tools(tasks=["object-detection"])[0]
    tool.invoke({"image": "street.jpg"})       # "3 objects: 2 cars, 1 person …"

The agent's executor uses the same `select` and `perform`, apart, so that a model is chosen before its task
starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal, Self

from langchain_core.tools import BaseTool, ToolException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from jarvis_agent.core import sync as portal
from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.threads import in_thread
from jarvis_agent.core.types import Selection, Task, TaskResult
from jarvis_agent.execution.callbacks import as_tool_run
from jarvis_agent.execution.executor import TaskCall
from jarvis_agent.execution.fallback import FallbackChain
from jarvis_agent.execution.inputs import inputs_of
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.selection.hints import hints
from jarvis_agent.selection.registry import ModelRegistry


@lru_cache(maxsize=512)
def args_schema_of(spec: TaskSpec) -> type[BaseModel]:
    """A pydantic model of a task's arguments: media are paths or URLs, lists are lists.

    It is made once: a model takes a millisecond, and agents ask for those of all their tasks at every run.
    """
    fields: dict[str, Any] = {}
    for arg in spec.inputs:
        kind = _python_type(arg)
        description = arg.description or _described(arg)
        if arg.required:
            fields[arg.name] = (kind, Field(description=description))
        else:
            fields[arg.name] = (kind | None, Field(default=None, description=description))
    name = "".join(word.capitalize() for word in spec.name.split("-"))
    return create_model(name, __config__=ConfigDict(extra="forbid"), __doc__=spec.description, **fields)


def _python_type(arg: Arg) -> Any:
    if arg.many:
        return Annotated[list[str], BeforeValidator(_labels if arg.kind == "data" else _one)]
    return int | float | str | list[Any] | dict[str, Any] if arg.kind == "data" else str


def _one(value: Any) -> Any:
    """One thing as a list of it: a text or path may hold commas."""
    return [value] if isinstance(value, str) else value


def _labels(value: Any) -> Any:
    """Labels in one text, "cat, dog", as a list."""
    return [label.strip() for label in value.split(",") if label.strip()] if isinstance(value, str) else value


def _described(arg: Arg) -> str:
    return f"path or http(s) URL of the {arg.kind}" if arg.kind in MEDIA else f"the {arg.name}"


class HFTaskTool(BaseTool):
    """One task type. Called alone it reads what its settings and `files` allow, else the working directory.

    The content is a short text for a language model; the artifact is plain JSON: `output` in the shape of
    huggingface_hub's inference types, `resources`, `model`, `reason`, `placement` and `attempts`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    spec: TaskSpec
    experts: ModelRegistry = Field(exclude=True, repr=False)
    files: tuple[str, ...] = ()
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True

    @classmethod
    def of(cls, spec: TaskSpec, experts: ModelRegistry, files: Sequence[str] = ()) -> Self:
        """The tool of a task type, with its name, description and argument schema."""
        return cls(
            name=spec.name,
            description=spec.description,
            args_schema=args_schema_of(spec),
            spec=spec,
            experts=experts,
            files=tuple(files),
            metadata={"category": spec.category, "outputs": list(spec.outputs)},
        )

    async def select(self, task: Task | None = None, brief: RunContext | None = None) -> Selection:
        """Choose the model.

        Raises:
            NoCandidateError: nothing here can do the task; the message says what to do.
        """
        task = task or Task(task=self.spec.name, id=0)
        return await self.experts.selector.select(task, self.spec, brief or RunContext(request=""))

    async def perform(self, selection: Selection | None, step: TaskCall) -> TaskResult:
        """Climb the ladder of a selection. A failure is in the result, not raised."""
        return await as_tool_run(
            step.brief.config, step.task, step.inputs, lambda: self._climb(selection, step)
        )

    async def _climb(self, selection: Selection | None, step: TaskCall) -> TaskResult:
        selection = selection or await self.select(step.task, step.brief)
        spec = find_task(selection.task) or self.spec if selection.task else self.spec
        ladder = FallbackChain(
            spec=spec,
            selection=selection,
            backends=self.experts.backends,
            settings=step.settings,
            new_path=step.new_path,
            clock=step.clock,
            hints=hints(step.task, step.brief),
            attempts=step.attempts,
        )
        done = await ladder.climb({k: v for k, v in step.inputs.items() if spec.arg(k) is not None})
        return TaskResult(
            task=step.task,
            status="failed" if done.error else "ok",
            selection=selection,
            attempts=done.attempts,
            resources=done.resources,
            output=done.output,
            error=str(done.error) if done.error else None,
            failure=type(done.error).__name__ if done.error else None,
        )

    def _run(self, **args: Any) -> tuple[str, dict[str, Any]]:
        return portal.call(lambda: self._alone(args))

    async def _arun(self, **args: Any) -> tuple[str, dict[str, Any]]:
        return await self._alone(args)

    async def _alone(self, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Select and run outside of any plan. A ToolException's message goes to whoever called."""
        seconds = self.experts.settings.task_timeout
        try:
            result = await run_with_timeout(seconds, self._result_of(args), self.name)
        except StageTimeoutError as error:
            limit = f"{seconds:g} s (JARVIS_TASK_TIMEOUT)"
            raise ToolException(f"{self.name} did not finish within {limit}") from error
        except JarvisError as error:
            raise ToolException(str(error)) from error
        if result.status != "ok":
            raise ToolException(result.error)
        return content_of(result), artifact_of(result)

    async def _result_of(self, args: Mapping[str, Any]) -> TaskResult:
        settings = self.experts.settings
        roots = () if settings.allowed_dirs else (Path.cwd(),)
        store = ResourceStore(settings, roots=roots)
        task = Task(task=self.spec.name, id=0, args={k: v for k, v in args.items() if v is not None})
        brief = RunContext(request="")
        began = perf_counter()
        try:
            for name in self.files:
                await store.grant(name)
            selection = await self.select(task, brief)
            step = TaskCall(
                task=task,
                inputs=await inputs_of(task, self.spec, {}, store),
                brief=brief,
                new_path=lambda suffix: store.new_path(suffix, self.spec.name),
                clock=lambda: perf_counter() - began,
                settings=settings,
            )
            return await self._climb(selection, step)
        finally:
            # A disk that does not answer must not hold up the event loop.
            await in_thread(store.close)

    def close(self) -> None:
        """Free the models that this tool, and those made together with it, have loaded."""
        portal.call(self.experts.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def content_of(result: TaskResult) -> str:
    """A result as a short text for a language model: its text, and the paths of its files."""
    text = result.resource("text")
    said = [text.as_text()] if text else []
    said += [f"{r.kind}: {r.path}" for r in result.resources if r.path is not None]
    said += result.all_notes
    return "\n".join(said) or "done"


def artifact_of(result: TaskResult) -> dict[str, Any]:
    """A result as plain JSON for programs."""
    dumped = result.model_dump(mode="json")
    selection = result.selection
    return {
        "output": dumped["output"],
        "resources": dumped["resources"],
        "model": result.model,
        "revision": next((attempt.revision for attempt in reversed(result.attempts) if attempt.ok), None),
        "reason": selection.reason if selection else "",
        "placement": selection.placement if selection else "",
        "attempts": dumped["attempts"],
        "notes": result.all_notes,
    }
