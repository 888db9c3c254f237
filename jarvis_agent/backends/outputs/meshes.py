"""The adapter of 3D models: GLB (binary glTF), with the colours of the vertices."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.backends.outputs.validators import UnexpectedError, existing, numbers
from jarvis_agent.backends.outputs.provenance import provenance
from jarvis_agent.backends.outputs.adapted import Adapted
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jarvis_agent.backends.base import Call


_DAMAGE = (ValueError, LookupError, TypeError, NameError, AttributeError, NotImplementedError, struct.error)
"""What trimesh raises for a file that is not as it should be."""


def solid(raw: Any, call: Call) -> Adapted:
    """{vertices (n, 3), faces (m, 3), colors (n, 3) or None}, or {path} of a GLB, OBJ, PLY or STL file.

    The output has path and the numbers of vertices and faces.
    """
    scene = _built(raw) if isinstance(raw, Mapping) and "vertices" in raw else _loaded(raw)
    path = call.new_path(".glb")
    path.write_bytes(scene.export(file_type="glb", tree_postprocessor=_signed_by(call)))
    vertices = sum(len(mesh.vertices) for mesh in scene.geometry.values())
    faces = sum(len(getattr(mesh, "faces", ())) for mesh in scene.geometry.values())
    file = Resource(kind="3d", path=path, mime="model/gltf-binary", name=call.spec.name)
    output = {"path": str(path), "vertices": vertices, "faces": faces}
    return Adapted(output, f"a 3D model of {vertices:,} vertices and {faces:,} faces", (file,))


def _signed_by(call: Call) -> Any:
    """What puts the provenance into the tree of a glTF file."""

    def sign(tree: dict[str, Any]) -> None:
        tree["asset"]["extras"] = provenance(call)

    return sign


def _built(raw: Mapping[str, Any]) -> Any:
    vertices, faces = _array(raw["vertices"], "vertices"), _array(raw.get("faces"), "faces")
    if len(faces) and not (faces.min() >= 0 and faces.max() < len(vertices)):
        raise UnexpectedError(f"faces between the {len(vertices)} vertices")
    trimesh = _trimesh()
    mesh = trimesh.Trimesh(vertices, faces.astype(int), process=False)
    if (colors := raw.get("colors")) is not None:
        mesh.visual.vertex_colors = _bytes(_array(colors, "colors"), len(vertices))
    return trimesh.Scene(mesh)


def _array(value: Any, name: str) -> NDArray[np.float64]:
    """Numbers of shape (n, 3); n is not 0."""
    import numpy as np

    found = numbers(value, f"{name} as numbers (n, 3)").astype(np.float64)
    if found.ndim != 2 or found.shape[1] != 3 or not len(found):
        raise UnexpectedError(f"{name} as numbers (n, 3)")
    if not np.isfinite(found).all():
        raise UnexpectedError(f"finite {name}")
    return found


def _bytes(colors: NDArray[np.float64], vertices: int) -> NDArray[np.uint8]:
    """Colours as bytes: those that are all in 0…1 are shares of 255."""
    import numpy as np

    if len(colors) != vertices:
        raise UnexpectedError(f"a colour for each of the {vertices} vertices")
    shares = colors * 255 if colors.max() <= 1 else colors
    return shares.round().clip(0, 255).astype(np.uint8)


def _loaded(raw: Any) -> Any:
    given = existing(raw.get("path") if isinstance(raw, Mapping) else raw)
    if given is None:
        raise UnexpectedError("{vertices, faces, colors}, or the path of a 3D file")
    trimesh = _trimesh()
    is_glb = given.read_bytes()[:4] == b"glTF"
    try:
        scene = trimesh.load_scene(given, file_type="glb" if is_glb else given.suffix.lstrip("."))
    except _DAMAGE as error:
        raise UnexpectedError(f"a 3D file that can be read ({error})") from error
    if not scene.geometry:
        raise UnexpectedError("a 3D file with something in it")
    return scene


def _trimesh() -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise MissingExtraError("writing 3D models", "local") from error
    return trimesh
