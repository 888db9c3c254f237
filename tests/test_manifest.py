"""The manifest for Kubernetes, examples/kuberay.yaml."""

import json
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).parents[1]


def test_it_starts_the_experts_with_the_pinned_ray() -> None:
    """The schema is KubeRay's of RayService v1 (ray-project/kuberay, feeaf72), less what we do not use."""
    manifest = yaml.safe_load((ROOT / "examples" / "kuberay.yaml").read_text("utf-8"))
    jsonschema.validate(manifest, json.loads((ROOT / "tests/data/rayservice_schema.json").read_text("utf-8")))
    (served,) = yaml.safe_load(manifest["spec"]["serveConfigV2"])["applications"]
    assert served["import_path"] == "jarvis_agent.interfaces.experts:cluster"
    version = manifest["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"\nray=={version}\n" in (ROOT / "constraints.txt").read_text("utf-8")
