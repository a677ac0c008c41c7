#!/usr/bin/env python3
"""Which variant ONNX's reference evaluator and ONNX Runtime are: prints the lines of kernels/python/README.md's table.

    pip install onnx onnxruntime && tests/kernels/python/audit_onnx.py

Needs normd_golden installed, or PYTHONPATH and NORMD_GOLDEN_LIBRARY as in run.sh. CTest does not run it, because the
two packages are large and their next release may print other figures.
"""

import numpy as np
import onnx
import onnxruntime

import normd_golden as golden
from normd_golden.audit import onnx_norms


def results(operator, inputs, domain, attributes):
    made = onnx_norms.model(operator, inputs, attributes, domain)
    yield f"onnxruntime {onnxruntime.__version__}", onnx_norms.runtime(made, inputs)[0]
    if not domain:
        yield f"onnx {onnx.__version__} reference", onnx_norms.reference(made, inputs)[0]


def audit(operator, spec, inputs, domain="", **attributes):
    for name, y in results(operator, inputs, domain, attributes):
        residual = inputs.get("skip")
        report = golden.check(y, spec, inputs["x"], inputs.get("w"), inputs.get("b"), residual=residual)
        print(f"{operator} {report.dtype}, {name}: {report.summary()}; {report.variant}")


def normal(seed, shape, dtype, around=0.0, scale=1.0):
    return (around + scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def main():
    for dtype in (np.float32, np.float16):
        x, skip = normal(1, (8, 16, 256), dtype, scale=0.01), normal(2, (8, 16, 256), dtype, scale=0.01)
        w, b = normal(3, 256, dtype, around=1, scale=0.2), normal(4, 256, dtype)
        layer, rms = golden.LayerNorm(256), golden.RMSNorm(eps=1e-5)
        audit("LayerNormalization", layer, {"x": x, "w": w, "b": b}, axis=-1, epsilon=1e-5)
        audit("RMSNormalization", rms, {"x": x, "w": w}, axis=-1, epsilon=1e-5)
        ours = "com.microsoft"
        audit("SkipLayerNormalization", layer, {"x": x, "skip": skip, "w": w, "b": b}, ours, epsilon=1e-5)
        audit("SkipSimplifiedLayerNormalization", rms, {"x": x, "skip": skip, "w": w}, ours, epsilon=1e-5)
    audit("RMSNormalization", rms, {"x": normal(5, (256, 256), np.float16, scale=300), "w": np.ones(256, np.float16)},
          axis=-1, epsilon=1e-5)  # fmt: skip


if __name__ == "__main__":
    main()
