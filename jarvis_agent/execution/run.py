"""A Run: what was planned, what happened, and the answer. Chunks of a streamed Run add up to the whole.

run = sum_of(agent.stream("…"))     # chunk + chunk + … == agent.invoke("…")
"""

from __future__ import annotations

import html
from typing import Literal

from pydantic import Field

from jarvis_agent.planning.plan import Plan
from jarvis_agent.execution.timeline import Timeline, plan_svg
from jarvis_agent.core.types import Frozen, Resource, Task, TaskResult, Usage


class Run(Frozen):
    """The outcome of a request, or a part of it while it streams.

    Attributes:
        answer: the answer's text.
        plan: the tasks, and notes on what was mended in them.
        results: one TaskResult a task, in plan order.
        usage: calls and tokens of the language model by stage ("plan", "select", "respond").
        timings: seconds by stage ("plan", "execute", "respond", "total"). Stages overlap.
    """

    answer: str = ""
    plan: Plan = Field(default_factory=Plan)
    results: list[TaskResult] = Field(default_factory=list)
    usage: dict[str, Usage] = Field(default_factory=dict)
    timings: dict[str, float] = Field(default_factory=dict)

    def __add__(self, other: Run) -> Run:
        """This chunk followed by the next one of the same run."""
        if not isinstance(other, Run):
            return NotImplemented
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
        )

    @property
    def resources(self) -> list[Resource]:
        """Everything that the run made, in plan order."""
        return [resource for result in self.results for resource in result.resources]

    @property
    def ok(self) -> bool:
        """Whether every task of the plan went well."""
        return all(result.status == "ok" for result in self.results)

    def timeline(self) -> Timeline:
        """When each task ran: `.text()`, `.svg()`, and a picture in a notebook."""
        return Timeline(results=self.results)

    def _repr_html_(self) -> str:
        """The answer, the plan as a graph, what was made, and when it ran."""
        media = "".join(r._repr_html_() for r in self.resources if r.path is not None)
        graph = plan_svg(self.plan, self.results) if self.plan.tasks else ""
        when = self.timeline().svg() if self.results else ""
        answer = f"<p style='white-space:pre-wrap'>{html.escape(self.answer)}</p>"
        wide = "<div style='overflow-x:auto'>"
        return f"<div>{answer}{wide}{graph}</div>{media}{wide}{when}</div></div>"


class Event(Frozen):
    """Something that happened in a run, told while it happens.

    Kinds and what comes with them:
        task       a task was parsed                      task
        selected   its model was chosen                   task, result with the selection
        started    it runs                                task
        finished   it ended                               task, result
        planned    the plan is complete                   plan
        token      a piece of the answer                  text
        note       something the user should know        text
        done       the run is over                       run, whole

    `seconds` is the time since the run began.
    """

    kind: Literal["task", "selected", "started", "finished", "planned", "token", "note", "done"]
    seconds: float = 0.0
    task: Task | None = None
    result: TaskResult | None = None
    plan: Plan | None = None
    text: str = ""
    run: Run | None = None
