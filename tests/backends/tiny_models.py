"""Tiny models with random weights, saved as repositories of the Hub are.

    build("bert_classifier", folder)      # config.json, model.safetensors, tokenizer.json, …; at most 1 MB

Most are described in tests/data/tiny_models.yaml; `WRITTEN` holds those that need code.
"""

import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import tiny_tokenizers
import yaml
from tiny_tabular import ESTIMATORS

TABLE = Path(__file__).parents[1] / "data" / "tiny_models.yaml"


def build(name: str, folder: Path) -> None:
    """Save the named model in the folder, with the same random weights each time."""
    import torch

    torch.manual_seed(0)
    if name in WRITTEN:
        WRITTEN[name](folder)
        return
    for part in _described()[name]:
        if "file" in part:
            text = json.dumps(part["json"]) if "json" in part else _made(part["text"], folder)
            (folder / part["file"]).write_text(text)
        else:
            options = {key: value for key, value in part.items() if key != "into"}
            _made(options, folder).save_pretrained(folder / part.get("into", ""))


@cache
def _described() -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return described


def _made(value: Any, folder: Path) -> Any:
    """The value, in which each mapping with a class has become an object of it."""
    if isinstance(value, list):
        return [_made(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    options = {key: _made(item, folder) for key, item in value.items()}
    name = options.pop("class", None)
    if name is None:
        return options
    weights, generation = options.pop("weights", {}), options.pop("generation", {})
    made = _called(name, options, folder)
    for pattern, numbers in weights.items():
        _set_weights(made, pattern, numbers)
    if generation is None:
        made.can_generate = lambda: False
    elif not isinstance(generation, dict):
        made.generation_config = generation
    else:
        for key, number in generation.items():
            setattr(made.generation_config, key, number)
    return made


def _called(name: str, options: dict[str, Any], folder: Path) -> Any:
    import torch
    import transformers

    if own := globals().get(name) or getattr(tiny_tokenizers, name, None):
        return own(folder, **options)
    module, _, attribute = name.rpartition(".")
    if not module:
        module = "transformers" if hasattr(transformers, name) else "diffusers"
    kind = getattr(import_module(module), attribute)
    of_models = any(isinstance(option, torch.nn.Module) for option in options.values())
    if issubclass(kind, transformers.PreTrainedModel) and not of_models:
        return kind(kind.config_class(**options))
    return kind(**options)


def _set_weights(model: Any, pattern: str, numbers: Any) -> None:
    import torch

    matching = [weight for name, weight in model.named_parameters() if fnmatchcase(name, pattern)]
    assert matching, f"{type(model).__name__} has no weights {pattern}"
    for weight in matching:
        weight.data[:] = torch.tensor(numbers)


def chat_template(folder: Path, **marks: str) -> str:
    """A chat template that writes each part of a message as its text, or as the mark of its kind."""
    kinds = "".join(f"{{% elif part['type'] == '{kind}' %}}{mark}" for kind, mark in marks.items())
    return (
        "{% for message in messages %}{% for part in message['content'] %}"
        "{% if part['type'] == 'text' %}{{ part['text'] }}" + kinds + "{% endif %}"
        "{% endfor %}{% endfor %}:"
    )


def shape_renderer(folder: Path, **options: Any) -> Any:
    import torch
    from diffusers.pipelines.shap_e import ShapERenderer

    renderer = ShapERenderer(**options)
    with torch.no_grad():
        renderer.mlp.mlp[-1].weight[0].mul_(50)  # so that the shape has a surface somewhere
        # The tables of marching cubes are weights too: a triangle for each cube with one corner inside.
        renderer.mesh_decoder.masks[1, 0] = True
        renderer.mesh_decoder.cases[1, 0] = torch.tensor([0, 4, 8])
    return renderer


def _embedder(folder: Path, *, dense: bool = False, **options: Any) -> None:
    """A model of sentence-transformers: the mean of BERT's token vectors, of length one."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    build("bert_base", folder / "base")
    words = Transformer(str(folder / "base"))
    modules = [words, Pooling(words.get_embedding_dimension(), "mean")]
    if dense:
        modules.append(Dense(words.get_embedding_dimension(), 8))
    model = SentenceTransformer(modules=[*modules, Normalize()], device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    shutil.rmtree(folder / "base")


def _cross_encoder(folder: Path) -> None:
    from sentence_transformers import CrossEncoder

    build("reranker", folder / "base")
    CrossEncoder(str(folder / "base"), device="cpu").save(str(folder), create_model_card=False)
    shutil.rmtree(folder / "base")


WRITTEN: dict[str, Callable[[Path], None]] = {
    "embedder": _embedder,
    "asymmetric_embedder": partial(_embedder, prompts={"query": "who wrote ", "document": "the cat is "}),
    "dense_embedder": partial(_embedder, dense=True),
    "cross_encoder": _cross_encoder,
    **ESTIMATORS,
}
"""Models of sentence-transformers and scikit-learn. The asymmetric embedder marks queries and documents."""
