"""The task types as a list of LangChain tools.

tools = hf_tools(model=llm, tasks=["object-detection", "text-to-speech"])
agent = create_agent(llm, tools)
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, BaseToolkit
from pydantic import ConfigDict, PrivateAttr

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.registry import Factory
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import run_sync
from jarvis_agent.core.tasks.registry import TASKS, known_task
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.llm.chat_model import resolve_model
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.content import ContentForm
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.tools.hf_task_tool import MAX_PRODUCED, HFTaskTool


def hf_tools(
    model: BaseChatModel | str | None = None,
    tasks: Iterable[str] | None = None,
    *,
    available_only: bool | None = None,
    models: Mapping[str, str] | None = None,
    sources: Iterable[ModelSource] | None = None,
    backends: Iterable[Backend | Factory] | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    files: str | PurePath | Sequence[str | PurePath] = (),
    content: ContentForm = "text",
) -> list[BaseTool]:
    """One LangChain tool for each task type of the Hub; they share their models.

    Args:
        model: the language model that selects experts; None: the settings' one, or the rank by downloads.
        tasks: names or aliases of the task types; None: those that can run here, installed or hosted.
        available_only: leave out the tasks that nothing here can run; None: unless `tasks` names them.
        models: pinned experts by task, `{"object-detection": "facebook/detr-resnet-50@revision"}`.
        sources, backends: instead of those that the settings give.
        settings: a dict of some is enough; None: from the environment.
        files: paths or URLs that the tools may read, beside the working directory and
            `settings.allowed_dirs`; a single one needs no list.
        content: what the calling model gets: "text", which has the paths of files; "blocks": the files too,
            as content blocks, images scaled down, of which `hf_tools_middleware` shows each model those that
            it takes.

    Raises:
        ConfigError: an unknown task name, an invalid setting, or a file that is no path.
    """
    specs = [known_task(name) for name in tasks] if tasks is not None else list(TASKS.values())
    settings = read_settings(settings)
    names = [files] if isinstance(files, str | bytes) or not isinstance(files, Sequence) else files
    if wrong := [type(name).__name__ for name in names if not isinstance(name, str | PurePath)]:
        raise ConfigError(f"files: tools read paths or URLs, not a file of type {wrong[0]}")
    chat = resolve_model(model, settings)
    experts = ModelRegistry(
        settings,
        sources=sources,
        backends=backends,
        llm=LLMClient(chat, settings) if chat is not None else None,
        pins=models,
    )
    if available_only or (available_only is None and tasks is None):
        offered = run_sync(experts.available_tasks)
        specs = [spec for spec in specs if spec.name in offered]
    paths, produced = tuple(map(str, names)), deque[Any](maxlen=MAX_PRODUCED)
    runners = [HFTaskRunner(spec, experts) for spec in specs]
    return [HFTaskTool.of(runner, files=paths, produced=produced, content=content) for runner in runners]


class JarvisToolkit(BaseToolkit):
    """The same tools in the form of a LangChain toolkit; it takes the arguments of `hf_tools`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    _tools: list[BaseTool] = PrivateAttr()

    def __init__(self, model: BaseChatModel | str | None = None, **options: Any) -> None:
        super().__init__()
        self._tools = hf_tools(model, **options)

    def get_tools(self) -> list[BaseTool]:
        """The tools; the same ones at every call, since they share their models."""
        return list(self._tools)

    def close(self) -> None:
        """Free the models that the tools have loaded."""
        for tool in self._tools[:1]:
            if isinstance(tool, HFTaskTool):
                tool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
