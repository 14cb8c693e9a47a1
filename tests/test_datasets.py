"""The embedded tables, the paper's splits of them, and the CelebA index."""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import narwhals.stable.v1 as nw
import numpy as np
import pytest

from fairstream.datasets import CelebA, load_adult, load_compas, load_german, paper_split, splits
from fairstream.datasets.tables import read_table

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("FAIRSTREAM_DATA", ROOT.parent / "shared" / "data"))
NAMES = ("adult", "compas", "german")
LOADERS = {"adult": load_adult, "compas": load_compas, "german": load_german}

# %Var of the paper's appendix tables, mean and population standard deviation over the ten splits.
PAPER_CELLS = {
    ("adult", "pca", 2): (6.88, 0.14),
    ("adult", "pca", 10): (20.82, 0.38),
    ("adult", "mean", 2): (5.74, 0.11),
    ("adult", "mean", 10): (18.84, 0.35),
    ("compas", "pca", 2): (2.09, 0.11),
    ("compas", "pca", 10): (5.85, 0.36),
    ("compas", "mean", 2): (1.97, 0.10),
    ("compas", "mean", 10): (5.67, 0.37),
    ("german", "pca", 2): (11.13, 0.32),
    ("german", "pca", 10): (38.19, 0.85),
    ("german", "mean", 2): (10.39, 0.62),
    ("german", "mean", 10): (35.72, 0.83),
}


def measure(name: str) -> dict[str, np.ndarray]:
    """What the paper prints about a data set, split by split."""
    rows: list[dict[str, float]] = []
    for split in (paper_split(name, number) for number in range(10)):
        train, test = (np.cov(X, rowvar=False) for X in (split.X_train, split.X_test))
        inside = split.groups_train == 1
        gap = split.X_train[inside].mean(axis=0) - split.X_train[~inside].mean(axis=0)
        gap /= np.linalg.norm(gap)
        away = np.eye(len(gap)) - np.outer(gap, gap)
        row = {"rank": np.linalg.matrix_rank(train), "constant": np.sum(np.ptp(split.X_train, axis=0) == 0)}
        row["majority"] = 100 * max(split.y_test.mean(), 1 - split.y_test.mean())
        for method, S in (("pca", train), ("mean", away @ train @ away)):
            vectors = np.linalg.eigh(S)[1][:, ::-1]
            for k in (2, 10):
                V = vectors[:, :k]
                row[f"{method} {k}"] = 100 * np.sum((V.T @ test) * V.T) / np.trace(test)
        rows.append(row)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


measured = cache(measure)


def cell(values: np.ndarray) -> tuple[float, float]:
    return round(float(values.mean()), 2), round(float(values.std()), 2)


