"""HubDouble: a Hugging Face Hub on this machine, with lists, cards, downloads, and hosted inference.

with HubDouble() as hub:
    hub.add_model("org/detr", pipeline_tag="object-detection", downloads=7, directory=folder)
    hub.answer("/models/org/detr", body=[{"label": "cat", "score": 0.9}])     # hosted inference
    hub.answer("/api/models", status=503, times=1)                            # a failure, once
    with hub.redirected():
        snapshot_download("org/detr")
assert hub.requests[0].path == "/api/models/org/detr"
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NoReturn
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit


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


@dataclass(slots=True)
class Reply:
    """A response. A body in pieces is sent as they come; an exception that one raises breaks it off."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)


class ReplyServer(ThreadingHTTPServer):
    """Answers requests on a free port of this machine, until its `with` block ends.

    `handle`, or a subclass, returns the reply to a request, in a thread for each connection.
    """

    daemon_threads = True

    def __init__(self, handle: Callable[[HubRequest], Reply] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._handle = handle
        self.closing = threading.Event()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.02,), name="hub-double", daemon=True
        )
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle(self, request: HubRequest) -> Reply:
        """The reply to a request."""
        assert self._handle is not None
        return self._handle(request)

    def hang(self) -> NoReturn:
        """Leave a client without an answer until the server closes."""
        self.closing.wait()
        raise ConnectionAbortedError("the server closes")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that break."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ReplyServer

    def _handle(self) -> None:
        url = urlsplit(self.path)
        request = HubRequest(
            method=self.command,
            path=unquote(url.path),
            query=parse_qs(url.query),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        reply = self.server.handle(request)
        headers, body = dict(reply.headers), reply.body
        if isinstance(body, bytes):
            headers["Content-Length"], body = str(len(body)), [body]
        is_chunked = "Content-Length" not in headers
        if is_chunked:
            headers["Transfer-Encoding"] = "chunked"
        self.send_response(reply.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in chain(body, [b""]) if self.command != "HEAD" else ():
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)

    do_GET = do_HEAD = do_POST = _handle  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is printed."""


_API = re.compile(r"/api/models/(?P<id>[^/]+(?:/[^/]+)?)(?:/(?P<part>revision|tree)/(?P<revision>[^/]+))?/?$")
_FILE = re.compile(r"/(?P<id>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)$")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the double: its API metadata and its files."""

    info: dict[str, Any]
    files: Mapping[str, bytes]

    def shown(self, expand: Sequence[str]) -> dict[str, Any]:
        """The API metadata, or the requested part of it."""
        wanted = {*expand, "id", "modelId", "_id"}
        return {name: value for name, value in self.info.items() if not expand or name in wanted}


@dataclass(slots=True)
class _Rule:
    part: str
    reply: Callable[[HubRequest], Reply]
    left: int | None


class HubDouble(ReplyServer):
    """A Hugging Face Hub on this machine, with lists, cards, downloads, and hosted inference.

    `url` is its endpoint, for `HfApi(endpoint=...)`, or HF_ENDPOINT of another process (together with
    HF_HUB_DISABLE_XET=1). `requests` are the received requests in order.
    """

    def __init__(self) -> None:
        self.requests: list[HubRequest] = []
        self.models: dict[str, HubModel] = {}
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        super().__init__()

    @contextmanager
    def redirected(self) -> Iterator[None]:
        """Within the block, huggingface_hub in this process uses the double, also for inference."""
        from huggingface_hub import constants

        files = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        with (
            patch.object(constants, "ENDPOINT", self.url),
            patch.object(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files),
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
            paths = sorted(file for file in directory.rglob("*") if file.is_file())
            content |= {file.relative_to(directory).as_posix(): file.read_bytes() for file in paths}
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
            "siblings": [_sibling(name, data) for name, data in content.items()],
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
        """Set the response to requests whose path contains `part`. The first such rule is used.

        Args:
            body: bytes as they are; anything else becomes JSON.
            times: how often the rule is used; None: always.
        """
        plain = {"Content-Type": "application/octet-stream"}
        reply = Reply(status, body, plain) if isinstance(body, bytes) else json_reply(body, status)
        reply.headers |= headers or {}
        self._rules.append(_Rule(part, lambda _: reply, times))

    def stall(
        self, part: str, *, where: Literal["start", "middle"] = "start", times: int | None = None
    ) -> None:
        """Stop responding to requests whose path contains `part`: before the answer, or in its middle."""

        def half_of(request: HubRequest) -> Reply:
            reply = self._route(request)
            whole = b"".join([reply.body] if isinstance(reply.body, bytes) else reply.body)

            def pieces() -> Iterator[bytes]:
                yield whole[: len(whole) // 2]
                self.hang()

            return Reply(reply.status, pieces(), {**reply.headers, "Content-Length": str(len(whole))})

        self._rules.append(_Rule(part, half_of if where == "middle" else lambda _: self.hang(), times))

    def handle(self, request: HubRequest) -> Reply:
        """The answer to a request."""
        with self._lock:
            self.requests.append(request)
            rule = next((s for s in self._rules if s.part in request.path and s.left != 0), None)
            if rule and rule.left:
                rule.left -= 1
        return rule.reply(request) if rule else self._route(request)

    def _route(self, request: HubRequest) -> Reply:
        if request.method == "POST":
            return json_reply({"error": f"no answer is set for {request.path}"}, 404)
        if request.path == "/api/models":
            return self._list(request.query)
        api, file = _API.match(request.path), _FILE.match(request.path)
        match = api or file
        if match is None:
            return json_reply({"error": "not found"}, 404)
        model = self.models.get(match["id"])
        if model is None:
            return _refused(404, "RepoNotFound", "Repository not found")
        if match["revision"] not in (None, "main", model.info["sha"]):
            return _refused(404, "RevisionNotFound", f"Invalid rev id: {match['revision']}")
        if file:
            return _file(model, file["file"], request.headers)
        if match["part"] == "tree":
            files = ((name, len(data), etag(data)) for name, data in model.files.items())
            return json_reply(
                [{"type": "file", "path": path, "size": size, "oid": tag} for path, size, tag in files]
            )
        return json_reply(model.shown(request.query.get("expand", [])))

    def _list(self, query: Mapping[str, list[str]]) -> Reply:
        """The models that the query asks for, by default the most downloaded first."""
        order, tag = query.get("sort", ["downloads"])[0], query.get("pipeline_tag", [None])[0]
        models = [
            model.shown(query.get("expand", []))
            for model in sorted(self.models.values(), key=lambda model: -(model.info.get(order) or 0))
            if tag in (None, model.info["pipeline_tag"])
            and query.get("search", [""])[0].lower() in model.info["id"].lower()
            and set(query.get("filter", [])) <= {*model.info["tags"], model.info.get("library_name")}
        ]
        return json_reply(models[: int(query.get("limit", ["1000"])[0])])


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    """A file as the API lists it; a GGUF file has a SHA-256, since it is in Git LFS."""
    sibling: dict[str, Any] = {"rfilename": name, "size": len(data)}
    if name.endswith(".gguf"):
        sibling["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 135}
    return sibling


def _file(model: HubModel, name: str, asked: Mapping[str, str]) -> Reply:
    """A file, or the range of it that the request's headers name."""
    if model.info["gated"] and "authorization" not in asked:
        return _refused(401, "GatedRepo", f"Access to model {model.info['id']} is restricted.")
    data = model.files.get(name)
    if data is None:
        return _refused(404, "EntryNotFound", f"{name} does not exist")
    headers = {"ETag": f'"{etag(data)}"', "X-Repo-Commit": model.info["sha"], "Accept-Ranges": "bytes"}
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.get("range", ""))
    if not wanted:
        return Reply(200, data, headers)
    first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return Reply(206, data[first : last + 1], headers)


def etag(data: bytes) -> str:
    """The ETag of a file: git's id of its content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - as git does


def json_reply(value: Any, status: int = 200) -> Reply:
    """A response with a value as JSON."""
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _refused(status: int, code: str, message: str) -> Reply:
    reply = json_reply({"error": message}, status)
    reply.headers |= {"X-Error-Code": code, "X-Error-Message": message}
    return reply
