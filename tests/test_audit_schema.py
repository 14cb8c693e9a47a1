"""The JSON of a report follows the schema that is shipped with the package."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from support.example_report import example_report

from fairstream.auditing import audit
from fairstream.auditing.report import FORMAT_VERSION
from fairstream.auditing.schema import SCHEMA_FILE, report_schema

KINDS = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
    "array": list,
    "object": dict,
}


@pytest.fixture(scope="module")
def schema():
    return json.loads(SCHEMA_FILE.read_text())


@pytest.fixture(scope="module")
def trees():
    rng = np.random.default_rng(0)
    sex, X = rng.integers(0, 2, size=400), rng.normal(size=(400, 4))
    groups = {"sex": sex, "age": rng.integers(0, 3, size=400)}
    options = {"attackers": ["linear"], "n_permutations": 9, "limit": 0.6, "intersections": [("sex", "age")]}
    real = audit(PCA(2).fit(X[:100]), X, groups, X[:, 0] > 0, **options)
    return [json.loads(report.to_json()) for report in (real, example_report())]


def fault(value, rule, schema, where="report"):
    """Return where a value breaks a rule of the few kinds that our schema has, None if nowhere."""
    if "$ref" in rule:
        return fault(value, schema["$defs"][rule["$ref"].rsplit("/", 1)[1]], schema, where)
    if "anyOf" in rule:
        faults = [fault(value, other, schema, where) for other in rule["anyOf"]]
        return None if None in faults else faults[0]
    if "const" in rule:
        return None if value == rule["const"] else where
    kinds = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type", [])
    is_flag = isinstance(value, bool) and "boolean" not in kinds
    if kinds and (is_flag or not any(isinstance(value, KINDS[kind]) for kind in kinds)):
        return where
    if isinstance(value, dict):
        known, others = rule.get("properties", {}), rule.get("additionalProperties", {})
        missing = [name for name in rule.get("required", ()) if name not in value]
        if missing or (others is False and value.keys() - known.keys()):
            return f"{where}: {missing or value.keys() - known.keys()}"
        inside = [(value[name], known.get(name, others), f"{where}.{name}") for name in value]
    elif isinstance(value, list):
        parts = rule.get("prefixItems", [rule.get("items", {})] * len(value))
        if len(parts) != len(value):
            return where
        inside = [
            (item, part, f"{where}[{i}]") for i, (item, part) in enumerate(zip(value, parts, strict=True))
        ]
    else:
        inside = []
    return next((found for item in inside if (found := fault(item[0], item[1], schema, item[2]))), None)


def test_the_shipped_schema_is_that_of_the_classes(schema):
    assert schema == json.loads(json.dumps(report_schema()))
    assert schema["properties"]["format_version"] == {"const": FORMAT_VERSION}


def test_real_reports_follow_the_schema(schema, trees):
    for tree in trees:
        assert fault(tree, schema, schema) is None


def test_a_report_that_breaks_the_schema_is_found(schema, trees):
    """The control of the check above."""
    for change in (
        lambda tree: tree.pop("headline"),
        lambda tree: tree.update(extra=1),
        lambda tree: tree["models"][0].update(name=3),
        lambda tree: tree["models"][0]["leaks"][0]["attack"]["strongest"]["auc"].update(value="high"),
        lambda tree: tree.update(format_version=2),
    ):
        tree = copy.deepcopy(trees[0])
        change(tree)
        assert fault(tree, schema, schema) is not None


def test_reports_follow_the_schema_by_the_reference_validator(schema, trees):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    for tree in trees:
        validator(schema).validate(tree)


def test_every_node_of_the_schema_says_what_it_is(schema):
    for name, node in schema["$defs"].items():
        assert len(node["description"]) > 20, name