class TestPaperSplit:
    @pytest.mark.parametrize(("name", "method", "k"), PAPER_CELLS)
    def test_reproduces_the_printed_explained_variance(self, name, method, k):
        assert cell(measured(name)[f"{method} {k}"]) == PAPER_CELLS[name, method, k]

    @pytest.mark.parametrize(
        ("name", "majority", "rank", "constant"),
        [
            ("adult", (75.33, 0.19), (93, 94), (0, 1)),
            ("compas", (54.81, 1.04), (331, 350), (48, 67)),
            ("german", (69.97, 1.93), (46, 46), (0, 0)),
        ],
    )
    def test_majority_rate_rank_and_constant_columns(self, name, majority, rank, constant):
        facts = measured(name)
        assert cell(facts["majority"]) == majority
        assert (facts["rank"].min(), facts["rank"].max()) == rank
        assert (facts["constant"].min(), facts["constant"].max()) == constant

    @pytest.mark.parametrize(
        ("name", "n_train", "n_test", "d", "share_train", "share_test"),
        [
            ("adult", 31_655, 13_567, 102, 0.675, 0.675),
            ("compas", 4_316, 1_851, 402, 0.343, 0.334),
            ("german", 700, 300, 59, 0.839, 0.880),
        ],
    )
    def test_sizes_and_group_shares(self, name, n_train, n_test, d, share_train, share_test):
        split = paper_split(name, 0)
        assert split.X_train.shape == (n_train, d)
        assert split.X_test.shape == (n_test, d)
        assert len(split.y_train) == len(split.groups_train) == n_train
        assert len(split.y_test) == len(split.groups_test) == n_test
        assert len(set(split.feature_names)) == d
        assert round(split.groups_train.mean(), 3) == share_train
        assert round(split.groups_test.mean(), 3) == share_test
        assert split.X_train.flags.c_contiguous
        assert split.X_train.dtype == np.float64

    @pytest.mark.parametrize("name", NAMES)
    def test_is_standardised_by_the_training_part_only(self, name):
        split = paper_split(name, 3)
        scale = split.X_train.std(axis=0)
        np.testing.assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-11)
        np.testing.assert_allclose(scale[scale > 0], 1, atol=1e-11)
        assert np.abs(split.X_test.mean(axis=0)).max() > 1e-3

    @pytest.mark.parametrize(("name", "sensitive"), [("adult", "sex"), ("compas", "race"), ("german", "age")])
    def test_sensitive_column_stays_inside_the_features(self, name, sensitive):
        split = paper_split(name, 1)
        column = split.X_test[:, split.feature_names.index(sensitive)]
        assert np.unique(column).size == 2
        np.testing.assert_array_equal(column > column.mean(), split.groups_test == 1)

    @pytest.mark.parametrize("name", NAMES)
    def test_same_columns_in_the_same_order_as_pandas_dummies(self, name):
        expected = dummies_by_pandas(name)
        split = paper_split(name, 7)
        assert split.feature_names == tuple(expected.columns)
        raw = expected.to_numpy(dtype=np.float64)
        np.random.seed(7)  # noqa: NPY002, the paper's generator
        order = np.random.permutation(len(raw))  # noqa: NPY002
        train, test = raw[order[: int(0.7 * len(raw))]], raw[order[int(0.7 * len(raw)) :]]
        scale = np.where(train.std(axis=0) == 0, 1, train.std(axis=0))
        np.testing.assert_allclose(split.X_train, (train - train.mean(axis=0)) / scale, atol=1e-12)
        np.testing.assert_allclose(split.X_test, (test - train.mean(axis=0)) / scale, atol=1e-12)

    def test_every_call_returns_its_own_arrays(self):
        first = paper_split("german", 0)
        kept = first.X_train.copy()
        first.X_train[:] = 0
        np.testing.assert_array_equal(paper_split("german", 0).X_train, kept)

    def test_splits_differ(self):
        assert not np.array_equal(paper_split("german", 0).y_test, paper_split("german", 1).y_test)

    def test_unknown_name_and_split_are_refused(self):
        with pytest.raises(ValueError, match="name is 'iris': choose one of 'adult', 'compas', 'german'"):
            paper_split("iris", 0)
        for split in (10, -1, True, 1.0, "0"):
            with pytest.raises(ValueError, match="the paper has splits 0 to 9"):
                paper_split("german", split)


class TestOtherRecipesMissTheCells:
    """Controls: the printed digits tell the right recipe from its nearest neighbours."""

    def cells(self, name):
        facts = measure(name)
        return {key: cell(facts[f"{key[1]} {key[2]}"]) for key in PAPER_CELLS if key[0] == name}

    def paper(self, name):
        return {key: value for key, value in PAPER_CELLS.items() if key[0] == name}

    def test_right_recipe_hits_them_by_the_same_road(self):
        assert self.cells("german") == self.paper("german")

    def test_modern_generator(self, monkeypatch):
        modern = lambda seed: np.random.Generator(np.random.PCG64(seed))  # noqa: E731
        monkeypatch.setattr(np.random, "RandomState", modern)
        assert self.cells("german") != self.paper("german")

    def test_older_than_25_instead_of_25_or_older(self, monkeypatch):
        older = replace(splits._RECIPES["german"], in_group=lambda table: table["age"] > 25)
        monkeypatch.setitem(splits._RECIPES, "german", older)
        assert self.cells("german") != self.paper("german")

    def test_adult_training_part_in_front(self, monkeypatch):
        in_front = replace(splits._RECIPES["adult"], rows=lambda table: np.arange(len(table["age"])))
        monkeypatch.setitem(splits._RECIPES, "adult", in_front)
        splits._rows_used.cache_clear()
        try:
            assert self.cells("adult") != self.paper("adult")
        finally:
            splits._rows_used.cache_clear()

    def test_compas_without_charge_descriptions(self, monkeypatch):
        recipe = splits._RECIPES["compas"]
        shorter = replace(recipe, columns=recipe.columns[:-1])
        monkeypatch.setitem(splits._RECIPES, "compas", shorter)
        assert paper_split("compas", 0).X_train.shape[1] == 13
        assert self.cells("compas") != self.paper("compas")


def embedded_csv(name: str) -> bytes:
    return gzip.decompress((files("fairstream.datasets") / "data" / f"{name}.csv.gz").read_bytes())


