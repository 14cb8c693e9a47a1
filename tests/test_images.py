"""The image source: folder and zip, labels, layout, decoders, faults; genuine CelebA where it is on disk."""

from __future__ import annotations

import io
import os
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fairstream.data import image_decoding, images, open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract, assert_same_rows

Image = pytest.importorskip("PIL.Image")
simplejpeg = pytest.importorskip("simplejpeg")

N, HEIGHT, WIDTH = 45, 40, 30
RNG = np.random.default_rng(4)
PIXELS = RNG.integers(0, 256, (N, HEIGHT, WIDTH, 3), dtype=np.uint8)
NAMES = [f"{i:03}.png" for i in range(N)]
GLASSES = RNG.integers(0, 2, N).astype(bool)
YOUNG = RNG.integers(0, 2, N).astype(bool)
PLANAR = PIXELS.transpose(0, 3, 1, 2).reshape(N, -1)


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def smooth(height=HEIGHT, width=WIDTH):
    """Pixels that survive JPEG: a colour gradient."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 5, x * 5, y * 2 + x * 2], axis=2).astype(np.uint8)


FILES = {name: png(pixels) for name, pixels in zip(NAMES, PIXELS, strict=True)}


def write_folder(folder, files=FILES):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_zip(path, files=FILES, method=zipfile.ZIP_STORED, inside="faces/"):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(inside + name, data)
        archive.writestr("readme.txt", "not an image")
        archive.writestr("__MACOSX/._000.png", "not an image either")
    return path


def write_celeba(path, names=NAMES, columns=None):
    columns = columns or {"Eyeglasses": GLASSES, "Young": YOUNG}
    lines = [str(len(names)), " ".join(columns) + " "]
    for i, name in enumerate(names):
        lines.append(name + "".join(f" {1 if column[i] else -1:2d}" for column in columns.values()))
    path.write_text("\n".join(lines) + "\n")
    return path


class ImageContract(SourceContract):
    @pytest.fixture
    def expected(self):
        return Block(PLANAR, encode_groups({"Eyeglasses": GLASSES}, N))

    @pytest.fixture
    def reopen(self, tmp_path):
        data = self.data(tmp_path)
        table = write_celeba(tmp_path / "list_attr.txt")
        return lambda size: open_source(
            data, attributes=table, sensitive_features=["Eyeglasses"], block_size=size
        )


class TestFolder(ImageContract):
    def data(self, tmp_path):
        return write_folder(tmp_path / "faces")


class TestZip(ImageContract):
    header_bytes = 10_000  # the archive's directory

    def data(self, tmp_path):
        return write_zip(tmp_path / "faces.zip")


class TestDeflatedZip(TestZip):
    def data(self, tmp_path):
        return write_zip(tmp_path / "faces.zip", method=zipfile.ZIP_DEFLATED)


class TestManyWorkers(TestZip):
    @pytest.fixture
    def reopen(self, tmp_path):
        data = self.data(tmp_path)
        return lambda size: open_source(
            data,
            names=NAMES,
            sensitive_features={"Eyeglasses": GLASSES},
            workers=7,
            prefetch=3,
            block_size=size,
        )


def test_layout_is_one_channel_after_the_other(tmp_path):
    source = open_source(write_folder(tmp_path))
    assert source.image_shape == (HEIGHT, WIDTH)
    (block,) = source
    assert block.X.dtype == np.uint8
    assert block.X.flags.c_contiguous
    for channel, columns in enumerate(source.channel_slices):
        np.testing.assert_array_equal(block.X[:, columns].reshape(N, HEIGHT, WIDTH), PIXELS[:, :, :, channel])


def test_grey_is_the_luma(tmp_path):
    source = open_source(write_folder(tmp_path), mode="grey")
    (block,) = source
    assert block.X.shape == (N, HEIGHT * WIDTH)
    assert source.channel_slices == (slice(0, HEIGHT * WIDTH),)
    luma = PIXELS @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(block.X, luma.reshape(N, -1), atol=1)


@pytest.mark.parametrize("mode", ["rgb", "grey"])
def test_both_decoders_agree_on_jpeg(mode, monkeypatch):
    data = simplejpeg.encode_jpeg(smooth(), quality=95)
    fast = image_decoding.decode(data, mode=mode, resize=None, max_pixels=10**6)
    monkeypatch.setattr(image_decoding, "simplejpeg", None)
    slow = image_decoding.decode(data, mode=mode, resize=None, max_pixels=10**6)
    assert fast.shape == slow.shape
    np.testing.assert_allclose(fast.astype(int), slow.astype(int), atol=4)
    assert image_decoding.size_of(data) == (HEIGHT, WIDTH)


def test_other_kinds_of_pixels_become_rgb_or_grey(tmp_path):
    picture = Image.fromarray(smooth())
    for mode, ending in [
        ("L", "png"),
        ("P", "gif"),
        ("RGBA", "png"),
        ("CMYK", "jpg"),
        ("L", "jpg"),
        ("1", "png"),
    ]:
        file = io.BytesIO()
        picture.convert(mode).save(file, {"jpg": "jpeg"}.get(ending, ending))
        for wanted, channels in (("rgb", 3), ("grey", 1)):
            pixels = image_decoding.decode(file.getvalue(), mode=wanted, resize=None, max_pixels=10**6)
            assert pixels.shape == (HEIGHT, WIDTH, channels)
            assert pixels.dtype == np.uint8


def test_resize_brings_all_to_one_size(tmp_path):
    files = {
        "a.png": png(smooth(80, 60)),
        "b.jpg": simplejpeg.encode_jpeg(smooth()),
        "c.png": png(smooth(20, 15)),
    }
    folder = write_folder(tmp_path / "mixed", files)
    for mode, channels in (("rgb", 3), ("grey", 1)):
        source = open_source(folder, resize=(20, 15), mode=mode)
        assert source.n_features == channels * 300
        (block,) = source
        assert block.X.shape == (3, channels * 300)
    np.testing.assert_array_equal(
        next(iter(open_source(folder, resize=(20, 15)))).X[2], smooth(20, 15).transpose(2, 0, 1).ravel()
    )
    with pytest.raises(
        ValueError, match=r"b.jpg cannot be used: it is 40 x 30, the first is 80 x 60 \(pass resize"
    ):
        list(open_source(folder))


@pytest.mark.parametrize("form", ["csv", "parquet", "frame", "named"])
def test_attribute_tables_of_any_form(tmp_path, form):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"image": NAMES, "glasses": GLASSES, "hair": ["red", None, "brown"] * 15})
    options = {}
    if form == "csv":
        frame.to_csv(tmp_path / "table.csv", index=False)
        attributes = tmp_path / "table.csv"
    elif form == "parquet":
        frame.to_parquet(tmp_path / "table.parquet")
        attributes = str(tmp_path / "table.parquet")
    else:
        attributes = frame
    if form == "named":
        attributes, options = frame[["hair", "glasses", "image"]], {"name_column": "image"}
    path = write_zip(tmp_path / "faces.zip")
    source = open_source(path, attributes=attributes, sensitive_features=["hair", "glasses"], **options)
    groups = encode_groups({"hair": frame["hair"], "glasses": GLASSES}, N)
    assert_same_rows(source, Block(PLANAR, groups))


def test_rows_without_an_image_are_left_out_and_counted(tmp_path):
    path = write_zip(tmp_path / "faces.zip", {name: FILES[name] for name in NAMES[5:]})
    table = write_celeba(tmp_path / "list_attr.txt", names=NAMES[:40])
    source = open_source(path, attributes=table, sensitive_features=["Young"])
    assert source.n_without_image == 5
    assert source.n_rows == 35
    assert_same_rows(source, Block(PLANAR[5:40], encode_groups({"Young": YOUNG[5:40]}, 35)))


def test_names_choose_images_and_their_order(tmp_path):
    path = write_zip(tmp_path / "faces.zip")
    table = write_celeba(tmp_path / "list_attr.txt")
    order = [7, 3, 44]
    source = open_source(
        path, names=[NAMES[i] for i in order], attributes=table, sensitive_features=["Young"]
    )
    assert source.names == tuple(f"faces/{NAMES[i]}" for i in order)
    assert_same_rows(source, Block(PLANAR[order], encode_groups({"Young": YOUNG[order]}, 3)))


def broken_files():
    jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(PIXELS[0]), quality=95)
    picture = png(PIXELS[0])
    return {
        "a.jpg": jpeg,
        "b.jpg": jpeg[: len(jpeg) // 2],
        "c.jpg": jpeg,
        "d.jpg": b"not a picture",
        "e.png": picture[: len(picture) // 2],
        "f.jpg": b"",
        "g.jpg": jpeg,
    }


@pytest.mark.parametrize("block_size", [1, 3, None])
def test_broken_images_raise_with_their_name_or_are_skipped_and_counted(tmp_path, block_size):
    folder = write_folder(tmp_path, broken_files())
    with pytest.raises(ValueError, match=r"image b.jpg cannot be used: .*on_error") as error:
        list(open_source(folder, block_size=block_size))
    assert "\n" not in str(error.value)
    labels = {"s": np.arange(7)}
    source = open_source(
        folder, on_error="skip", sensitive_features=labels, names=list(broken_files()), block_size=block_size
    )
    assert source.n_rows is None
    for _ in range(2):
        blocks = list(source)
        assert [block.n_rows for block in blocks] == ([1, 1, 1] if block_size == 1 else [3])
        assert [label for block in blocks for label in block.groups["s"].decode()] == [0, 2, 6]
        assert source.skipped == ("b.jpg", "d.jpg", "e.png", "f.jpg")
        assert source.n_skipped == 4
        assert source.n_rows == 3


def test_a_broken_first_image_is_skipped_too(tmp_path):
    files = {"a.jpg": b"no", "b.png": png(smooth())}
    source = open_source(write_folder(tmp_path, files), on_error="skip")
    assert source.n_features == 3 * HEIGHT * WIDTH
    assert sum(block.n_rows for block in source) == 1
    with pytest.raises(ValueError, match=r"a\.jpg cannot be used"):
        open_source(tmp_path).n_features
    with pytest.raises(ValueError, match="not one of 1 images"):
        open_source(tmp_path, names=["a.jpg"], on_error="skip").n_features


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_large_images_are_refused_before_decoding(tmp_path, ending, monkeypatch):
    data = simplejpeg.encode_jpeg(smooth()) if ending == "jpg" else png(smooth())
    folder = write_folder(tmp_path, {f"a.{ending}": data})

    def never(*args, **kwargs):
        raise AssertionError("decoded")

    monkeypatch.setattr(simplejpeg, "decode_jpeg", never)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", never)
    with pytest.raises(ValueError, match="40 x 30 pixels, more than max_pixels"):
        list(open_source(folder, max_pixels=1_199))
    # The control: an image at the cap is decoded.
    with pytest.raises(AssertionError, match="decoded"):
        list(open_source(folder, max_pixels=1_200))


def test_a_huge_header_costs_no_memory(tmp_path):
    data = bytearray(simplejpeg.encode_jpeg(smooth()))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"  # 65,500 x 65,500 pixels
    folder = write_folder(tmp_path, {"a.jpg": bytes(data)})
    with pytest.raises(ValueError, match="65500 x 65500 pixels"):
        list(open_source(folder, resize=(4, 4)))


def test_a_damaged_archive_member_is_named(tmp_path):
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = write_zip(tmp_path / "faces.zip", method=method)
        data = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            offset = archive.getinfo("faces/020.png").header_offset
        data[offset + 300] ^= 0xFF
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"faces/020\.png cannot be used: it"):
            list(open_source(path))
        assert sum(block.n_rows for block in open_source(path, on_error="skip")) == N - 1


def test_memory_is_bounded_while_the_reader_is_slow(tmp_path, monkeypatch):
    """Never more than prefetch + 1 blocks are decoded ahead of the reader."""
    decoded = []
    lock = threading.Lock()
    source = open_source(write_folder(tmp_path), block_size=1, workers=2, prefetch=2)

    def counting(data, **how):
        with lock:
            decoded.append(data)
        return image_decoding.decode(data, **how)

    monkeypatch.setattr(images, "decode", counting)
    for taken, _ in enumerate(source, start=1):
        time.sleep(0.002)
        assert len(decoded) <= taken + 2
    assert len(decoded) == N


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "bgr"}, "mode is 'bgr'"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
        ({"resize": 20}, r"pass \(height, width\)"),
        ({"resize": (0, 3)}, r"pass \(height, width\)"),
        ({"workers": 0}, "workers is 0"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"max_pixels": "many"}, "max_pixels is 'many'"),
        ({"sensitive_features": ["Young"]}, "attributes="),
        ({"attributes": "none.txt", "sensitive_features": ["Young"]}, "does not exist"),
        ({"attributes": "", "sensitive_features": ["Young"]}, "attributes is an empty path"),
        ({"attributes": "TABLE"}, "name the columns"),
        ({"attributes": "TABLE", "sensitive_features": ["Old"]}, "sensitive_features names 'Old'"),
        (
            {"attributes": "TABLE", "sensitive_features": ["Young"], "name_column": "a"},
            "name_column does not apply",
        ),
        ({"name_column": "a"}, "name_column does not apply"),
        ({"names": ["nobody.jpg"]}, "names lists 'nobody.jpg'"),
        ({"names": NAMES, "sensitive_features": GLASSES[:4]}, "4 rows"),
        ({"features": [0]}, "features does not apply to images"),
        ({"standardize": True}, "standardize does not apply to images"),
    ],
)
def test_refusals_name_the_way_out(tmp_path, options, message):
    folder = write_folder(tmp_path / "faces")
    if options.get("attributes") == "TABLE":
        options = options | {"attributes": write_celeba(tmp_path / "list_attr.txt")}
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        open_source(folder, **options)
    assert "\n" not in str(error.value)


def test_bad_tables_and_archives_are_refused(tmp_path):
    folder = write_folder(tmp_path / "faces")
    table = tmp_path / "list_attr.txt"
    good = write_celeba(table).read_text()
    for text, message in [
        ("name,glasses\n", "not in the CelebA format"),
        (good.replace("45\n", "46\n", 1), "says 46 images and lists 45"),
        (good.replace("003.png", "003.png 1"), "line 6 is not an image name and 2 values of 1 or -1"),
        (good.replace(" -1", "  0"), "line .* is not an image name and 2 values of 1 or -1"),
        (good.replace("003.png", "004.png"), "two rows for one image"),
        (good.replace(".png", ".jpg"), "no image of"),
    ]:
        table.write_text(text)
        with pytest.raises(ValueError, match=message):
            open_source(folder, attributes=table, sensitive_features=["Eyeglasses", "Young"])
    (tmp_path / "a.zip").write_text("no archive")
    with pytest.raises(ValueError, match="not a zip archive"):
        open_source(tmp_path / "a.zip")
    with pytest.raises(ValueError, match="holds no image"):
        open_source(write_zip(tmp_path / "b.zip", {}))


def celeba_folder():
    root = Path(os.environ.get("FAIRSTREAM_DATA", Path(__file__).parents[2] / "shared" / "data")) / "celeba"
    if not (root / "img_align_celeba.zip").exists():
        pytest.skip("CelebA is not on this machine: set FAIRSTREAM_DATA")
    return root


def test_genuine_celeba():
    root = celeba_folder()
    archive = root / "img_align_celeba.zip"
    source = open_source(
        archive,
        attributes=root / "list_attr_celeba.txt",
        sensitive_features=["Eyeglasses", "Male"],
        block_size=200,
    )
    assert source.image_shape == (218, 178)
    assert source.n_rows + source.n_without_image == 202_599
    block = next(iter(source))
    assert block.X.shape == (200, 3 * 218 * 178)
    assert block.groups["Eyeglasses"].labels == (False, True)
    with zipfile.ZipFile(archive) as members:
        for row in (0, 17, 199):
            pixels = np.asarray(Image.open(io.BytesIO(members.read(source.names[row]))))
            found = block.X[row].reshape(3, 218, 178).transpose(1, 2, 0)
            assert np.abs(found.astype(int) - pixels).max() <= 4
    from fairstream.datasets import CelebA

    chosen = CelebA(root).select(partition="valid", attributes=["Male"])
    valid = open_source(
        chosen.images, names=chosen.members, sensitive_features=chosen.groups, mode="grey", resize=(54, 44)
    )
    assert valid.n_rows == len(chosen)
    assert next(iter(valid)).X.shape[1] == 54 * 44
    lines = (root / "list_attr_celeba.txt").read_text().splitlines()
    column = lines[1].split().index("Male") + 1
    by_name = {line.split()[0]: line.split()[column] == "1" for line in lines[2:20_000]}
    checked = [i for i, name in enumerate(source.names[:200]) if Path(name).name in by_name]
    assert len(checked) > 100
    labels = block.groups["Male"].decode()
    assert all(labels[i] == by_name[Path(source.names[i]).name] for i in checked)
