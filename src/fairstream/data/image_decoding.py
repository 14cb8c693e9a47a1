"""Decodes image bytes to uint8 pixels: size first, then simplejpeg for JPEG and Pillow for the rest."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.errors import missing_extra

try:
    import simplejpeg
except ImportError:
    simplejpeg = None
try:
    from PIL import Image
except ImportError:
    Image = None  # type: ignore[assignment]

CHANNELS = {"rgb": 3, "grey": 1}
_EIGHT_BITS = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
Pixels = NDArray[np.uint8]


def decode(data: bytes, *, mode: str, resize: tuple[int, int] | None, max_pixels: int) -> Pixels:
    """Return the pixels as (height, width, channels).

    The size is read from the header and checked against `max_pixels` before anything is decoded. Grey is
    the luma of ITU-R 601. `resize` is (height, width), bilinear with antialiasing (Pillow).
    Of 16 bits per channel the upper 8 are kept. Palettes and CMYK become RGB, an alpha channel is dropped.
    Pixels of 32 bits are refused, since their range is unknown. Orientation tags are ignored.
    """
    (height, width), colours, opened = _header(data)
    check_pixels(height, width, max_pixels)
    if colours in ("YCbCr", "Gray", "RGB"):
        pixels = simplejpeg.decode_jpeg(data, colorspace="RGB" if mode == "rgb" else "GRAY")
    else:
        pixels = _decode_with_pillow(opened or _open(data), mode)
    if resize is not None and pixels.shape[:2] != resize:
        pixels = _resized(pixels, resize)
    return pixels


def size_of(data: bytes) -> tuple[int, int]:
    """Return (height, width) from the header."""
    return _header(data)[0]


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Refuse an image with too many pixels."""
    if height * width > max_pixels:
        raise ValueError(
            f"it has {height} x {width} pixels, more than max_pixels={max_pixels:,} "
            "(pass resize=(height, width), or a larger max_pixels)"
        )


def _header(data: bytes) -> tuple[tuple[int, int], str | None, Any]:
    """Return (height, width), and either the colour space of a JPEG or the image as Pillow opened it."""
    if data[:3] == b"\xff\xd8\xff" and simplejpeg is not None:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        return (height, width), colours, None
    opened = _open(data)
    width, height = opened.size
    return (height, width), None, opened


def _open(data: bytes) -> Any:
    if Image is None:
        raise missing_extra("Pillow", "images", "decoding images other than JPEG")
    try:
        return Image.open(io.BytesIO(data))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None
    except OSError:
        raise ValueError("it is not an image that can be decoded") from None


def _decode_with_pillow(opened: Any, mode: str) -> Pixels:
    wanted = "RGB" if mode == "rgb" else "L"
    try:
        # A JPEG decoded to "L" directly is its luma plane, the same that simplejpeg returns.
        opened.draft(wanted, opened.size)
        image = _eight_bits(opened)
        pixels = np.asarray(image if image.mode == wanted else image.convert(wanted))
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _eight_bits(opened: Any) -> Any:
    """Return an image of 8 bits per channel, which Pillow converts without clipping."""
    if opened.mode in _EIGHT_BITS:
        return opened
    # Pillow reads grey PNG and PNM of 16 bits into 32, with the range that 16 bits have.
    if opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format in ("PNG", "PPM")):
        values = np.asarray(opened).astype(np.uint16)
        return Image.fromarray((values >> 8).astype(np.uint8))
    raise ValueError(
        f"its pixels have the mode {opened.mode!r}, whose range is not known: store them with 8 bits per "
        "channel"
    )


def _resized(pixels: Pixels, resize: tuple[int, int]) -> Pixels:
    if Image is None:
        raise missing_extra("Pillow", "images", "resizing images")
    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    height, width = resize
    small = np.asarray(Image.fromarray(flat).resize((width, height), Image.Resampling.BILINEAR))
    return small if small.ndim == 3 else small[:, :, None]
