"""The expert server as an inference endpoint of the Hub, called with huggingface_hub's own client."""

import base64
import io
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from expert_servers import served_experts
from huggingface_hub import InferenceClient
from huggingface_hub.errors import BadRequestError, HfHubHTTPError
from PIL import Image

from jarvis_agent.backends.outputs.adapters import Result
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg
from jarvis_agent.core.types import Resource
from jarvis_agent.interfaces.experts.hub_api import bind, write_response
from jarvis_agent.media.store import ResourceStore

KEY = "a-key-for-tests"
EXAMPLES = Path(__file__).parents[2] / "examples"
Image.new("1", (10_001, 10_000)).save(_tall := io.BytesIO(), format="PNG")
TALL = base64.b64encode(_tall.getvalue()).decode()
"""An image of more pixels than the server takes."""
Image.effect_noise((30, 20), 90).save(_noise := io.BytesIO(), format="PNG")
NOISE = _noise.getvalue()
PICTURE, DAMAGED = (base64.b64encode(content).decode() for content in (NOISE, NOISE[:43]))
BEARER = {"Authorization": f"Bearer {KEY}"}
CAPTIONER, FLIP = "me/says/pipeline/image-to-text", {"flip": "vertical"}
TINY = {
    "bert_classifier": "text-classification",
    "bert_reader": "question-answering",
    "bart": "summarization",
    "detr": "object-detection",
    "segformer": "image-segmentation",
    "stable_diffusion": "text-to-image",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose only models are described in its file of models."""
    file = tmp_path_factory.mktemp("models") / "models.yaml"
    tasks = ["text-generation", "image-to-text", "translation", "table-question-answering"]
    says = {"id": "me/says", "tasks": tasks, "backend": "command", "local": True}
    file.write_text(yaml.safe_dump([says, {**says, "id": "me/sees", "tasks": ["visual-document-retrieval"]}]))
    settings = Settings(models_file=file, max_file_bytes=100_000)
    with served_experts(settings, (KEY,)) as address:
        yield address


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses to send anything offline, even to this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def client(address: str, model: str = "me/says", key: str = KEY) -> InferenceClient:
    return InferenceClient(model=f"{address}/models/{model}", token=key)


def test_a_model_answers_for_the_task_that_fits_the_request(address: str) -> None:
    assert client(address, "me/says/pipeline/text-generation").text_generation("echo é").startswith("é by")
    other = InferenceClient(base_url=f"{address}/models/me/says", token=KEY)
    found = other.translation("echo é", src_lang="de", tgt_lang="en")
    assert found.translation_text.startswith("é by")
    models = httpx.get(f"{address}/models", headers=BEARER).json()["loaded"]
    assert ("me/says", 1) in {(one["model"], one["calls"]) for one in models}


@pytest.mark.parametrize(
    ("status", "model", "body", "why"),
    [
        (404, "me/other", {"inputs": "echo"}, "no model me/other"),
        (404, "me/says/pipeline/juggling", {"inputs": "echo"}, "no model"),
        (400, "me/says", {"parameters": {}}, "needs text"),
        (400, "me/says", {"inputs": ["echo"]}, "text must be text"),
        (404, "me/says@../../etc/pipeline/image-to-text", {"inputs": PICTURE}, "no model"),
        (404, "me/says@/etc/pipeline/image-to-text", {"inputs": PICTURE}, "no model"),
        (422, "me/says", {"inputs": f"refuse UnsupportedError {Path.home()}"}, "the model refuses this"),
        (400, CAPTIONER, {"inputs": "http://10.0.0.1/a.png"}, "not a path or URL"),
        (400, CAPTIONER, {"inputs": str(EXAMPLES / "cat.jpg")}, "not a path or URL"),
        (400, CAPTIONER, {"inputs": "YWJj"}, "a text file, and an image file is needed"),
        (400, CAPTIONER, {"inputs": TALL}, "pixels, more than 100,000,000"),
        (400, "pillow/edit", {"inputs": DAMAGED, "parameters": FLIP}, "image.png cannot be read"),
        (400, "me/says", [], "cannot be read"),
        (400, "me/says", {"inputs": "fail BadInputError \ud800"}, "\ufffd"),
        (400, "me/sees", {"inputs": "page", "image": [PICTURE] * 101}, "101 files, more than 100"),
        (400, "me/says", {"inputs": "echo", "parameters": {"seed": 2**63}}, "whole number of 64 bits"),
        (400, "me/says", {"inputs": "echo", "more": [[]] * 50_000}, "more than 50,000 values"),
        (400, "me/says", {"text": "a", "table": {"a": [1], "b": []}}, "table is base64 or columns"),
        (400, "me/says", {"inputs": "echo", "parameters": {"seed": "x"}}, "seed must be a whole number"),
        (500, "me/says", {"inputs": "juggle"}, "AttributeError"),
    ],
)
def test_a_refused_request_says_why(address: str, status: int, model: str, body: object, why: str) -> None:
    headers = BEARER | {"Content-Type": "application/json"}
    response = httpx.post(f"{address}/models/{model}", content=json.dumps(body), headers=headers)
    assert (response.status_code, why in response.json()["error"]) == (status, True), response.text
    assert str(Path.home()) not in response.text


def test_a_file_is_sent_as_it_is_with_parameters_in_the_query(address: str) -> None:
    def post(model: str, content: bytes, mime: str = "", **params: str) -> httpx.Response:
        headers = BEARER | ({"Content-Type": mime} if mime else {})
        return httpx.post(f"{address}/models/{model}", content=content, headers=headers, params=params)

    size = '{"width": 8, "height": 6}'
    response = post("pillow/resize/pipeline/resize-image", NOISE, parameters=size)
    assert response.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(response.content)).size == (8, 6)
    table = post("pillow/info/pipeline/media-info", b"{a,b\n1,2\n", "text/csv")
    assert table.json()["columns"] == ["{a", "b"]
    said = post("me/says/pipeline/text-generation", b'{"inputs": "echo untyped"}')
    assert said.json()[0]["generated_text"].startswith("untyped by")


def test_a_reader_that_finds_nothing_answers_with_an_empty_text() -> None:
    nothing = Result([], [Resource(kind="text", text="")])
    response = write_response(TASKS["question-answering"], nothing, None)
    assert json.loads(bytes(response.body)) == {"answer": "", "score": 0.0}


async def test_the_name_of_a_sent_file_stays_and_fits_into_a_directory(tmp_path: Path) -> None:
    store, arg = ResourceStore(Settings(), directory=tmp_path), Arg("image", "image")
    named = {"Katze%201.png": "Katze-1.png", "%E7%8C%AB" * 30: "猫" * 30 + ".png", "..": "file.png"}
    named |= {"a" * 300: "a" * 60 + ".png", "%00/etc/b.png": "b.png"}
    for name, path in named.items():
        file = await bind(arg, f"data:image/png;name={name};base64,{PICTURE}", store)
        assert file.path == tmp_path / path


@pytest.mark.parametrize("mime", ["application/x-www-form-urlencoded", "text/csv", "text/plain", ""])
async def test_a_table_is_read_as_such_whatever_type_a_program_sends(mime: str, tmp_path: Path) -> None:
    store = ResourceStore(Settings(), directory=tmp_path)
    table = await bind(Arg("table", "table"), (mime, b"a,b\n1,2\n"), store)
    assert (table.kind, table.path) == ("table", tmp_path / "table.csv")
    tabs = ("text/tab-separated-values", b"a\tb\n1\t2\n")
    assert (await bind(Arg("table", "table"), tabs, store)).path == tmp_path / "table.tsv"


def test_the_client_shows_what_was_wrong_and_a_key_is_needed(address: str) -> None:
    with pytest.raises(BadRequestError, match="no such thing"):
        client(address).text_generation("fail BadInputError no such thing")
    with pytest.raises(HfHubHTTPError, match="401"):
        client(address, key="wrong").text_generation("echo")
    assert httpx.post(f"{address}/models/me/says", content=b"x" * 40_000_000).status_code == 401


@pytest.mark.slow
def test_tasks_of_text_and_sound_have_the_forms_of_the_client() -> None:
    with served_experts(Settings(offline=True), backends=None) as address:
        embedder = client(address, "sentence-transformers/all-MiniLM-L6-v2")
        assert embedder.feature_extraction("a cat").shape == (384,)
        near, far = embedder.sentence_similarity("a cat", other_sentences=["a kitten", "tax law"])
        assert near > far
        (best, _) = embedder.zero_shot_classification("a cat", ["animal", "tax"])
        assert best.label == "animal"
        assert 0 < best.score < 1
        (first, *_) = client(address, "timm/tf_efficientnet_lite0.in1k").image_classification(
            EXAMPLES / "cat.jpg", top_k=1
        )
        assert "cat" in first.label
        speech = client(address, "maureesewilliams/hibari").text_to_speech("Good morning.")
        heard = client(address, "Systran/faster-whisper-tiny.en").automatic_speech_recognition(speech)
        assert "morning" in heard.text.lower()
        (clean,) = client(address, "GTCRN").audio_to_audio(speech)
        assert clean.blob[:4] == b"RIFF"


@pytest.mark.slow
def test_models_in_own_folders_have_the_forms_of_the_client(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from tiny_models import build

    for name in TINY:
        (tmp_path / name).mkdir()
        build(name, tmp_path / name)
    described = [{"id": f"me/{name}", "task": task, "path": name} for name, task in TINY.items()]
    (tmp_path / "models.yaml").write_text(yaml.safe_dump(described))
    settings = Settings(models_file=tmp_path / "models.yaml", offline=True)
    cat = EXAMPLES / "cat.jpg"
    with served_experts(settings, backends=None) as address:
        assert client(address, "me/bert_classifier").text_classification("Ada", top_k=1)[0].label
        answer: Any = client(address, "me/bert_reader").question_answering("Who?", "Ada is in Paris.")
        assert answer.answer in "Ada is in Paris."
        assert isinstance(client(address, "me/bart").summarization("Ada is in Paris.").summary_text, str)
        for box in client(address, "me/detr").object_detection(cat):
            assert box.box.xmin <= box.box.xmax
        parts: Any = client(address, "me/segformer").image_segmentation(cat)
        assert {part.mask.mode for part in parts} == {"L"}
        painter = client(address, "me/stable_diffusion")
        paint = partial(painter.text_to_image, "a cat", width=16, height=16)
        first, again, *others = [
            image.tobytes() for image in (paint(seed=1), paint(seed=1), paint(), paint())
        ]
        assert len(first) == 3 * 16 * 16
        assert first == again
        assert len({first, *others}) == 3, "without a seed each picture is a new one"
        with pytest.raises(HfHubHTTPError, match=r"422(.|\n)*no option 'colour'"):
            painter.text_to_image("a cat", extra_body={"colour": "red"})
