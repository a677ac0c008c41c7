#!/usr/bin/env python3
"""What answers and judgement cost: seconds of one core for a thousand rows of 1,000 elements, the best of 7.

    taskset -c 0 tests/kernels/python/cost.py

Needs normd_golden installed, or PYTHONPATH and NORMD_GOLDEN_LIBRARY as in run.sh. No test asserts these figures.
"""

import time

import numpy as np

import normd_golden as golden

SPEC = golden.LayerNorm(1000)


def best(work):
    times = []
    for _ in range(7):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return f"{min(times):.3f}"


def main():
    print("dtype, layer_norm, check, check and variant, exact")
    for dtype in ("float32", "float16", "float64"):
        x = np.random.default_rng(1).standard_normal((1000, 1000)).astype(dtype)
        w, b = np.ones(1000, dtype), np.ones(1000, dtype)
        y = golden.layer_norm(x, 1000, w, b)
        print(dtype, best(lambda: golden.layer_norm(x, 1000, w, b)), best(lambda: golden.check(y, SPEC, x, w, b)),
              best(lambda: golden.check(y, SPEC, x, w, b).variant), best(lambda: golden.exact(SPEC, x, w, b)))  # fmt: skip


if __name__ == "__main__":
    main()
