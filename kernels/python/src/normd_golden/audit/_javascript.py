"""The arrays of object literals in a JavaScript file, as Python values: WebNN's tests are written that way."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, List

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<number>[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))n?
      | (?P<word>[-+]?[A-Za-z_$][\w$]*)
      | (?P<mark>[\[\]{},:])""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": "true", "false": "false", "null": "null", "undefined": "null", "NaN": "NaN", "Infinity": "Infinity",
          "-Infinity": "-Infinity", "+Infinity": "Infinity", "-NaN": "NaN"}  # fmt: skip


def arrays(text: str) -> Iterator[Any]:
    """The arrays that the text assigns to names, but for those that are more than literals (a call, a spread)."""
    for found in re.finditer(r"\b(?:const|let|var)\s+[\w$]+\s*=\s*(?=\[)", text):
        try:
            yield _literal(text, found.end())
        except ValueError:
            continue


def _literal(text: str, at: int) -> Any:
    """The literal that begins at this place. ValueError where it is none."""
    parts: List[str] = []
    depth = 0
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text[at : at + 20]!r} is no part of a literal")
        at = token.end()
        if token.lastgroup == "space":
            continue
        parts.append(_as_json(token, text[at : at + 100].lstrip()))
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(parts[-1], 0)
        if parts[-1] in "]}" and len(parts) > 1 and parts[-2] == ",":
            del parts[-2]
        if depth == 0:
            return json.loads("".join(parts))


def _as_json(token: "re.Match[str]", after: str) -> str:
    text = token.group(token.lastgroup or 0)
    if token.lastgroup == "string":
        return json.dumps(re.sub(r"\\(.)", r"\1", text[1:-1]))
    if token.lastgroup == "number":
        return str(int(text, 16)) if "0x" in text else _number(text)
    if token.lastgroup == "word":
        if after.startswith(":"):
            return json.dumps(text)
        if text not in _WORDS:
            raise ValueError(f"{text} is no literal")
        return _WORDS[text]
    return text


def _number(text: str) -> str:
    """As JSON writes it: a digit before and after the point, and no plus."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.lstrip("+"))
    digits = "0" + digits if digits.startswith(".") else digits
    return sign + re.sub(r"\.(?=$|[eE])", ".0", digits)
