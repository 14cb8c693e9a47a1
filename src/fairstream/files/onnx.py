"""Writes an embedding as an ONNX model of two nodes: subtract the mean, multiply by the components."""

from __future__ import annotations

import numpy as np

from fairstream._version import __version__
from fairstream.errors import missing_extra
from fairstream.files.format import PathLike, atomic_file
from fairstream.linalg import FloatArray

OPSET = 13  # the first with Sub and MatMul as every current runtime has them


def write_onnx(path: PathLike, mean: FloatArray, components: FloatArray) -> None:
    """Write X -> (X - mean) components' as an ONNX model.

    Parameters
    ----------
    path : path
        Written atomically.
    mean : array (d,)
    components : array (k, d)
        Their type, float32 or float64, is that of the model's input "X" (n, d) and output "embedding" (n, k).
    """
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError:
        raise missing_extra("onnx", "onnx", "writing an ONNX model") from None
    V = np.ascontiguousarray(components.T)
    d, k = V.shape
    element = helper.np_dtype_to_tensor_dtype(V.dtype)
    graph = helper.make_graph(
        [
            helper.make_node("Sub", ["X", "mean"], ["centred"]),
            helper.make_node("MatMul", ["centred", "components"], ["embedding"]),
        ],
        "fair_embedding",
        [helper.make_tensor_value_info("X", element, ["n", d])],
        [helper.make_tensor_value_info("embedding", element, ["n", k])],
        [
            numpy_helper.from_array(np.asarray(mean, dtype=V.dtype), "mean"),
            numpy_helper.from_array(V, "components"),
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
