"""A Hugging Face Hub on this machine: lists, cards, downloads, and inference by providers.

    with HubDouble() as hub:
        hub.add_model("org/detr", pipeline_tag="object-detection", downloads=7, directory=folder)
        hub.answer("/models/org/detr", body=[{"label": "cat", "score": 0.9}])     # hosted inference
        hub.answer("/api/models", status=503, times=1)                            # a failure, once
        with hub.redirected():
            snapshot_download("org/detr")
    assert hub.requests[0].path == "/api/models/org/detr"

Use it by its endpoint (`hub.url`, `hub.api()`), through huggingface_hub in this process (`hub.redirected()`),
or in another process (`hub.environment`).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_ALWAYS = ("id", "modelId", "_id")
_API = re.compile(
    r"/api/models/(?P<id>[^/]+(?:/[^/]+)?)(?:/(?P<what>revision|tree)/(?P<revision>[^/]+)(?:/(?P<folder>.+?))?)?/?$"
)
_FILE = re.compile(r"/(?P<id>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)$")


@dataclass(frozen=True, slots=True)
class HubRequest:
    """A received request; header names are in lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the double: its API metadata and its files."""

    info: dict[str, Any]
    files: Mapping[str, bytes]

    def shown(self, expand: Sequence[str]) -> dict[str, Any]:
        """The API metadata, or the requested part of it."""
        wanted = {*expand, *_ALWAYS}
        return {name: value for name, value in self.info.items() if not expand or name in wanted}

    def tree(self, folder: str = "", *, recursive: bool = False) -> list[dict[str, Any]]:
        """The files and folders in a folder as the API lists them, with those below if it is `recursive`."""
        start = f"{folder}/" if folder else ""
        shown: dict[str, dict[str, Any]] = {}
        for name, data in self.files.items():
            if not name.startswith(start):
                continue
            parts = name.removeprefix(start).split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                path = start + "/".join(parts[:depth])
                shown[path] = {"type": "directory", "path": path, "size": 0, "oid": etag(path.encode())}
            if recursive or len(parts) == 1:
                shown[name] = {"type": "file", "path": name, "size": len(data), "oid": etag(data)}
        return list(shown.values())


@dataclass(slots=True)
class Reply:
    """A response; `stall`: where it stops until the double is closed."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stall: Literal["start", "middle"] | None = None


@dataclass(slots=True)
class _Script:
    part: str
    reply: Reply | None
    stall: Literal["start", "middle"] | None
    left: int | None


