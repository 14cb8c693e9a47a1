"""Image files that never end, unpack to too much, are too large to be features, or have odd pixels."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

from fairstream.data import image_decoding, open_source

Image = pytest.importorskip("PIL.Image")

GOOD = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def folder_with(tmp_path, **files):
    for name, data in {"b_good": png(GOOD), "c_good": png(GOOD), **files}.items():
        (tmp_path / f"{name}.png").write_bytes(data)
    return tmp_path


def zip_with(tmp_path, **files):
    path = tmp_path / "images.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"b_good": png(GOOD), **files}.items():
            archive.writestr(f"{name}.png", data)
    return path


READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from fairstream.data import open_source
source = open_source(sys.argv[1], on_error="skip")
print(sum(block.n_rows for block in source), source.n_skipped, *source.skipped)
try:
    print(list(open_source(sys.argv[1])))
except ValueError as error:
    print(error)
"""


def read_elsewhere(path):
    """Read all images, skipping and raising, in a process that cannot hang for long nor fill the memory."""
    pytest.importorskip("resource")
    command = [sys.executable, "-c", READ, str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    skipping, raising = answer.stdout.splitlines()
    return skipping, raising


def make_pipe(path):
    os.mkfifo(path)


def make_endless(path):
    path.symlink_to("/dev/zero")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and devices")
@pytest.mark.parametrize("name", ["a.jpg", "z.jpg"], ids=["first", "last"])
@pytest.mark.parametrize("make", [make_pipe, make_endless], ids=["pipe", "link to a device"])
def test_only_regular_files_are_read(tmp_path, make, name):
    folder = folder_with(tmp_path)
    make(folder / name)
    skipping, raising = read_elsewhere(folder)
    assert skipping == f"2 1 {name}"
    assert f"image {name} cannot be used: it is not a regular file" in raising


def test_a_link_to_a_regular_file_is_followed(tmp_path):
    folder = folder_with(tmp_path)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.png").symlink_to(folder / "b_good.png")
    (block,) = open_source(inside)
    np.testing.assert_array_equal(block.X[0].reshape(3, 12, 10), GOOD.transpose(2, 0, 1))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_an_archive_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.zip")
    script = "import sys; from fairstream.data import open_source; open_source(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path / "a.zip")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "a.zip is not a regular file" in answer.stderr


@pytest.mark.parametrize("put", [folder_with, zip_with])
def test_a_file_larger_than_the_cap_is_refused_or_skipped(tmp_path, put):
    large = np.random.default_rng(0).bytes(5_000)
    path = put(tmp_path, a_large=large)
    with pytest.raises(ValueError, match=r"a_large\.png cannot be used: it has 5,000 bytes, more than max_b"):
        list(open_source(path, max_bytes=4_999))
    source = open_source(path, max_bytes=4_999, on_error="skip")
    assert sum(block.n_rows for block in source) >= 1
    assert source.skipped == ("a_large.png",)
    with pytest.raises(ValueError, match=r"not an image"):
        list(open_source(path, max_bytes=5_000))


def test_zeros_packed_small_are_not_unpacked(tmp_path):
    path = zip_with(tmp_path, a_bomb=bytes(30_000_000))
    with pytest.raises(ValueError, match=r"a_bomb\.png cannot be used: its .* bytes unpack to 30,000,000"):
        list(open_source(path))
    source = open_source(path, on_error="skip")
    assert (sum(block.n_rows for block in source), source.skipped) == (1, ("a_bomb.png",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "message"), [(24, "it has 4,294,967,294 bytes"), (20, "says that it takes 4,294,967,294 bytes")]
)
def test_a_directory_that_claims_gigabytes_is_refused_or_skipped(tmp_path, at, message):
    path = zip_with(tmp_path, a_liar=png(GOOD))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    assert data[entry + 46 : entry + 52] == b"a_liar"
    data[entry + at : entry + at + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(data)
    skipping, raising = read_elsewhere(path)
    assert skipping == "1 1 a_liar.png"
    assert "image a_liar.png cannot be used: " in raising
    assert message in raising


def test_a_large_first_image_does_not_set_the_number_of_features(tmp_path):
    folder = folder_with(tmp_path, a_large=png(np.zeros((1_025, 1_024), dtype=np.uint8)))
    source = open_source(folder, on_error="skip")
    assert source.n_features == GOOD.size
    assert sum(block.n_rows for block in source) == 2
    assert source.skipped == ("a_large.png",)
    message = r"a_large\.png cannot be used: it has 1025 x 1024 pixels, more than max_pixels=1,048,576 \(pass"
    with pytest.raises(ValueError, match=message):
        _ = open_source(folder).n_features


def test_large_images_can_be_read_with_a_size_or_a_higher_cap(tmp_path):
    folder = folder_with(tmp_path, a_large=png(np.zeros((1_025, 1_024), dtype=np.uint8)))
    assert sum(block.n_rows for block in open_source(folder, resize=(6, 5))) == 3
    raised = open_source(folder, names=["a_large.png"], max_pixels=1_025 * 1_024)
    assert next(iter(raised)).X.shape == (1, 3 * 1_025 * 1_024)


def test_max_bytes_is_a_whole_number(tmp_path):
    with pytest.raises(ValueError, match="max_bytes is 0: pass a whole number"):
        open_source(folder_with(tmp_path), max_bytes=0)


SIXTEEN = (np.arange(64, dtype=np.uint16) * 1_040).reshape(8, 8)


def colour_png_of_16_bits(values):
    """Pillow does not write one: three equal channels of 16 bits."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.repeat(values[:, :, None], 3, axis=2).astype(">u2")
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def saved(image, ending):
    file = io.BytesIO()
    image.save(file, ending)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["png", "tiff", "big-endian tiff", "pgm", "colour png"])
@pytest.mark.parametrize("mode", ["grey", "rgb"])
def test_sixteen_bits_are_scaled_not_clipped(kind, mode):
    data = {
        "png": lambda: saved(Image.fromarray(SIXTEEN), "png"),
        "tiff": lambda: saved(Image.fromarray(SIXTEEN), "tiff"),
        "big-endian tiff": lambda: saved(
            Image.frombytes("I;16B", (8, 8), SIXTEEN.astype(">u2").tobytes()), "tiff"
        ),
        "pgm": lambda: b"P5 8 8 65535\n" + SIXTEEN.astype(">u2").tobytes(),
        "colour png": lambda: colour_png_of_16_bits(SIXTEEN),
    }[kind]()
    pixels = image_decoding.decode(data, mode=mode, resize=None, max_pixels=64)
    assert pixels.shape == (8, 8, 3 if mode == "rgb" else 1)
    expected = np.repeat(SIXTEEN[:, :, None] >> 8, pixels.shape[2], axis=2)
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_known_range_are_refused(mode):
    values = SIXTEEN.astype(np.int32 if mode == "I" else np.float32)
    data = saved(Image.fromarray(values), "tiff")
    with pytest.raises(ValueError, match=f"its pixels have the mode '{mode}', whose range is not known"):
        image_decoding.decode(data, mode="rgb", resize=None, max_pixels=64)


def test_palettes_alpha_and_cmyk_become_rgb():
    picture = Image.fromarray(np.full((4, 4, 3), (200, 100, 50), dtype=np.uint8))
    clear = picture.convert("RGBA")
    clear.putalpha(0)
    cases = {
        "palette": saved(picture.quantize(4), "png"),
        "alpha": saved(clear, "png"),
        "CMYK": saved(picture.convert("CMYK"), "tiff"),
    }
    for name, data in cases.items():
        pixels = image_decoding.decode(data, mode="rgb", resize=None, max_pixels=16)
        np.testing.assert_allclose(pixels[0, 0], (200, 100, 50), atol=2, err_msg=name)
