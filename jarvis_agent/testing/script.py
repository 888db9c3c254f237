"""The script of a double: the order of its replies.

Script(["first", "second"])                  one a call, in order
Script({"plan": "[]", "chat": ["a", "b"]})   by stage; a single reply as often as needed
Script(lambda given: "…")                    whatever it makes of what it is given

A script by stage without "replan" replies with an empty plan to it.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any


class Script:
    """Hands out replies; thread-safe."""

    def __init__(self, replies: Any) -> None:
        """`replies`: a reply, a list of them, a dict of either by stage, or a callable that gives a reply."""
        self._replies = replies
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    def next(self, stage: str, given: Any) -> Any:
        """The next reply for a stage.

        Raises:
            AssertionError: the script has none for the stage, or none any more.
        """
        if not isinstance(self._replies, Mapping):
            return self._resolve("", self._replies, given)
        if stage == "replan" and stage not in self._replies:
            return "[]"
        if stage not in self._replies:
            known = ", ".join(self._replies)
            raise AssertionError(f"the script has no reply for the stage {stage!r}, only for {known}")
        return self._resolve(stage, self._replies[stage], given)

    def _resolve(self, counter: str, reply: Any, given: Any) -> Any:
        if isinstance(reply, list):
            with self._lock:
                place = self._used[counter]
                self._used[counter] += 1
            if place >= len(reply):
                raise AssertionError(
                    f"the script has {len(reply)} replies {counter}, and this is call {place + 1}"
                )
            reply = reply[place]
        return self._resolve(counter, reply(given), given) if callable(reply) else reply


def first_candidate(given: Any) -> str:
    """A scripted reply for the stage "select": the first model in the list.

    `given` are the messages (of a ScriptedLLM) or the request's body (of an OpenAIDouble).
    """
    messages = given["messages"] if isinstance(given, Mapping) else given
    texts = (str(m["content"]) if isinstance(m, Mapping) else str(m.text) for m in messages)
    models = re.findall(r'"model_id": "([^"]+)"', "\n".join(texts))
    return json.dumps({"id": models[0], "reason": "it is the first"})