class HubDouble:
    """See the module. `requests` are the received requests in order.

    Args:
        page_size: models or files a page of a list; a longer list goes on through `Link: rel=next`.
    """

    def __init__(self, page_size: int = 1000) -> None:
        self.requests: list[HubRequest] = []
        self.models: dict[str, HubModel] = {}
        self.page_size = page_size
        self._scripts: list[_Script] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="hub-double")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._server:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        assert self._server is not None, "enter the double first: with HubDouble() as hub"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which a new process uses the double."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}

    def api(self) -> HfApi:
        """A client for it."""
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.url)

    @contextmanager
    def redirected(self) -> Iterator[None]:
        """Within the block, huggingface_hub in this process uses the double, also for inference."""
        from huggingface_hub import constants

        with (
            patch.object(constants, "ENDPOINT", self.url),
            patch.object(
                constants,
                "HUGGINGFACE_CO_URL_TEMPLATE",
                self.url + "/{repo_id}/resolve/{revision}/{filename}",
            ),
            patch.object(constants, "INFERENCE_PROXY_TEMPLATE", self.url + "/{provider}"),
            patch.object(constants, "HF_HUB_OFFLINE", False),
        ):
            yield

    def add_model(
        self,
        id: str,  # noqa: A002
        *,
        pipeline_tag: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
        directory: Path | None = None,
        downloads: int = 0,
        likes: int = 0,
        card: Mapping[str, Any] | None = None,
        providers: Mapping[str, Mapping[str, Any]] | None = None,
        **info: Any,
    ) -> HubModel:
        """Add a model, or replace the one of that id.

        Args:
            files: content by path in the repository; those of `directory` come on top.
            card: metadata of its model card.
            providers: providers of the model, `{"hf-inference": {}}`; by default it is live under the model's
                id and task.
            info: anything else that the API says, such as `library_name`, `tags`, `gated`, `safetensors`.
        """
        content = {
            name: data.encode() if isinstance(data, str) else data for name, data in (files or {}).items()
        }
        if directory is not None:
            found = sorted(file for file in directory.rglob("*") if file.is_file())
            content |= {file.relative_to(directory).as_posix(): file.read_bytes() for file in found}
        said = {
            "id": id,
            "modelId": id,
            "sha": hashlib.sha1(repr(sorted(content.items())).encode()).hexdigest(),  # noqa: S324 - as git does
            "pipeline_tag": pipeline_tag,
            "downloads": downloads,
            "likes": likes,
            "cardData": dict(card or {}),
            "tags": [],
            "gated": False,
            "private": False,
            "inferenceProviderMapping": [
                {"provider": provider, "providerId": id, "status": "live", "task": pipeline_tag, **entry}
                for provider, entry in (providers or {}).items()
            ],
            "siblings": [{"rfilename": name} for name in content],
            **info,
        }
        self.models[id] = HubModel(said, content)
        return self.models[id]

    def answer(
        self,
        part: str,
        *,
        body: Any = b"",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        times: int | None = None,
    ) -> None:
        """Answer requests whose path holds `part` in this way; the first such rule that is left holds.

        Args:
            body: bytes as they are; anything else becomes JSON.
            times: how often; None: always.
        """
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = Reply(status, data, {"Content-Type": kind, **(headers or {})})
        self._scripts.append(_Script(part, reply, None, times))

    def stall(
        self, part: str, *, where: Literal["start", "middle"] = "start", times: int | None = None
    ) -> None:
        """Stop responding to requests whose path contains `part`: before the answer, or in its middle."""
        self._scripts.append(_Script(part, None, where, times))

    def handle(self, request: HubRequest) -> Reply:
        """The answer to a request."""
        with self._lock:
            self.requests.append(request)
            script = next((s for s in self._scripts if s.part in request.path and s.left != 0), None)
            if script and script.left:
                script.left -= 1
        if script and script.reply:
            return script.reply
        reply = self._route(request)
        reply.stall = script.stall if script else None
        return reply

    def wait(self) -> None:
        """Wait until the double is closed."""
        self._closing.wait()

    def _route(self, request: HubRequest) -> Reply:
        if request.method == "POST":
            return _json({"error": f"no answer is set for {request.path}"}, 404)
        if request.path == "/api/models":
            return self._list(request)
        if found := _API.match(request.path):
            return self._describe(found, request)
        if found := _FILE.match(request.path):
            return self._file(found, request)
        return _json({"error": "not found"}, 404)

    def _list(self, request: HubRequest) -> Reply:
        """A page of the models that the query asks for, the most downloaded (or most liked, …) first."""
        query = request.query
        tag = query.get("pipeline_tag", [None])[0]
        served = "inference_provider" in query
        order = query.get("sort", ["downloads"])[0]
        found = [
            model
            for model in sorted(self.models.values(), key=lambda model: -(model.info.get(order) or 0))
            if tag in (None, model.info["pipeline_tag"])
            and (not served or model.info["inferenceProviderMapping"])
            and query.get("search", [""])[0] in model.info["id"]
            and set(query.get("filter", [])) <= {*model.info["tags"], model.info.get("library_name")}
        ]
        return self._page([model.shown(query.get("expand", [])) for model in found], request)

    def _page(self, rows: list[dict[str, Any]], request: HubRequest) -> Reply:
        """The part of a list that a request asks for, with the address of the next one."""
        query = request.query
        start = int(query.get("cursor", ["0"])[0])
        end = start + min(int(query.get("limit", [self.page_size])[0]), self.page_size)
        reply = _json(rows[start:end])
        if end < len(rows):
            reply.headers["Link"] = f'<{self.url}{request.path}?cursor={end}&{_rest(query)}>; rel="next"'
        return reply

    def _describe(self, found: re.Match[str], request: HubRequest) -> Reply:
        model, error = self._model(found["id"], found["revision"])
        if model is None:
            return error
        if found["what"] == "tree":
            recursive = request.query.get("recursive", ["false"])[0].lower() == "true"
            listed = model.tree(found["folder"] or "", recursive=recursive)
            return self._page(listed, request) if listed else _refused(404, "EntryNotFound", "no such folder")
        return _json(model.shown(request.query.get("expand", [])))

    def _file(self, found: re.Match[str], request: HubRequest) -> Reply:
        model, error = self._model(found["id"], found["revision"])
        if model is None:
            return error
        if model.info["gated"] and "authorization" not in request.headers:
            return _refused(401, "GatedRepo", f"Access to model {found['id']} is restricted.")
        data = model.files.get(found["file"])
        if data is None:
            return _refused(404, "EntryNotFound", f"{found['file']} does not exist")
        headers = {"ETag": f'"{etag(data)}"', "X-Repo-Commit": model.info["sha"], "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if not wanted:
            return Reply(200, data, headers)
        first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return Reply(206, data[first : last + 1], headers)

    def _model(self, model_id: str, revision: str | None) -> tuple[HubModel | None, Reply]:
        model = self.models.get(model_id)
        if model is None:
            return None, _refused(404, "RepoNotFound", "Repository not found")
        if revision not in (None, "main", model.info["sha"]):
            return None, _refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return model, Reply()


def etag(data: bytes) -> str:
    """The ETag of a file: git's id of its content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - as git does


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _refused(status: int, code: str, message: str) -> Reply:
    reply = _json({"error": message}, status)
    reply.headers |= {"X-Error-Code": code, "X-Error-Message": message}
    return reply


def _rest(query: Mapping[str, list[str]]) -> str:
    return "&".join(
        f"{name}={value}" for name, values in query.items() if name != "cursor" for value in values
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: HubDouble) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _handle(self) -> None:
        url = urlsplit(self.path)
        request = HubRequest(
            method=self.command,
            path=unquote(url.path),
            query=parse_qs(url.query),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        reply = self.server.hub.handle(request)
        if reply.stall == "start":
            self.server.hub.wait()
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(reply.body) // 2
        self.wfile.write(reply.body[:half])
        if reply.stall == "middle":
            self.wfile.flush()
            self.server.hub.wait()
            self.close_connection = True
            return
        self.wfile.write(reply.body[half:])

    do_GET = do_HEAD = do_POST = _handle  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is printed."""
