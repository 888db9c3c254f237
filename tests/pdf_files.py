"""PDF files with text, for tests and benchmarks."""

import ctypes
from pathlib import Path

from pypdfium2 import PdfDocument, raw


def write_pdf(path: Path, *pages: str) -> Path:
    """Write a PDF file with the lines of each page."""
    document = PdfDocument.new()
    for lines in pages:
        page = document.new_page(612, 792)
        for number, line in enumerate(lines.splitlines()):
            text = raw.FPDFPageObj_NewTextObj(document, b"Helvetica", 12)
            raw.FPDFText_SetText(text, (ctypes.c_ushort * (len(line) + 1))(*map(ord, line)))
            raw.FPDFPageObj_Transform(text, 1, 0, 0, 1, 72, 720 - 15 * number)
            raw.FPDFPage_InsertObject(page, text)
        page.gen_content()
    document.save(path)
    return path
