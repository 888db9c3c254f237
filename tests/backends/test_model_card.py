"""What a model says of itself."""

from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.hub import model_card as cards


@pytest.mark.parametrize(
    ("card", "tags", "expected"),
    [
        ({"license": "MIT", "language": "en"}, [], {"license": "mit", "languages": ("en",)}),
        ({"license": ["mit"], "language": ["en", "zh"]}, [], {"license": "mit", "languages": ("en", "zh")}),
        ({}, ["license:openrail"], {"license": "openrail", "languages": ()}),
        ({"language": ["en", "multilingual"]}, [], {"license": None, "languages": ()}),
        ({"language": ["ace", "fr"]}, [], {"license": None, "languages": ("fr",)}),
        ({"license": 7, "language": {"a": 1}}, [], {"license": None, "languages": ()}),
    ],
)  # fmt: skip
def test_licence_and_languages_are_read_whatever_form_they_have(
    card: dict[str, Any], tags: list[str], expected: dict[str, Any]
) -> None:
    assert cards.metadata(card, tags) == expected


def test_a_description_is_made_of_the_metadata() -> None:
    card = {"datasets": "coco", "base_model": ["facebook/detr"], "language": ["en"], "tags": ["vision"]}
    assert cards.describe(card, ["dataset:coco", "dataset:lvis"]) == (
        "Trained on coco, lvis. Based on facebook/detr. Languages: en. Tags: vision."
    )


def test_a_description_stays_short() -> None:
    said = cards.describe({"tags": ["very-long-tag-" * 20] * 30, "datasets": ["d" * 500]}, [])
    assert len(said) <= 302


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("A short text.", 80, "A short text."),
        ("one two three", 2, "one two …"),
        ("internationalization of texts", 7, "internationalization of …"),
        ("two incomprehensibilities", 3, "two …"),
        ("检测图像中的物体", 4, "检测图像 …"),
        ("", 5, ""),
    ],
)
def test_descriptions_are_shortened_by_tokens(text: str, most: int, kept: str) -> None:
    assert cards.first_tokens(text, most) == kept


def test_a_description_in_chinese_costs_no_more_than_one_in_english() -> None:
    assert len(cards.first_tokens("物" * 500)) < len(cards.first_tokens("word " * 500)) / 3


def test_the_first_paragraph_of_prose_is_found_below_headings_and_badges() -> None:
    readme = (
        "# Model\n\n[![badge](x.png)](y)\n\n<!-- secret -->\n\n```python\nimport a lot of words here\n```\n\n"
        "This [model](http://x) finds *objects* in your images.\n\nMore."
    )
    assert cards.first_paragraph(readme) == "This model finds objects in your images."
    assert cards.first_paragraph("# Only a heading\n\n| a | table |") == ""


@pytest.mark.parametrize(
    ("task", "model", "tags", "expected"),
    [
        ("image-to-text", "microsoft/trocr-base-printed", [], ("ocr",)),
        ("image-to-text", "facebook/nougat-small", [], ("ocr",)),
        ("image-to-text", "some/model", ["ocr"], ("ocr",)),
        ("image-to-text", "Salesforce/blip-image-captioning-base", [], ("caption",)),
        ("image-to-text", "org/mediocrely-named", [], ("caption",)),
        ("translation", "Helsinki-NLP/opus-mt-en-fr", [], ("from:en", "to:fr")),
        ("translation", "google-t5/t5-small", [], ()),
        ("image-classification", "microsoft/trocr-base", [], ()),
    ],
)
def test_traits_tell_readers_from_captioners_and_directions(
    task: str, model: str, tags: list[str], expected: tuple[str, ...]
) -> None:
    assert cards.capabilities(task, model, tags) == expected


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("DetrForObjectDetection", "object-detection"),
        ("ViTForImageClassification", "image-classification"),
        ("BertForQuestionAnswering", "question-answering"),
        ("ViltForQuestionAnswering", "visual-question-answering"),
        ("LayoutLMv2ForQuestionAnswering", "document-question-answering"),
        ("VisionEncoderDecoderModel", "image-to-text"),
        ("BlipForConditionalGeneration", "image-to-text"),
        ("WhisperForConditionalGeneration", "automatic-speech-recognition"),
        ("Wav2Vec2ForCTC", "automatic-speech-recognition"),
        ("MarianMTModel", "translation"),
        ("BartForConditionalGeneration", "summarization"),
        ("LlamaForCausalLM", "text-generation"),
        ("SegformerForSemanticSegmentation", "image-segmentation"),
        ("BertModel", None),
    ],
)
def test_an_architecture_tells_its_task(architecture: str, task: str | None) -> None:
    assert cards.task_of({"architectures": [architecture]}) == task


def test_a_config_without_architectures_tells_no_task() -> None:
    assert cards.task_of({}) is None
    assert cards.task_of({"architectures": None}) is None


def test_weights_in_several_formats_count_once() -> None:
    sizes = {"model.safetensors": 100, "pytorch_model.bin": 100, "training_args.bin": 3, "config.json": 1}
    assert cards.weight_bytes(sizes) == 100
    assert cards.weight_bytes({"unet/a.safetensors": 10, "vae/b.safetensors": 5}) == 15
    assert cards.weight_bytes({"training_args.bin": 3, "config.json": 1}) == 0


def test_a_model_is_whole_when_every_shard_is_there(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
    )
    (tmp_path / "1.safetensors").touch()
    assert not cards.is_complete(tmp_path)
    (tmp_path / "2.safetensors").touch()
    assert cards.is_complete(tmp_path)


def test_a_local_directory_tells_library_and_size(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "w.safetensors").write_bytes(b"12345")
    assert cards.model_at(tmp_path) == {"path": tmp_path, "local": True, "size": 5, "library": "diffusers"}


@pytest.mark.parametrize("header", ["---\nlicense: [unclosed\n---\n", "---\n- a\n- list\n---\n", ""])
def test_a_broken_header_leaves_the_cards_text(tmp_path: Path, header: str) -> None:
    card = tmp_path / "README.md"
    card.write_text(header + "The text.")
    assert cards.read_card(card) == ({}, "The text.")


def test_a_card_is_read_with_windows_line_ends(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_bytes(b"---\r\nlicense: mit\r\n---\r\nThe text.")
    assert cards.read_card(card) == ({"license": "mit"}, "The text.")


def test_a_card_that_is_not_there_or_not_text_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"\xff\xfe\x00")
    assert cards.read_card(tmp_path / "README.md") == ({}, "")
    assert cards.read_card(tmp_path / "none.md") == ({}, "")


@pytest.mark.parametrize(
    ("named", "taken"),
    [
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", ["stable-diffusion-v1-5/stable-diffusion-v1-5"]),
        (["org/a", "org/b"], ["org/a", "org/b"]),
        ("/etc/models", None),
        ("../secrets", None),
        ("~/models/x", None),
    ],
)
def test_a_card_names_models_of_the_hub_and_no_directories(named: Any, taken: list[str] | None) -> None:
    assert cards.base_models({"base_model": named}).get("base_model") == taken
