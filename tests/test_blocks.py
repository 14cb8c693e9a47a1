import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fairstream import encode_groups
from fairstream.data.groups import MAX_GROUPS, GroupIndex

NAME = "sensitive_feature_0"


def codes(form, n=3):
    return {name: (col.codes.tolist(), col.labels) for name, col in encode_groups(form, n).items()}


@pytest.mark.parametrize(
    "form",
    [
        pd.Series(["a", None, "b"], name="sex"),
        pd.Series(["a", None, "b"], name="sex", dtype="category"),
        pd.Series(["a", None, "b"], name="sex", dtype="string"),
        pd.DataFrame({"sex": ["a", None, "b"]}),
        pl.Series("sex", ["a", None, "b"]),
        pl.Series("sex", ["a", None, "b"], dtype=pl.Categorical),
        pl.DataFrame({"sex": ["a", None, "b"]}),
        pa.table({"sex": ["a", None, "b"]}),
        {"sex": ["a", None, "b"]},
        {"sex": np.array(["a", None, "b"], dtype=object)},
        {"sex": pd.Series(["a", None, "b"])},
        {"sex": np.array([["a"], [None], ["b"]], dtype=object)},
    ],
    ids=lambda form: type(form).__module__.split(".")[0] + "-" + type(form).__name__,
)
def test_every_usual_form_gives_the_same_column(form):
    assert codes(form) == {"sex": ([0, -1, 1], ("a", "b"))}


@pytest.mark.parametrize(
    ("form", "labels"),
    [
        ([1, 0, 1], (0, 1)),
        ([True, False, True], (False, True)),
        (np.array([1.0, np.nan, 0.0]), (0.0, 1.0)),
        (["x", float("nan"), "y"], ("x", "y")),
        (pd.array([1, None, 0], dtype="Int64"), (0, 1)),
        (pd.Series([True, None, False], dtype="boolean"), (False, True)),
        ([("a", 1), ("b", 2), ("a", 1)], ("a", "b")),
        ([-1, 1, -1], (-1, 1)),
    ],
)
def test_labels_are_plain_values_in_a_fixed_order(form, labels):
    column = encode_groups(form, 3)[NAME]
    assert column.labels == labels
    assert all(not isinstance(label, np.generic) for label in column.labels)


def test_nan_never_becomes_a_group_called_nan():
    assert codes(["a", np.nan, "b"])[NAME][0] == [0, -1, 1]


def test_minus_one_is_a_label_because_celeba_uses_it():
    assert codes(np.array([-1, 1, -1]))[NAME] == ([0, 1, 0], (-1, 1))


def test_mixed_labels_sort_the_same_whatever_comes_first():
    one = encode_groups(["b", 2, "a", 1, (1, 2)], 5)[NAME].labels
    two = encode_groups([(1, 2), 1, "a", 2, "b"], 5)[NAME].labels
    assert one == two == (1, 2, "a", "b", (1, 2))


def test_two_dimensional_arrays_are_several_attributes():
    encoded = encode_groups(np.array([["a", "x"], ["b", "y"]]), 2)
    assert [*encoded] == ["sensitive_feature_0", "sensitive_feature_1"]


def test_frames_without_names_and_masked_arrays():
    frame = pd.DataFrame(np.array([[1, 5], [0, 5], [1, 6]]))
    assert {name: column.codes.tolist() for name, column in encode_groups(frame, 3).items()} == {
        "0": [1, 0, 1],
        "1": [0, 0, 1],
    }
    masked = np.ma.masked_array([1, 0, 1], mask=[False, False, True])
    assert encode_groups(masked, 3)["sensitive_feature_0"].codes.tolist() == [1, 0, -1]
    assert encode_groups({"a": masked}, 3)["a"].labels == (0, 1)


def test_decode_returns_the_labels():
    assert encode_groups(["f", None, "m"], 3)[NAME].decode().tolist() == ["f", None, "m"]


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (["a", "b"], "has 2 rows, X has 3"),
        ("abc", "one label per row"),
        (5, "one label per row"),
        ({}, "no column"),
        ([[], [], []], "no column"),
        ([{"a"}, {"b"}, {"c"}], "unhashable"),
        (np.zeros((3, 2, 2)), "shape"),
        ({"a": np.zeros((3, 2))}, "one column"),
        (pl.LazyFrame({"a": [1, 2, 3]}), "collect"),
    ],
)
def test_bad_forms_get_a_message_with_the_way_out(form, says):
    with pytest.raises(ValueError, match=says):
        encode_groups(form, 3)


