"""Audits of expected values: are the results that a test suite, a file or a reference expects the right ones?

    python -m normd_golden audit onnx                     # the node tests of the installed onnx, and its reference
    python -m normd_golden audit webnn batch_normalization.https.any.js
    python -m normd_golden audit npz results.npz

Every expectation is judged by the exact value of its formula, so that nobody has to know beforehand which are wrong.
"""

from normd_golden.audit._finding import Finding, judged, judged_values, skipped, summary

__all__ = ["Finding", "judged", "judged_values", "skipped", "summary"]
