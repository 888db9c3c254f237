"""Run: the plan, the results and the answer of one request; Event: a step of a run as it happens."""

from __future__ import annotations

import html
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, Literal

from langchain_core.messages import AIMessage
from pydantic import Field

from jarvis_agent.core.context import MADE
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.references import ref, substitute_results
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Frozen, Resource, Selection, Task, TaskResult, Usage
from jarvis_agent.execution.inputs import resources_for
from jarvis_agent.llm.content import PROVIDER, ContentForm, message_content
from jarvis_agent.planning.plan import Plan
from jarvis_agent.selection.store import open_store


class Run(Frozen):
    """The outcome of a request, or a part of it while it streams. `str(run)` is the answer.

        run = agent.invoke("How many cats are in cat.jpg?")
        run.results[0].output                   # [{"label": "cat", "score": 0.9981, "box": {…}}]
        sum(agent.stream("…"), Run())           # the chunks of a stream add up to the whole

    Attributes:
        answer: the answer's text.
        plan: the tasks, and notes on repairs.
        results: one TaskResult per task, in plan order.
        usage: calls and tokens by stage: of the language model in "plan", "select", "expert", "respond" and
            others; of hosted models in "execute".
        timings: seconds by stage ("plan", "execute", "respond", "total"). Stages overlap.
        structured_response: the answer as the agent's `response_format`; JSON has it only if there is one.
    """

    answer: str = ""
    plan: Plan = Field(default_factory=Plan)
    results: list[TaskResult] = Field(default_factory=list)
    usage: dict[str, Usage] = Field(default_factory=dict)
    timings: dict[str, float] = Field(default_factory=dict)
    structured_response: Any = Field(None, exclude_if=lambda value: value is None)

    def __str__(self) -> str:
        return self.answer

    def __add__(self, other: Run) -> Run:
        """This chunk followed by the next one of the same run."""
        if not isinstance(other, Run):
            return NotImplemented
        has_tasks = {task.id for task in self.plan.tasks} <= {task.id for task in other.plan.tasks}
        has_results = {r.task.id for r in self.results} <= {r.task.id for r in other.results}
        if other.timings and has_tasks and has_results and other.answer.startswith(self.answer):
            return other  # the last chunk of a server has everything
        plan = self.plan + other.plan
        order = {task.id: place for place, task in enumerate(plan.tasks)}
        results = {r.task.id: r for r in [*self.results, *other.results]}
        stages = {**self.usage, **other.usage}
        return Run(
            answer=self.answer + other.answer,
            plan=plan,
            results=sorted(results.values(), key=lambda r: order.get(r.task.id, len(order))),
            usage={k: self.usage.get(k, Usage()) + other.usage.get(k, Usage()) for k in stages},
            timings={**self.timings, **other.timings},
            structured_response=self.structured_response or other.structured_response,
        )

    @property
    def messages(self) -> list[AIMessage]:
        """The answer as a LangChain message, `to_message("auto")`.

        A node of a graph with `messages` in its state can return it as it is.
        """
        return [self.to_message("auto")]

    def to_message(self, content: ContentForm | Literal["auto"] = "text") -> AIMessage:
        """The answer as a message; `artifacts` in `additional_kwargs` lists the files as JSON.

        With "blocks", the files follow the answer in `content`, as content blocks. With "auto", `content` is
        text, which every model reads, and `content_blocks` has the images too: `messages_for` shows them to
        a model that takes some. Both read the files.
        """
        files = [r.model_dump(mode="json", exclude_none=True) for r in self.resources if r.path is not None]
        form: Any = "images" if content == "auto" else content
        shown = message_content(self.answer, self.resources, form)
        fields: dict[str, Any] = {"artifacts": files, **({} if self.made is None else {MADE: self.made})}
        if content == "auto" and isinstance(shown, list):
            shown, fields["blocks"] = self.answer, shown[1:]
        return AIMessage(shown, additional_kwargs=fields, response_metadata={"model_provider": PROVIDER})

    @property
    def made(self) -> str | None:
        """What the tasks made in words, and no other task turned into words.

        None if there were no tasks, and a language model answered.
        """
        if not self.plan.tasks and any(usage.calls + usage.cached for usage in self.usage.values()):
            return None
        texts = {r.task.id: part.text for r in self.results if (part := r.resource("text"))}
        used = {dep for result in self.results if result.task.id in texts for dep in result.task.deps}
        return "\n".join(text for place, text in texts.items() if text and place not in used)

    @property
    def resources(self) -> list[Resource]:
        """All results' resources, in plan order."""
        return [resource for result in self.results for resource in result.resources]

    @property
    def ok(self) -> bool:
        """Whether every task succeeded, and the plan lacks nothing that the request asks for."""
        return not self.plan.removed and all(result.status == "ok" for result in self.results)

    def repeating(self, task_id: int) -> Plan:
        """The plan that repeats a task, and the tasks that use its result. Results of others are its inputs.

        Raises:
            KeyError: there is no such task.
        """
        results = {result.task.id: result for result in self.results}
        tasks = {task_id: self.plan.task(task_id)}
        for task in self.plan.tasks:
            if not tasks.keys().isdisjoint(task.deps):
                tasks[task.id] = task

        def given(kind: str, number: int, place: int) -> Any:
            """The path of a file, a text, or data; the reference to a task that is repeated."""
            if number not in results or number in tasks:
                return ref(number, place)
            resources = resources_for(results[number], kind) or results[number].resources[:1]
            if not resources:
                return results[number].output
            resource = resources[max(0, place - 1)]
            return str(resource.path) if resource.path and kind != "text" else resource.as_text()

        def repeated(task: Task) -> Task:
            spec, args = TASKS.get(task.task), {}
            for name, argument in task.args.items():
                arg = spec.arg(name) if spec is not None else None
                kind = arg.kind if arg is not None else "any"
                args[name] = substitute_results(argument, partial(given, kind))
            dep = [number for number in task.deps if number in tasks]
            return task.model_copy(update={"args": args, "dep": dep})

        return Plan(tasks=[repeated(task) for task in tasks.values()], preference=self.plan.preference)

    def rate(self, task_id: int | None = None, *, good: bool = True, owner: str = "") -> None:
        """Rate the results, in place of an earlier rating of them by the same owner.

        Ratings count when a model is selected for such a task.

        Args:
            task_id: of the task whose result is rated; None: those of all models that succeeded.
            good: whether they are good.
            owner: who rates, for a server with several users.

        Raises:
            InputError: no model made such a result, or ratings cannot be kept.
        """
        rated = [
            # When it was made tells a result from others, and nothing of the request.
            (result.model, result.selection.task, f"{result.task.id} {result.started} {result.ended}")
            for result in self.results
            if result.selection and result.model
            if (result.status == "ok" if task_id is None else result.task.id == task_id)
        ]
        if not rated:
            where = "any task" if task_id is None else f"task {task_id}"
            raise InputError(f"no model made a result for {where} of this run")
        store = open_store()
        for model, task, result in rated:
            if not store.rate(model, task, good, owner, result):
                raise InputError("ratings are not kept: the cache directory of this user cannot be used")

    def _repr_html_(self) -> str:
        """The answer, a table of the tasks, the notes of the plan, and the files."""
        rows = list[str]()
        for r in self.results:
            times = f"{r.started:.1f}-{r.ended:.1f} s"
            cells = [str(r.task.id), r.task.task, r.status, r.model or "", times, r.error or ""]
            rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        table = f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>" if rows else ""
        media = "".join(r._repr_html_() for r in self.resources if r.path is not None)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.plan.notes)
        listed = f"<ul>{notes}</ul>" if notes else ""
        return f"<p style='white-space:pre-wrap'>{html.escape(self.answer)}</p>{table}{listed}{media}"


