"""python -m normd_golden audit onnx|webnn|npz ...: which expected values are wrong?"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Iterator, List, Optional

from normd_golden.audit import Finding, summary
from normd_golden.audit._finding import MAX_ULP


def main(words: Optional[List[str]] = None) -> int:
    """1 if an expectation is wrong; 2 for a command line or a file that cannot be used, or if nothing could be judged."""
    options = _parser().parse_args(words)
    try:
        findings = list(_findings(options))
    except (ImportError, OSError, ValueError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        cure = f"; pip install {missing.partition('.')[0]}" if missing else ""
        print(f"normd_golden audit {options.what}: {error}{cure}", file=sys.stderr)
        return 2
    shown = None if options.all else max(20, sum(one.is_wrong for one in findings))
    print(summary(findings, f"audit {options.what}", shown))
    if all(one.verdict == "not judged" for one in findings):
        return 2
    return int(any(one.is_wrong for one in findings))


def _findings(options: argparse.Namespace) -> Iterator[Finding]:
    if options.what == "onnx":
        from normd_golden.audit import onnx_norms

        yield from onnx_norms.node_tests(options.max_ulp)
        runner = onnx_norms.runtime if options.runtime else onnx_norms.reference
        yield from onnx_norms.hard_cases(runner, "ONNX Runtime" if options.runtime else "reference", options.max_ulp)
        return
    for path in options.file:
        if options.what == "webnn":
            from normd_golden.audit import webnn

            with open(path, encoding="utf-8") as file:
                yield from webnn.audit(file.read(), path, options.max_ulp)
        else:
            from normd_golden.audit import npz

            yield npz.audit(path, options.spec, options.max_ulp)


def _limit(text: str) -> float:
    """A finite number, at least 0."""
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} must be a finite number, at least 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m normd_golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    audit = commands.add_parser("audit", help="judge expected values by the exact value of the formula")
    kinds = audit.add_subparsers(dest="what", required=True)
    onnx = kinds.add_parser("onnx", help="the node tests of the installed onnx, and its reference on hard inputs")
    onnx.add_argument("--runtime", action="store_true", help="ONNX Runtime instead of the reference on hard inputs")
    webnn = kinds.add_parser("webnn", help="conformance tests of web-platform-tests: .js files, or JSON of their tests")
    webnn.add_argument("file", nargs="+")
    npz = kinds.add_parser("npz", help="arrays x, y and parameters, and a spec")
    npz.add_argument("file", nargs="+")
    npz.add_argument("--spec", default="", help="such as 'RMSNorm(eps=1e-6)', instead of the array spec of the file")
    for kind in (onnx, webnn, npz):
        kind.add_argument("--max-ulp", type=_limit, default=MAX_ULP, metavar="U",
                          help="the largest error of what is right (default %(default)s); errors of small elements count "
                          "in ulp at the root mean square of the result")  # fmt: skip
        kind.add_argument("--all", action="store_true", help="print every finding, and not the first 20 and all wrong ones")
    return parser


if __name__ == "__main__":
    sys.exit(main())