def dummies_by_pandas(name):
    """The features before standardisation, made by pandas alone from the embedded file."""
    pd = pytest.importorskip("pandas")
    table = pd.read_csv(io.BytesIO(embedded_csv(name)))
    if name == "adult":
        table = pd.concat([table[32_561:], table[:32_561]]).drop(columns=["fnlwgt", "income"]).dropna()
        table["sex"] = (table["sex"] == "Male").astype(float)
    elif name == "compas":
        table = table[table["days_b_screening_arrest"].between(-30, 30) & (table["is_recid"] != -1)]
        keep = "sex age age_cat race juv_fel_count juv_misd_count juv_other_count priors_count"
        table = table[[*keep.split(), "c_charge_degree", "c_charge_desc"]].dropna()
        table["race"] = (table["race"] == "Caucasian").astype(float)
    else:
        table["sex"] = table["personal_status"].map(lambda code: "female" if code in "A92 A95" else "male")
        table = table.drop(columns=["personal_status", "credit"])
        table["age"] = (table["age"] >= 25).astype(float)
    return pd.get_dummies(table, prefix_sep="=", dtype=float)


class TestLoaders:
    @pytest.mark.parametrize(
        ("name", "n_rows", "n_columns", "target"),
        [
            ("adult", 48_842, 15, "income"),
            ("compas", 6_172, 17, "two_year_recid"),
            ("german", 1_000, 22, "credit"),
        ],
    )
    def test_sizes_and_target(self, name, n_rows, n_columns, target):
        table = LOADERS[name](backend="numpy")
        assert {len(column) for column in table.values()} == {n_rows}
        assert len(table) == n_columns
        assert list(table)[-1] == target
        assert len(set(table[target].tolist())) == 2

    @pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
    @pytest.mark.parametrize("name", NAMES)
    def test_every_backend_holds_the_same_table(self, name, backend):
        pytest.importorskip(backend)
        expected = LOADERS[name](backend="numpy")
        frame = nw.from_native(LOADERS[name](backend=backend), eager_only=True)
        assert backend in str(frame.implementation).lower()
        assert frame.columns == list(expected)
        for column, values in expected.items():
            if values.dtype == object:
                missing = np.array([value is None for value in values])
                assert frame[column].is_null().to_numpy().tolist() == missing.tolist()
                assert np.array_equal(frame[column].drop_nulls().to_numpy().astype(object), values[~missing])
            else:
                np.testing.assert_array_equal(frame[column].to_numpy(), values)

    @pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
    def test_missing_numbers_are_null(self, backend):
        pytest.importorskip(backend)
        native = load_compas(backend=backend, propublica_filter=False)
        days = nw.from_native(native, eager_only=True)["days_b_screening_arrest"]
        assert days.null_count() == 307

    def test_pandas_is_the_default(self):
        pd = pytest.importorskip("pandas")
        assert isinstance(load_german(), pd.DataFrame)

    def test_missing_values_are_kept_or_dropped(self):
        kept, dropped = (load_adult(backend="numpy", drop_missing=drop) for drop in (False, True))
        assert sum(value is None for column in kept.values() for value in column.tolist()) == 6_465
        assert len(dropped["age"]) == 48_842 - 3_620
        assert not any(value is None for column in dropped.values() for value in column.tolist())
        assert len(load_compas(backend="numpy", drop_missing=True)["age"]) == 6_167

    def test_compas_without_the_filter_has_every_published_row(self):
        assert len(load_compas(backend="numpy", propublica_filter=False)["age"]) == 7_214

    def test_compas_names_nobody(self):
        assert not {"name", "first", "last", "dob", "id", "c_case_number"} & set(read_table("compas"))

    def test_german_codes_are_spelled_out(self):
        table = load_german(backend="numpy")
        texts = {value for column in table.values() if column.dtype == object for value in column.tolist()}
        assert not {text for text in texts if text.startswith("A") and text[1:].isdigit()}
        counts = {sex: int((table["sex"] == sex).sum()) for sex in ("male", "female")}
        assert counts == {"male": 690, "female": 310}
        assert all((status.split()[0] == sex) for status, sex in zip(table["personal_status"], table["sex"]))

    def test_changing_a_loaded_table_leaves_the_next_one_whole(self):
        load_german(backend="numpy")["age"][:] = 0
        assert load_german(backend="numpy")["age"].min() == 19

    def test_unknown_backend_is_refused(self):
        with pytest.raises(ValueError, match="backend is 'spark': choose one of 'pandas'"):
            load_adult(backend="spark")

    @pytest.mark.parametrize(
        ("backend", "way_out"),
        [
            ("pandas", "backend='pandas' needs pandas: pip install 'fairstream[tables]'"),
            ("pyarrow", "backend='pyarrow' needs pyarrow: pip install 'fairstream[tables]'"),
            ("polars", "backend='polars' needs polars: pip install polars"),
        ],
    )
    def test_missing_package_names_the_way_out(self, monkeypatch, backend, way_out):
        monkeypatch.setitem(sys.modules, backend, None)
        with pytest.raises(ImportError) as caught:
            load_german(backend=backend)
        assert str(caught.value) == way_out

    def test_numpy_is_enough(self):
        code = (
            "import sys\n"
            "for name in ('pandas', 'polars', 'pyarrow'): sys.modules[name] = None\n"
            "from fairstream.datasets import *\n"
            "assert paper_split('adult', 0).X_train.shape == (31655, 102)\n"
            "assert len(load_compas(backend='numpy')['race']) == 6172\n"
            "assert len(load_german(backend='numpy')['age']) == 1000\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_embedded_files_are_small_and_their_sources_named(self):
        folder = files("fairstream.datasets") / "data"
        sizes = {entry.name: len(entry.read_bytes()) for entry in folder.iterdir()}
        assert sum(sizes.values()) < 1_500_000
        readme = (folder / "README.md").read_text(encoding="utf-8")
        assert all(f"`{name}`" in readme for name in sizes if name != "README.md")

    @pytest.mark.parametrize("name", NAMES)
    def test_embedded_files_come_from_the_raw_files(self, name):
        maker_path, raw = ROOT / "paper" / "make_embedded_data.py", SHARED / "uci"
        if not (raw.is_dir() and maker_path.is_file()):
            pytest.skip("no raw UCI files: set FAIRSTREAM_DATA to the folder that holds uci/")
        spec = importlib.util.spec_from_file_location("make_embedded_data", maker_path)
        maker = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(maker)
        columns, rows = maker.TABLES[name](raw)
        assert maker.as_csv(columns, rows) == embedded_csv(name)
        rows[5] = rows[6]
        assert maker.as_csv(columns, rows) != embedded_csv(name)


ATTRIBUTE_LINES = [
    "4",
    "Male Young ",
    "000001.jpg  1 -1",
    "000002.jpg -1 -1",
    "000003.jpg -1  1",
    "000004.jpg  1  1",
]
PARTITION_LINES = ["000001.jpg 0", "000002.jpg 0", "000003.jpg 1", "000004.jpg 2"]


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode())


