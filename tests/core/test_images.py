"""Images as tasks take them: upright, in 8 bits and sRGB, on paper where they are transparent."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageDraw

from jarvis_agent.core import images
from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.images import identified, open_image, to_opaque, to_portable
from jarvis_agent.media.detect import detect_media_type

av = pytest.importorskip("av")


def written(path: Path, size: tuple[int, int] = (60, 20)) -> Image.Image:
    """Black letters on nothing."""
    image = Image.new("RGBA", size, (0, 0, 0, 0))
    ImageDraw.Draw(image).rectangle((20, 5, 40, 15), fill="black")
    return image


def palette_with_transparency(image: Image.Image) -> Image.Image:
    flat = Image.new("P", image.size, 0)
    flat.putpalette([0, 0, 0, 0, 0, 0])
    flat.paste(1, mask=image.getchannel("A"))
    flat.info["transparency"] = 0
    return flat


TRANSPARENT = {"RGBA": "png webp gif tif", "LA": "png webp tif", "P": "png gif", "1": "png"}
"""Formats that have each kind of transparency."""


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [(suffix, mode) for mode, suffixes in TRANSPARENT.items() for suffix in suffixes.split()],
)
def test_what_is_transparent_is_white_paper_for_readers(mode: str, suffix: str, tmp_path: Path) -> None:
    image, options = written(tmp_path), dict[str, Any]()
    if mode == "P":
        image, options = palette_with_transparency(image), {"transparency": 0}
    elif mode == "1":  # a colour key
        image, options = image.getchannel("A").convert("1"), {"transparency": 0}
    elif mode == "LA":
        image = image.convert("LA")
    image.save(path := tmp_path / f"a.{suffix}", **options)
    opened, notes = open_image(path)
    assert (opened.mode, notes) == ("RGBA", [])
    seen = to_opaque(opened)
    if mode != "1":
        assert (seen.getpixel((0, 0)), seen.getpixel((30, 10))) == ((255, 255, 255), (0, 0, 0))
    assert seen.getpixel((0, 0)) != seen.getpixel((30, 10))


def test_light_letters_are_on_black_paper() -> None:
    image = Image.new("RGBA", (30, 10), (0, 0, 0, 0))
    ImageDraw.Draw(image).rectangle((5, 2, 20, 8), fill="white")
    seen = to_opaque(image)
    assert (seen.getpixel((0, 0)), seen.getpixel((10, 5))) == ((0, 0, 0), (255, 255, 255))


def test_an_opaque_image_has_no_alpha(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), "red").save(tmp_path / "a.png")
    assert open_image(tmp_path / "a.png")[0].mode == "RGB"


@pytest.mark.parametrize(
    ("values", "seen", "note"),
    [
        (np.array([[0, 65_535], [32_896, 257]], np.uint16), [[0, 255], [128, 1]], None),
        (np.array([[0, 4_095], [2_048, 0]], np.uint16), [[0, 255], [127, 0]], "0–4095"),
        (np.array([[0, 255], [128, 7]], np.uint16), [[0, 255], [128, 7]], None),
        (np.array([[0.0, 1.0], [0.5, 0.1]], np.float32), [[0, 255], [127, 25]], None),
        (np.array([[0.0, 1.001], [0.5, 0.0]], np.float32), [[0, 255], [127, 0]], "0–1.001"),
        (np.array([[-5.0, 5.0], [0.0, 0.0]], np.float32), [[0, 255], [127, 127]], "-5–5"),
        (np.array([[0, 65_535], [32_896, 257]], np.int32), [[0, 255], [128, 1]], None),
    ],
)
def test_deep_images_are_scaled_to_8_bits(values: Any, seen: Any, note: str | None, tmp_path: Path) -> None:
    Image.fromarray(values).save(tmp_path / "a.tif")
    image, notes = open_image(tmp_path / "a.tif")
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image)[..., 0].astype(int) - seen).max() <= 1
    assert notes == ([] if note is None else [f"the brightness was stretched from {note}"])


def test_an_image_without_finite_numbers_is_refused_by_name(tmp_path: Path) -> None:
    Image.fromarray(np.array([[np.inf, 1.0]], np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(BadInputError, match=r"a\.tif cannot be read as an image: .*not finite"):
        open_image(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("name", "noted"), [("a.gif", True), ("a.tif", True), ("a.webp", True), ("a.jpg", False)]
)
def test_of_several_frames_the_first_is_used_and_said(name: str, noted: bool, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    frames[0].save(tmp_path / name, save_all=noted, **({"append_images": frames[1:]} if noted else {}))
    image, notes = open_image(tmp_path / name)
    assert notes == (["the first of 3 frames or pages was used"] if noted else [])
    assert image.getpixel((4, 4))[0] > 200  # type: ignore[index]
    if noted:
        second, notes = open_image(tmp_path / name, 1)
        assert (second.getpixel((4, 4))[1] > 100, notes) == (True, [])  # type: ignore[index]


DAMAGED = "the file is damaged or cut off, and a part of the picture is missing"


@pytest.mark.parametrize(
    ("name", "options", "head"),
    [
        ("a.jpg", {}, 615),
        ("a.jpg", {"progressive": True}, 231),
        ("a.gif", {}, 792),
        ("a.png", {}, 43),
        ("a.bmp", {}, 54),
    ],
)
def test_the_rest_of_a_cut_picture_is_read(name: str, options: Any, head: int, tmp_path: Path) -> None:
    Image.effect_noise((80, 80), 60).convert("RGB").save(path := tmp_path / name, **options)
    assert open_image(path)[1] == []
    content, mime = path.read_bytes(), detect_media_type(path)[1]
    path.write_bytes(content[: len(content) // 2])
    image, notes = open_image(path)
    assert notes == [DAMAGED]
    assert len(image.getcolors(6400) or ()) > 20
    assert Image.open(io.BytesIO(to_portable(path, mime)[0])).convert("RGB").size == (80, 80)
    path.write_bytes(content[:head])
    with pytest.raises(BadInputError, match=r"(?i)truncated|could not create decoder|cannot identify"):
        open_image(path)


def test_a_webp_picture_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    Image.effect_noise((80, 80), 60).save(path := tmp_path / "a.webp")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInputError, match="cannot be read as an image"):
        open_image(path)


def test_of_a_tiff_file_that_is_cut_off_the_whole_pages_are_read(tmp_path: Path) -> None:
    pages = [Image.effect_noise((80, 80), 60) for _ in range(3)]
    pages[0].save(path := tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    path.write_bytes(
        path.read_bytes()[: path.stat().st_size * 6 // 10]
    )  # the directory of the last is missing
    image, notes = open_image(path)
    assert image.getchannel(0).tobytes() == pages[0].tobytes()
    assert notes == [DAMAGED, "the first of 2 frames or pages was used"]


@pytest.mark.parametrize("is_deflated", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_planes_of_16_bits_are_read_whole(order: str, is_deflated: bool, tmp_path: Path) -> None:
    """Two pixels, of which first all reds are stored, then all greens and all blues."""
    parts = [struct.pack(f"{order}2H", *part) for part in ((0, 65_535), (257 * 30, 257 * 40), (65_535, 0))]
    parts = [(zlib.compress(part) if is_deflated else part).ljust(16, b"\0") for part in parts]
    lists = b"".join(parts) + struct.pack(f"{order}3H3I3I", 16, 16, 16, 8, 24, 40, 16, 16, 16)
    tags = [(256, 1, 2), (257, 1, 1), (258, 3, 56), (259, 1, 8 if is_deflated else 1), (262, 1, 2)]
    tags += [(273, 3, 62), (277, 1, 3), (278, 1, 1), (279, 3, 74), (284, 1, 2)]
    entries = b"".join(
        struct.pack(f"{order}HHII", tag, 3 if tag == 258 else 4, count, value) for tag, count, value in tags
    )
    head = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 86)
    content = head + lists + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)
    (tmp_path / "a.tif").write_bytes(content)
    image, notes = open_image(tmp_path / "a.tif")
    assert (np.asarray(image).tolist(), notes) == ([[[0, 30, 255], [255, 40, 0]]], [])
    Image.fromarray(np.array([[0, 65_535]], np.uint16)).save(tmp_path / "a.tif", tiffinfo={284: 2})
    assert np.asarray(open_image(tmp_path / "a.tif")[0]).tolist() == [[[0] * 3, [255] * 3]]


@pytest.mark.parametrize("progressive", [False, True])
def test_a_whole_jpeg_without_a_mark_of_its_end_has_no_note(progressive: bool, tmp_path: Path) -> None:
    Image.effect_noise((80, 80), 60).save(path := tmp_path / "a.jpg", progressive=progressive)
    whole = open_image(path)[0]
    path.write_bytes(path.read_bytes()[:-2])
    image, notes = open_image(path)
    assert (image.tobytes(), notes) == (whole.tobytes(), [])


def test_of_a_picture_that_is_damaged_within_the_rest_is_read(tmp_path: Path) -> None:
    Image.effect_noise((80, 80), 60).save(path := tmp_path / "a.png")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(40) + content[len(content) // 2 + 40 :])
    image, notes = open_image(path)
    assert notes == [DAMAGED]
    assert len(image.getcolors(6400) or ()) > 20


@pytest.mark.parametrize("name", ["a.ico", "a.avif"])
def test_a_damaged_picture_is_no_video(name: str, tmp_path: Path) -> None:
    Image.effect_noise((64, 64), 60).convert("RGB").save(path := tmp_path / name)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match=rf"{name} is damaged, or not"):
        detect_media_type(path)


def test_a_picture_of_which_nothing_would_be_seen_is_opaque(tmp_path: Path) -> None:
    Image.effect_noise((8, 8), 60).convert("RGB").save(tmp_path / "a.tga")
    image = Image.open(tmp_path / "a.tga")
    image.putalpha(0)
    image.save(tmp_path / "a.tga")
    assert open_image(tmp_path / "a.tga")[0].mode == "RGB"
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "nothing.png")
    assert open_image(tmp_path / "nothing.png")[0].mode == "RGBA"


def test_floats_of_16_bits_are_no_whole_numbers(tmp_path: Path) -> None:
    halves = np.array([[0.0, 1.0]], np.float16).view(np.uint16)
    Image.fromarray(halves).save(tmp_path / "a.tif", tiffinfo={339: 3})
    with pytest.raises(InputError, match="is damaged, or not a supported file type"):
        detect_media_type(tmp_path / "a.tif")


def test_a_page_that_is_not_read_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "map.tif"
    mask = Image.new("1", (60, 20))
    written(path).save(path, save_all=True, append_images=[mask])
    content = bytearray(path.read_bytes())
    kind = struct.pack("<HHI", 262, 3, 1)  # whether 0 is white; 4 stands for a mask
    content[content.rindex(kind) + len(kind)] = 4
    path.write_bytes(content)
    image, notes = open_image(path)
    assert image.size == (60, 20)
    assert notes == ["the first of 2 frames or pages was used"]


def test_deep_pictures_may_be_negatives(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 65_535]], np.uint16)).save(path := tmp_path / "a.tif")
    photometric = [struct.pack("<HHIHH", 262, 3, 1, value, 0) for value in (1, 0)]
    path.write_bytes(path.read_bytes().replace(*photometric))
    assert np.asarray(open_image(path)[0])[..., 0].tolist() == [[255, 0]]


def test_a_palette_of_tiff_may_have_8_bits(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50] + 254 * [0, 0, 0])
    image.putdata([0, 1])
    image.save(tmp_path / "a.tif")
    with Image.open(tmp_path / "a.tif") as written:
        colours = np.array(written.tag_v2[320], "<u2")  # type: ignore[attr-defined]
    content = (tmp_path / "a.tif").read_bytes()
    for name, stored in (("a", colours), ("b", colours // 256)):
        (tmp_path / f"{name}.tif").write_bytes(content.replace(colours.tobytes(), stored.tobytes()))
        assert np.array(open_image(tmp_path / f"{name}.tif")[0]).tolist() == [[[10, 20, 30], [200, 100, 50]]]


def test_pictures_that_pillow_does_not_read_are_read_by_ffmpeg(tmp_path: Path) -> None:
    """A BMP file with 4 bits a colour; and a DDS file of one block (DXT2) with two transparent rows."""
    header = struct.pack("<IiiHHIIiiII3I", 40, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0, 0xF00, 0xF0, 0xF)
    file = struct.pack("<2sIII", b"BM", 70, 0, 66)
    (tmp_path / "a.bmp").write_bytes(file + header + struct.pack("<HH", 0xF00, 0xF))
    form = struct.pack("<2I4s5I5I", 32, 4, b"DXT2", *[0] * 5, 0x1000, *[0] * 4)
    block = b"\xff" * 4 + bytes(4) + struct.pack("<HHI", 0xF800, 0, 0)
    size = struct.pack("<7I44x", 124, 0x81007, 4, 4, 16, 0, 0)
    (tmp_path / "a.dds").write_bytes(b"DDS " + size + form + block)
    assert detect_media_type(tmp_path / "a.dds") == ("image", "image/x-dds")
    image = open_image(tmp_path / "a.dds")[0]
    assert (image.mode, image.getpixel((0, 0))) == ("RGBA", (255, 0, 0, 255))
    assert image.getchannel("A").getpixel((0, 3)) == 0
    red, blue = map(open_image(tmp_path / "a.bmp")[0].getpixel, [(0, 0), (1, 0)])
    assert (red, blue) == ((240, 0, 0), (0, 0, 240))


def test_colours_of_a_profile_become_those_of_srgb(tmp_path: Path) -> None:
    lab = ImageCms.createProfile("LAB")
    cms = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), lab, "RGB", "LAB")
    red = ImageCms.applyTransform(Image.new("RGB", (4, 4), (200, 30, 30)), cms)
    assert red is not None
    red.save(tmp_path / "a.tif")
    image, _ = open_image(tmp_path / "a.tif")
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image)[0, 0].astype(int) - (200, 30, 30)).max() <= 3
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png", icc_profile=b"damaged")
    assert open_image(tmp_path / "a.png")[0].getpixel((0, 0)) == (255, 0, 0)
    Image.new("RGB", (4, 4), "red").save(tmp_path / "b.png", icc_profile=profile)
    image, _ = open_image(tmp_path / "b.png")
    assert (image.getpixel((0, 0)), image.info.get("icc_profile")) == ((255, 0, 0), None)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK"])
def test_every_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "white").convert(mode).save(tmp_path / "a.tif")
    image, notes = open_image(tmp_path / "a.tif")
    assert (image.mode, image.getpixel((0, 0)), notes) == ("RGB", (255, 255, 255), [])


def heic(path: Path) -> Path:
    """What every reader takes for HEIC by its first bytes."""
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    return path


def test_heic_without_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pi_heif", None)
    with (
        pytest.raises(BadInputError, match=r'HEIC picture needs the extra "heic"'),
        identified(heic(tmp_path / "a.jpg")),
    ):
        pass


def test_an_image_for_other_machines_is_upright_and_in_a_common_format(tmp_path: Path) -> None:
    sideways = Image.Exif()
    sideways[0x0112] = 6
    image = Image.new("RGB", (40, 20), "red")
    image.save(tmp_path / "turned.jpg", exif=sideways)
    image.save(tmp_path / "plain.jpg")
    image.save(tmp_path / "a.tif")
    assert to_portable(tmp_path / "plain.jpg", "image/jpeg")[0] == (tmp_path / "plain.jpg").read_bytes()
    for name, form, size in (("turned.jpg", "jpeg", (20, 40)), ("a.tif", "png", (40, 20))):
        content, mime = to_portable(tmp_path / name, "image/jpeg" if form == "jpeg" else "image/tiff")
        assert (Image.open(io.BytesIO(content)).size, mime) == (size, f"image/{form}")
    written(tmp_path).save(tmp_path / "a.bmp")
    written(tmp_path).save(tmp_path / "clear.png")
    notes: list[str] = []
    content, mime = to_portable(tmp_path / "clear.png", "image/png", notes=notes)
    opaque = Image.open(io.BytesIO(content))
    assert (opaque.mode, opaque.getpixel((0, 0)), mime, notes) == ("RGB", (255, 255, 255), "image/png", [])
    small, mime = to_portable(tmp_path / "plain.jpg", "image/jpeg", 10)
    assert (Image.open(io.BytesIO(small)).size, mime) == ((10, 5), "image/jpeg")


def test_later_frames_are_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [Image.new("1", size) for size in ((1, 1), (50, 50))]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert open_image(tmp_path / "a.tif", 1)[0].size == (50, 50)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2_000)
    with pytest.raises(BadInputError, match="frame 2 has 50 x 50 pixels"):
        open_image(tmp_path / "a.tif", 1)


def test_a_picture_that_is_too_large_to_be_decoded_at_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FFmpeg alone reads this format; a picture in it has to be decoded to be identified."""
    with av.open(tmp_path / "a.hdr", "w", format="image2") as made:
        stream = made.add_stream("hdr", rate=1)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "gbrpf32le"
        made.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", (32, 16), "red"))))
        made.mux(stream.encode(None))
    assert open_image(tmp_path / "a.hdr")[0].size == (32, 16)
    assert detect_media_type(tmp_path / "a.hdr")[0] == "image"
    monkeypatch.setattr(images, "_MOST_DECODED", 100)
    with pytest.raises(InputError, match="is damaged, or not a supported file type"):
        detect_media_type(tmp_path / "a.hdr")
