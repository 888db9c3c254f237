"""Small media files for tests: photo, page, tone, speech, clip and table."""

import shutil
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def make_media(folder: Path) -> dict[str, Path]:
    """Make an image of noise, a page of text, a tone, speech, a video with sound, and a table; by name."""
    import av
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    from jarvis_agent.media.recordings import write_audio

    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8))
    photo.save(folder / "photo.png")
    page = Image.new("RGB", (640, 160), "white")
    ImageDraw.Draw(page).text((20, 50), "Invoice total 42", fill="black", font=ImageFont.load_default(48))
    page.save(folder / "page.png")
    write_audio(folder / "tone.wav", np.sin(np.arange(16_000) / 9), 8_000)
    (folder / "table.csv").write_text(
        "month,sales,rain\n" + "".join(f"{n},{n * 2},{n % 3}\n" for n in range(24))
    )
    with av.open(folder / "clip.mp4", "w") as made:
        pictures, sound = made.add_stream("libx264", rate=8), made.add_stream("aac", rate=8_000)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 48, "yuv420p"
        for n in range(16):
            frame = np.full((48, 64, 3), 16 * n, np.uint8)
            made.mux(pictures.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        made.mux(pictures.encode(None))
        tone = (np.sin(np.arange(16_000) / 9) * 9000).astype(np.int16)[None]
        heard = av.AudioFrame.from_ndarray(tone, format="s16", layout="mono")
        heard.rate = 8_000
        made.mux(sound.encode(heard))
        made.mux(sound.encode(None))
    shutil.copy(EXAMPLES / "speech.wav", folder)
    names = ("photo.png", "page.png", "tone.wav", "speech.wav", "clip.mp4", "table.csv")
    return {Path(name).stem: folder / name for name in names}