@pytest.fixture(params=["folder", "zip", "official"])
def celeba_root(tmp_path, request):
    """Four listed faces of which the third has no image, in each of the usual layouts."""
    official = request.param == "official"
    write_lines(tmp_path / ("Anno" if official else "") / "list_attr_celeba.txt", ATTRIBUTE_LINES)
    write_lines(tmp_path / ("Eval" if official else "") / "list_eval_partition.txt", PARTITION_LINES)
    names = ["000004.jpg", "000001.jpg", "000002.jpg", "999999.jpg"]
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "img_align_celeba.zip", "w") as archive:
            for name in names:
                archive.writestr(f"img_align_celeba/{name}", name)
    else:
        folder = tmp_path / ("Img" if official else "") / "img_align_celeba"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(name)
    return tmp_path


class TestCelebA:
    def test_rows_without_an_image_are_skipped_and_counted(self, celeba_root):
        faces = CelebA(celeba_root)
        assert faces.names == ("000001.jpg", "000002.jpg", "000004.jpg")
        assert (len(faces), faces.n_missing) == (3, 1)
        assert {name: values.tolist() for name, values in faces.attributes.items()} == {
            "Male": [True, False, True],
            "Young": [False, False, True],
        }
        assert faces.partition.tolist() == [0, 0, 2]
        assert "3 images, 1 listed without an image" in repr(faces)

    def test_selection_aligns_names_groups_and_images(self, celeba_root):
        chosen = CelebA(celeba_root).select(partition="train", attributes=["Male"])
        assert chosen.names == ("000001.jpg", "000002.jpg")
        assert chosen.groups["Male"].decode().tolist() == [True, False]
        assert list(chosen.groups) == ["Male"]
        assert contents(chosen) == list(chosen.names)
        assert contents(CelebA(celeba_root).select()) == ["000001.jpg", "000002.jpg", "000004.jpg"]
        assert len(CelebA(celeba_root).select(partition="valid")) == 0

    def test_index_and_selection_survive_pickling(self, celeba_root):
        faces = pickle.loads(pickle.dumps(CelebA(celeba_root)))
        chosen = pickle.loads(pickle.dumps(faces.select(partition="test", attributes=["Young"])))
        assert chosen.names == ("000004.jpg",)
        assert chosen.groups["Young"].labels == (True,)

    def test_wrong_choices_are_refused(self, celeba_root):
        faces = CelebA(celeba_root)
        with pytest.raises(ValueError, match="partition is 'dev': choose one of 'train', 'valid', 'test'"):
            faces.select(partition="dev")
        with pytest.raises(ValueError, match=r"attributes has 'Tall'.*choose from Male, Young"):
            faces.select(attributes=["Tall"])
        with pytest.raises(ValueError, match=r"attributes is 'Male': pass a list, \['Male'\]"):
            faces.select(attributes="Male")

    @pytest.mark.parametrize("name", ["list_attr_celeba.txt", "list_eval_partition.txt"])
    def test_missing_list_is_named(self, celeba_root, name):
        next(celeba_root.rglob(name)).unlink()
        with pytest.raises(FileNotFoundError, match=f"has no {name}: put CelebA's {name} there"):
            CelebA(celeba_root)

    def test_missing_images_and_folder_are_named(self, tmp_path):
        write_lines(tmp_path / "list_attr_celeba.txt", ATTRIBUTE_LINES)
        write_lines(tmp_path / "list_eval_partition.txt", PARTITION_LINES)
        with pytest.raises(FileNotFoundError, match=r"has no img_align_celeba and no img_align_celeba\.zip"):
            CelebA(tmp_path)
        (tmp_path / "img_align_celeba").mkdir()
        with pytest.raises(ValueError, match="holds none of the 4 images"):
            CelebA(tmp_path)
        with pytest.raises(FileNotFoundError, match="not a folder: pass CelebA's folder"):
            CelebA(tmp_path / "nowhere")

    @pytest.mark.parametrize(
        ("line", "text", "message"),
        [
            (3, "000002.jpg -1", "line 4 is not an image name and 2 values of 1 or -1"),
            (3, "000002.jpg -1 0", "line 4 is not an image name and 2 values"),
            (3, "000002.jpg -1 --1", "line 4 is not an image name and 2 values"),
            (3, "000002.jpg", "line 4 is not an image name and 2 values"),
            (0, "5", "says 5 images and lists 4"),
        ],
    )
    def test_damaged_attribute_list_is_refused(self, celeba_root, line, text, message):
        lines = [*ATTRIBUTE_LINES[:line], text, *ATTRIBUTE_LINES[line + 1 :]]
        write_lines(next(celeba_root.rglob("list_attr_celeba.txt")), lines)
        with pytest.raises(ValueError, match=message):
            CelebA(celeba_root)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("000002.jpg 3", "line 2 is not an image name and 0, 1 or 2"),
            ("000002.jpg", "line 2 is not"),
            ("000009.jpg 1", "does not list 000002.jpg"),
        ],
    )
    def test_damaged_partition_list_is_refused(self, celeba_root, text, message):
        lines = [PARTITION_LINES[0], text, *PARTITION_LINES[2:]]
        write_lines(next(celeba_root.rglob("list_eval_partition.txt")), lines)
        with pytest.raises(ValueError, match=message):
            CelebA(celeba_root)

    def test_cut_off_archive_and_binary_list_are_refused(self, celeba_root):
        for archive in celeba_root.glob("*.zip"):
            archive.write_bytes(archive.read_bytes()[:-30])
            with pytest.raises(ValueError, match="not a complete zip archive: download it again"):
                CelebA(celeba_root)
        next(celeba_root.rglob("list_attr_celeba.txt")).write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ValueError, match="is not a text file: download it again"):
            CelebA(celeba_root)

    def test_real_partial_download(self):
        if not (SHARED / "celeba").is_dir():
            pytest.skip("no CelebA: set FAIRSTREAM_DATA to the folder that holds celeba/")
        faces = CelebA(SHARED / "celeba")
        assert len(faces) + faces.n_missing == 202_599
        assert len(faces.attributes) == 40
        assert len(faces) == sum(len(faces.select(partition=part)) for part in ("train", "valid", "test"))
        # Attribute values of one row, read by hand from the list.
        with (SHARED / "celeba" / "list_attr_celeba.txt").open() as file:
            row = next(line for line in file if line.startswith(faces.names[-1])).split()[1:]
        assert [bool(values[-1]) for values in faces.attributes.values()] == [value == "1" for value in row]
        chosen = faces.select(partition="train", attributes=["Eyeglasses"])
        assert 0.04 < chosen.groups["Eyeglasses"].codes.mean() < 0.09


def contents(chosen) -> list[str]:
    """Read the images back through what the selection says about where they live."""
    if chosen.images.suffix == ".zip":
        with zipfile.ZipFile(chosen.images) as archive:
            return [archive.read(member).decode() for member in chosen.members]
    return [(chosen.images / member).read_text() for member in chosen.members]
