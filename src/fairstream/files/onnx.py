"""Writes an embedding or an erasure as an ONNX model of a few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fairstream._version import __version__
from fairstream.errors import missing_extra
from fairstream.files.atomic import PathLike, atomic_file
from fairstream.linalg import FloatArray

OPSET = 13  # the first with Sub and MatMul as every current runtime has them

_CENTRED = ("Sub", ["X", "mean"], "centred")


def write_embedding(path: PathLike, mean: FloatArray, components: FloatArray) -> None:
    """Write X -> (X - mean) components' as an ONNX model.

    Parameters
    ----------
    path : path
        Written atomically.
    mean : array (d,)
    components : array (k, d)
        Their type, float32 or float64, is that of the model's input "X" (n, d) and output "embedding" (n, k).
    """
    nodes = [_CENTRED, ("MatMul", ["centred", "components"], "embedding")]
    _write(path, nodes, {"mean": mean, "components": components.T}, len(components))


def write_erasure(path: PathLike, mean: FloatArray, basis: FloatArray, *, keeps_basis: bool = False) -> None:
    """Write X -> X - (X - mean) B'B as an ONNX model with the output "erased" (n, d).

    Parameters
    ----------
    path : path
        Written atomically.
    mean : array (d,)
    basis : array (m, d)
        B, orthonormal rows; its type is that of input and output.
    keeps_basis : bool
        Write X -> (X - mean) B'B + mean instead: of the rows, only what the basis holds is left.
    """
    last = ("Add", ["part", "mean"], "erased") if keeps_basis else ("Sub", ["X", "part"], "erased")
    nodes = [
        _CENTRED,
        ("MatMul", ["centred", "into_basis"], "inside"),
        ("MatMul", ["inside", "basis"], "part"),
        last,
    ]
    _write(path, nodes, {"mean": mean, "into_basis": basis.T, "basis": basis}, basis.shape[1])


def _write(
    path: PathLike,
    nodes: Sequence[tuple[str, list[str], str]],
    constants: Mapping[str, FloatArray],
    width: int,
) -> None:
    """Write operations (name, inputs, output) on "X"; the last output, of so many columns, is the model's."""
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError:
        raise missing_extra("onnx", "onnx", "writing an ONNX model") from None
    output, n_features = nodes[-1][2], len(constants["mean"])
    dtype = next(array.dtype for array in constants.values() if array.ndim == 2)
    element = helper.np_dtype_to_tensor_dtype(dtype)
    graph = helper.make_graph(
        [helper.make_node(name, inputs, [result]) for name, inputs, result in nodes],
        f"fair_{output}",
        [helper.make_tensor_value_info("X", element, ["n", n_features])],
        [helper.make_tensor_value_info(output, element, ["n", width])],
        [
            numpy_helper.from_array(np.ascontiguousarray(array, dtype=dtype), name)
            for name, array in constants.items()
        ],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="fairstream",
        producer_version=__version__,
    )
    onnx.checker.check_model(model)
    with atomic_file(path) as stream:
        stream.write(model.SerializeToString())