def test_a_continuous_attribute_is_refused():
    with pytest.raises(ValueError, match="bin a continuous attribute"):
        encode_groups(np.linspace(0, 1, MAX_GROUPS + 1), MAX_GROUPS + 1)


HUGE = [2**53, 2**53 + 1, None, 2**53 + 4]


@pytest.mark.parametrize(
    "form",
    [
        HUGE,
        pd.Series(HUGE, dtype="Int64"),
        pd.Series(HUGE, dtype="UInt64"),
        pd.Series(HUGE, dtype="int64[pyarrow]"),
        pd.array(HUGE, dtype="Int64"),
        pl.Series(HUGE),
        pl.Series(HUGE, dtype=pl.UInt64),
        pa.chunked_array([HUGE]),
        pa.array(HUGE),
        {"id": pd.Series(HUGE, dtype="Int64")},
        pl.DataFrame({"id": HUGE}),
        pa.table({"id": HUGE}),
    ],
    ids=lambda form: type(form).__module__.split(".")[0] + "-" + type(form).__name__,
)
def test_integer_labels_above_2_53_stay_apart_beside_a_missing_one(form):
    ((_, column),) = encode_groups(form, 4).items()
    assert column.labels == (2**53, 2**53 + 1, 2**53 + 4)
    assert all(type(label) is int for label in column.labels)
    assert column.codes.tolist() == [0, 1, -1, 2]


def test_labels_of_uint64_beyond_int64_stay_apart_beside_a_missing_one():
    column = encode_groups(pl.Series("id", [2**64 - 1, None, 2**64 - 2], dtype=pl.UInt64), 3)["id"]
    assert column.labels == (2**64 - 2, 2**64 - 1)
    assert column.codes.tolist() == [1, -1, 0]


def test_integers_that_are_all_missing_are_unknown():
    column = encode_groups(pd.Series([None, None], dtype="Int64"), 2)[NAME]
    assert (column.codes.tolist(), column.labels) == ([-1, -1], ())


def test_adding_groups_moves_no_slot_and_leaves_the_old_index_as_it_was():
    first = GroupIndex().with_labels({"sex": ["m"]})
    second = first.with_labels({"sex": ["f", "m"], "race": [3, 1], "age": []})
    assert first == GroupIndex({"sex": {"m": 1}}, 2)
    assert second.slots == {"sex": {"m": 1, "f": 2}, "race": {3: 3, 1: 4}, "age": {}}
    assert second.listed() == [("sex", "m"), ("sex", "f"), ("race", 3), ("race", 1)]
    assert GroupIndex.of(second.slots, second.listed()) == second


def test_two_groups_are_compared_once_and_more_each_with_the_rest():
    index = GroupIndex().with_labels({"sex": [1, 0], "race": ["c", "a", "b"]})
    assert index.comparisons() == [("sex", 1), ("race", "a"), ("race", "b"), ("race", "c")]
    assert index.rest("race", index.slot("race", "a")) == [index.slot("race", "c"), index.slot("race", "b")]


def test_unknown_and_left_out_groups_count_for_all_rows_only():
    columns = encode_groups({"race": ["a", None, "b", "c"]}, 4)
    index = GroupIndex().with_groups(columns)
    assert index.members(columns, 4).astype(int).tolist() == [
        [1, 1, 1, 1],
        [1, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    fewer = index.restricted({"race": ["a", "c"]})
    assert (fewer.is_restricted, index.is_restricted) == (True, False)
    assert fewer.codes(columns)["race"].tolist() == [1, 0, 0, 3]
    assert fewer.members(columns, 4)[2].sum() == 0


def test_groups_of_another_index_are_found_where_they_live_here():
    here = GroupIndex().with_labels({"sex": ["m", "f"], "race": [1, 2]})
    there = GroupIndex().with_labels({"race": [2, 1]}).with_labels({"sex": ["f"]})
    assert here.places_of(there) == [0, 4, 3, 2]


def test_float_labels_that_rounding_has_merged_are_refused():
    labels = np.array([2.0**53, 2.0**53 + 2, np.nan])
    with pytest.raises(ValueError, match=r"floats of 2\*\*53 or more"):
        encode_groups(labels, 3)