class Event(Frozen):
    """A step of a run, emitted while it happens.

    Kinds, and the fields that each one sets:
        task       a task was added                       task
        selected   its model was chosen                   task, selection (None: there was no choice)
        started    it runs                                task
        finished   it ended                               task, result
        planned    the plan, again if tasks were added    plan
        token      a piece of the answer                  text
        done       the run has ended                      run

    `seconds` is the time since the run began.
    """

    kind: Literal["task", "selected", "started", "finished", "planned", "token", "done"]
    seconds: float = 0.0
    task: Task | None = None
    selection: Selection | None = None
    result: TaskResult | None = None
    plan: Plan | None = None
    text: str = ""
    run: Run | None = None


async def run_chunks(events: AsyncIterator[Event]) -> AsyncGenerator[Run, None]:
    """The chunks of a run from its events; their sum is the Run. Results follow the complete plan."""
    early: list[Run] = []
    planned = whole = False
    async for event in events:
        if event.kind == "finished" and event.result is not None:
            chunk = Run(results=[event.result])
            if planned:
                yield chunk
            else:
                early.append(chunk)
        elif event.kind == "planned" and event.plan is not None:
            planned = whole = True
            yield Run(plan=event.plan)
            for chunk in early:
                yield chunk
        elif event.kind == "token":
            yield Run(answer=event.text)
        elif event.kind == "done" and event.run is not None:
            # The rest was yielded before; notes on the answer's form come with it.
            fields = {"answer": "", "results": [], "plan": Plan(notes=event.run.plan.notes)} if whole else {}
            yield event.run.model_copy(update=fields)
