"""Images of the CelebA experiment: faces (never committed); subspaces and group means for the docs."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from celeba_data import ATTRIBUTES, Faces
from PIL import Image, ImageDraw, ImageFont

LEADING = 6
GAP = 2
LABEL = 118


# What is kept of a fit --------------------------------------------------------------------------------


def chosen_faces(faces: Faces, attribute: str) -> np.ndarray:
    """Return the first validation images without the attribute, then as many with it."""
    labels = faces.labels(attribute, faces.valid)
    number = faces.plan.faces
    return np.concatenate([faces.valid[labels == group][:number] for group in (False, True)])


def keep_projections(
    faces: Faces,
    attribute: str,
    name: str,
    U: Sequence[np.ndarray],
    V: Sequence[np.ndarray],
    means: Sequence[np.ndarray],
) -> None:
    """Store the chosen faces projected to V and to U, and the leading columns of both, as planar rows."""
    pixels = faces.pixels("rgb")[chosen_faces(faces, attribute)].astype(np.float32)
    on_V, on_U = np.empty_like(pixels), np.empty_like(pixels)
    for c, channel in enumerate(faces.channels("rgb")):
        centred = pixels[:, channel] - means[c].astype(np.float32)
        on_V[:, channel] = (centred @ V[c]) @ V[c].T + means[c]
        on_U[:, channel] = (centred @ U[c]) @ U[c].T
    widest = min(u.shape[1] for u in U)
    path = projection_file(faces, attribute, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        on_V=on_V,
        on_U=on_U,
        U=np.hstack([u[:, :widest].T for u in U]).astype(np.float32),
        V=np.hstack([v[:, :LEADING].T for v in V]).astype(np.float32),
    )


def projection_file(faces: Faces, attribute: str, name: str) -> Path:
    return faces.cache / "rgb" / "projections" / attribute / f"{name}.npz"


# Grids of images --------------------------------------------------------------------------------------


def as_images(faces: Faces, rows: np.ndarray) -> list[np.ndarray]:
    """Return planar rows as height x width x 3 images; values are cut to 0..255."""
    shape = (-1, 3, *faces.shape)
    return [*np.clip(rows.reshape(shape).transpose(0, 2, 3, 1), 0, 255).astype(np.uint8)]


def around_grey(rows: np.ndarray) -> np.ndarray:
    """Show signed values: zero is mid-grey, the largest hundredth of all sizes is black or white."""
    return 127.5 + 127.5 * rows / max(float(np.quantile(np.abs(rows), 0.99)), 1e-12)


def each_around_grey(rows: np.ndarray) -> np.ndarray:
    return np.stack([around_grey(row) for row in rows])


def grid(lines: Sequence[tuple[str, Sequence[np.ndarray]]], *, gap_after: int | None = None) -> Image.Image:
    """Put labelled lines of equally large images below each other."""
    height, width = lines[0][1][0].shape[:2]
    columns = max(len(images) for _, images in lines)
    space = 5 * GAP if gap_after else 0
    sheet = Image.new("RGB", (LABEL + columns * (width + GAP) + space, len(lines) * (height + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14 if width > 100 else 12)
    for row, (label, images) in enumerate(lines):
        top = row * (height + GAP)
        draw.multiline_text((4, top + height // 2 - 12), label, fill="black", font=font)
        for column, image in enumerate(images):
            left = LABEL + column * (width + GAP) + (space if gap_after and column >= gap_after else 0)
            sheet.paste(Image.fromarray(image), (left, top))
    return sheet


def half_size(image: np.ndarray) -> np.ndarray:
    size = (image.shape[1] // 2, image.shape[0] // 2)
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX))


def draw_faces(faces: Faces, folder: Path) -> None:
    """Draw the paper's figures, original / on V / on U, and an HTML page with all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for attribute in ATTRIBUTES:
        original = faces.pixels("rgb")[chosen_faces(faces, attribute)]
        for m in sorted({*faces.plan.figure_m, *faces.plan.ablation_m}):
            lines = [("original", as_images(faces, original))]
            for solver in ("sketch", "power"):
                file = projection_file(faces, attribute, f"{solver} m={m}")
                if file.exists():
                    with np.load(file) as kept:
                        lines.append((f"{solver}, on V", as_images(faces, kept["on_V"])))
                        lines.append((f"{solver}, on U", as_images(faces, around_grey(kept["on_U"]))))
            if len(lines) > 1:
                file = folder / f"{attribute} m={m}.png"
                grid(lines, gap_after=faces.plan.faces).save(file)
                title = f"{attribute}, k = {faces.plan.k_of('rgb'):,} per channel, m = {m}"
                figures.append((title, file))
    write_contact_sheet(figures, folder / "contact_sheet.html")


def write_contact_sheet(figures: Sequence[tuple[str, Path]], path: Path) -> None:
    """Write one page that shows everything, with the images inside it."""
    parts = []
    for title, file in figures:
        data = base64.b64encode(file.read_bytes()).decode()
        alt = f"{title}: rows are original, projected to V, projected to U"
        parts.append(
            f"<figure><figcaption>{html.escape(title)}</figcaption>"
            f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}"></figure>'
        )
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>CelebA, projected</title>'
        '<meta name="viewport" content="width=device-width">'
        "<style>body{font:16px sans-serif;margin:1.5rem}figure{margin:0 0 2rem;overflow-x:auto}"
        "figcaption{font-weight:600;margin-bottom:.4rem}</style></head><body><h1>CelebA, projected</h1>"
        "<p>Validation faces: left half without the attribute, right half with it. U is shown about mid-grey."
        f"</p>{''.join(parts)}</body></html>\n"
    )


# For the docs: no single face -------------------------------------------------------------------------


def draw_subspaces(faces: Faces, folder: Path) -> list[str]:
    """Draw, per attribute, the group means, their difference, and the leading columns of U and V."""
    from celeba_fits import sketch

    drawn = []
    moments = None
    for attribute in ATTRIBUTES:
        file = projection_file(faces, attribute, f"sketch m={max(faces.plan.figure_m)}")
        if not file.exists():
            continue
        moments = moments or sketch(faces, "rgb", ATTRIBUTES, "three")
        without, having = (
            np.concatenate([summary.mean(attribute, group) for summary in moments]) for group in (False, True)
        )
        with np.load(file) as kept:
            U, V = kept["U"], kept["V"]
        means = as_images(faces, np.stack([without, having]))
        means += as_images(faces, each_around_grey(having[None] - without))
        lines = [
            ("means: without,\nwith, difference", means),
            ("U: mean gap, then\nsecond moments", as_images(faces, each_around_grey(U))[:LEADING]),
            ("V, leading", as_images(faces, each_around_grey(V))),
        ]
        name = f"celeba-subspaces-{attribute.lower()}.png"
        grid([(label, [half_size(image) for image in images]) for label, images in lines]).save(
            folder / name, optimize=True
        )
        drawn.append(name)
    return drawn
