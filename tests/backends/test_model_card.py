"""Metadata of models: from cards, tags, configs and file names."""

from pathlib import Path
from time import thread_time
from typing import Any

import pytest

from jarvis_agent.backends.hub import model_card as cards


def test_licence_and_languages_are_read_whatever_form_they_have() -> None:
    cases: list[tuple[dict[str, Any], list[str], str | None, tuple[str, ...]]] = [
        ({"license": "MIT", "language": "en"}, [], "mit", ("en",)),
        ({"license": ["mit"], "language": ["en", "zh"]}, [], "mit", ("en", "zh")),
        ({}, ["license:openrail"], "openrail", ()),
        ({"language": ["en", "multilingual"]}, [], None, ()),
        ({"license": 7, "language": {"a": 1}}, [], None, ()),
    ]
    for card, tags, name, languages in cases:
        assert cards.metadata(card, tags) == {"license": name, "languages": languages}


def test_a_description_is_short_and_made_of_the_metadata() -> None:
    card = {"datasets": "coco", "base_model": ["facebook/detr"], "language": ["en"], "tags": ["vision"]}
    assert cards.describe(card, ["dataset:coco", "dataset:lvis"]) == (
        "Trained on coco, lvis. Based on facebook/detr. Languages: en. Tags: vision."
    )
    assert len(cards.describe({"tags": ["very-long-tag-" * 20] * 30, "datasets": ["d" * 500]}, [])) <= 302


def test_the_first_paragraph_of_prose_is_found_below_headings_and_badges() -> None:
    readme = (
        "# Model\n\n[![badge](x.png)](y)\n\n<!-- secret -->\n\n```python\nimport a lot of words here\n```\n\n"
        "This [model](http://x) finds *objects* in your images.\n\nMore."
    )
    assert cards.first_paragraph(readme) == "This model finds objects in your images."
    assert cards.first_paragraph("# Only a heading\n\n| a | table |") == ""


@pytest.mark.parametrize("unit", ["<!--", "```x\n\n", "[", "![a](", "<a ", "*a ", "> > a\n", "&a", "`", "|a"])
def test_the_time_for_a_card_grows_with_its_size(unit: str) -> None:
    def seconds(size: int) -> float:
        began = thread_time()
        cards.first_paragraph(cards.split_card("---\nlicense: mit\n---\n" + unit * (size // len(unit)))[1])
        return thread_time() - began

    seconds(100)  # it imports
    assert seconds(48_000) < 8 * max(0.01, seconds(12_000))
    assert seconds(4_000_000) < 8 * max(0.01, seconds(48_000))


def test_the_first_paragraph_may_be_html() -> None:
    badge = '<p align="center"><img src="a.png" alt="a b c d e f g"></p>'
    html = "<div>\nThis finds all cats in a picture.\n</div>"
    assert cards.first_paragraph(f"{badge}\n\n{html}") == "This finds all cats in a picture."


def test_capabilities_tell_readers_from_captioners_and_directions() -> None:
    for task, model, tags, expected in (
        ("image-to-text", "microsoft/trocr-base-printed", [], ("ocr",)),
        ("image-to-text", "some/model", ["ocr"], ("ocr",)),
        ("image-to-text", "Salesforce/blip-image-captioning-base", [], ("caption",)),
        ("translation", "Helsinki-NLP/opus-mt-en-fr", [], ("from:en", "to:fr")),
        ("translation", "google-t5/t5-small", [], ()),
        ("image-classification", "microsoft/trocr-base", [], ()),
    ):
        assert cards.capabilities(task, model, tags) == expected, model


def test_an_architecture_tells_its_task() -> None:
    for architecture, task in {
        "BertForQuestionAnswering": "question-answering",
        "ViltForQuestionAnswering": "visual-question-answering",
        "LayoutLMForQuestionAnswering": "document-question-answering",
        "BlipForConditionalGeneration": "image-to-text",
        "WhisperForConditionalGeneration": "automatic-speech-recognition",
        "BartForConditionalGeneration": "summarization",
        "SegformerForSemanticSegmentation": "image-segmentation",
        "BertModel": None,
    }.items():
        assert cards.task_of({"architectures": [architecture]}) == task, architecture
    assert cards.task_of({}) is cards.task_of({"architectures": None}) is None


def test_weights_in_several_formats_count_once() -> None:
    sizes = {"model.safetensors": 100, "pytorch_model.bin": 100, "training_args.bin": 3, "config.json": 1}
    assert cards.weight_bytes(sizes) == 100
    assert cards.weight_bytes({"unet/a.safetensors": 10, "vae/b.safetensors": 5}) == 15
    assert cards.weight_bytes({"training_args.bin": 3, "config.json": 1}) == 0


def test_a_folder_tells_library_size_and_whether_every_shard_is_there(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "1.safetensors").write_bytes(b"12345")
    assert cards.model_at(tmp_path) == {"path": tmp_path, "local": True, "size": 5, "library": "diffusers"}
    index = '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
    (tmp_path / "unet" / "model.safetensors.index.json").write_text(index)
    assert not cards.is_complete(tmp_path)
    (tmp_path / "unet" / "2.safetensors").touch()
    assert cards.is_complete(tmp_path)


def test_a_card_is_read_though_its_header_is_broken(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    for content, expected in (
        (b"---\nlicense: [unclosed\n---\nThe text.", ({}, "The text.")),
        (b"---\n- a\n- list\n---\nThe text.", ({}, "The text.")),
        (b"The text.", ({}, "The text.")),
        (b"---\r\nlicense: mit\r\n---\r\nThe text.", ({"license": "mit"}, "The text.")),
        (b"\xff\xfe\x00", ({}, "")),
        (b"---\nlicense: " + b"[" * 9000 + b"\n---\nThe text.", ({}, "The text.")),
    ):
        card.write_bytes(content)
        assert cards.read_card(card) == expected
    assert cards.read_card(tmp_path / "none.md") == ({}, "")


def test_a_card_names_models_of_the_hub_and_no_directories() -> None:
    for named, taken in (
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", ["stable-diffusion-v1-5/stable-diffusion-v1-5"]),
        (["org/a", "org/b"], ["org/a", "org/b"]),
        ("../secrets", None),
    ):
        assert cards.base_models({"base_model": named}).get("base_model") == taken
