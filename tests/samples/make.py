"""Make the sample documents in ``files/``: ``python tests/samples/make.py``. Tiny, and all ours."""

import json
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

FILES = Path(__file__).parent / "files"


def main() -> None:
    FILES.mkdir(exist_ok=True)
    (FILES / "lighthouse.pdf").write_bytes(lighthouse_pdf())
    (FILES / "bread.html").write_text(BREAD, encoding="utf-8")
    (FILES / "bicycle.md").write_text(BICYCLE, encoding="utf-8")
    (FILES / "towns.csv").write_text(TOWNS, encoding="utf-8")
    (FILES / "stars.json").write_text(json.dumps(STARS, indent=2), encoding="utf-8")
    (FILES / "ferry.eml").write_bytes(ferry())
    (FILES / "plain.txt").write_text("Moss grows on the north side.\n\nMostly.\n", encoding="utf-8")
    letter(FILES / "honey.docx")
    slides(FILES / "glacier.pptx")
    sheet(FILES / "harvest.xlsx")


# --- PDF, written by hand: a handful of objects and a table of where they are -------------------


def pdf(pages: Sequence[Sequence[tuple[int, str]]], *, images: Sequence[int] = ()) -> bytes:
    """Pages of lines, each with the size of its letters; pages in ``images`` have a picture."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    image = 4 + 2 * count
    for number, lines in enumerate(pages):
        has_image = number in images
        resource = f"/XObject << /I {image} 0 R >>" if has_image else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            f"/Resources << /Font << /F 3 0 R >> {resource} >> >>".encode()
        )
        drawn = ["q 500 0 0 700 50 70 cm /I Do Q"] if has_image else []
        height = 780
        for size, line in lines:
            shown = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
            drawn.append(f"BT /F {size} Tf 60 {height} Td ({shown}) Tj ET")
            height -= int(size * 1.6)
        stream = "\n".join(drawn).encode("latin-1")
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    if images:
        objects.append(
            b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray "
            b"/BitsPerComponent 8 /Length 1 >>\nstream\n\x80\nendstream"
        )
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, table)
    return bytes(out)


def lighthouse_pdf() -> bytes:
    return pdf(
        [
            [
                (24, "Keeping a lighthouse"),
                (11, "A lighthouse needs a lamp, a lens and somebody who stays awake."),
                (11, "The Fresnel lens gathers nearly all light of the lamp into one beam."),
                (16, "Oil"),
                (11, "The tanks hold four hundred litres of colza oil, enough for a winter."),
                (11, "Fill them before the first storm of November."),
            ],
            [
                (16, "Fog"),
                (11, "In fog the light is of no use, and the horn sounds every ninety seconds."),
                (11, "Its compressor is tested on the first Monday of the month."),
            ],
        ]
    )


BREAD = """<!doctype html>
<html><head><meta charset="utf-8"><title>Sourdough bread</title>
<style>body { color: tan }</style>
<script>trackVisitor("script-text");</script></head>
<body>
<nav><a href="/">Home</a> <a href="/shop">Shop our flour</a></nav>
<main>
<h1>Sourdough bread</h1>
<p>Mix flour, water and <b>starter</b>. Let it <a href="/rest">rest overnight</a>.</p>
<h2>Starter</h2>
<ul><li>50 g rye flour</li><li>50 g water<ul><li>lukewarm</li></ul></li></ul>
<p>Feed it every day &amp; keep it at 24&nbsp;°C.</p>
<pre><code>hydration = water / flour
# 70 %% is a good start</code></pre>
<table><tr><th>Day</th><th>Flour</th></tr><tr><td>1</td><td>50 g</td></tr></table>
<script>moreScript("script-text")</script>
</main>
<footer>Copyright the bakery</footer>
</body></html>
""".replace("%%", "%")

BICYCLE = """---
title: "Repair a bicycle"
tags: [tools]
---
# Repair a bicycle

Most repairs need a spanner, tyre levers and patience.

## Flat tyre

Take the wheel off, pull the tube out and look for the hole under water.

```sh
# this is no heading
pump --pressure 4.5
```

## Brakes

Worn pads squeal. Replace them when less than two millimetres are left.

### Cables

A drop of oil where the cable enters its sleeve keeps it moving.
"""

TOWNS = """town,country,founded
Siena,Italy,"30 BC, by legend"
Bergen,Norway,1070
Évora,Portugal,
"""

STARS = {
    "title": "Bright stars",
    "stars": [
        {"name": "Sirius", "constellation": "Canis Major", "magnitude": -1.46},
        {"name": "Vega", "constellation": "Lyra", "magnitude": 0.03, "aliases": ["Alpha Lyrae"]},
    ],
}


def ferry() -> bytes:
    message = EmailMessage()
    message["From"] = "harbour@example.org"
    message["To"] = "crew@example.org"
    message["Subject"] = "Ferry timetable in winter"
    message["Date"] = "Mon, 02 Nov 2026 08:00:00 +0000"
    message.set_content("The last ferry leaves at 18:40.\n\n# bring warm clothes\n")
    message.add_attachment(b"0", maintype="application", subtype="zip", filename="times.zip")
    return message.as_bytes()


def letter(path: Path) -> None:
    from docx import Document

    document = Document()
    document.add_heading("Harvesting honey", level=1)
    document.add_paragraph("Wait until the bees have capped three quarters of the comb.")
    document.add_heading("Tools", level=2)
    document.add_paragraph("A smoker calms the hive.", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(
        (*table.rows[0].cells, *table.rows[1].cells),
        ("Month", "Kilograms", "July", "14"),
        strict=True,
    ):
        cell.text = text
    document.save(str(path))


def slides(path: Path) -> None:
    from pptx import Presentation

    presentation = Presentation()
    for title, text in (
        ("How glaciers move", "Ice slides on its own meltwater."),
        ("Crevasses", "Cracks open where the slope changes."),
    ):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    slide.notes_slide.notes_text_frame.text = "Rope up before crossing."
    presentation.save(str(path))


def sheet(path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    page = book.active
    page.title = "Apples"
    for row in (("variety", "tons"), ("Boskoop", 3.5), ("Gala", 7)):
        page.append(row)
    book.save(str(path))


if __name__ == "__main__":
    main()
