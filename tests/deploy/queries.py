"""Checks PromQL against the list of metrics: whether each metric exists, as the kind that it is used as, and has the
labels that select and group it. promtool checks the syntax."""

import re

# What Prometheus and who scrapes add to every series.
SCRAPED = {"job", "instance", "namespace", "pod"}
FOREIGN = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
SUFFIXES = {"_bucket": {"le"}, "_count": set(), "_sum": set()}
SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
WORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}


class Queries:
    """`metrics`: name -> (type, labels). `recorded`: name -> labels that recording rules leave."""

    def __init__(self, metrics, recorded=None, buckets=None):
        self.metrics, self.recorded, self.buckets = metrics, recorded or {}, buckets or {}

    def labels_of(self, name):
        """None: there is no such metric."""
        if name in FOREIGN:
            return FOREIGN[name]
        if name in self.recorded:
            return self.recorded[name]
        for suffix, more in SUFFIXES.items():
            base = name.removesuffix(suffix)
            if base != name and self.metrics.get(base, ("",))[0] == "histogram":
                return self.metrics[base][1] | more
        kind, labels = self.metrics.get(name, ("histogram", None))
        return None if kind == "histogram" else labels

    def problems(self, query):
        # Grouping, durations and texts hold no metric.
        grouped = {label.strip() for group in GROUPING.findall(query) for label in group.split(",") if label.strip()}
        rest = re.sub(r"\[[^\]]*\]", "", GROUPING.sub("", query))
        found, known = [], set(SCRAPED)
        for match in SELECTOR.finditer(rest):
            name, matchers = match.group(1), match.group(2) or ""
            called = rest[match.end():].lstrip().startswith("(")
            if name.lower() in WORDS or called or in_braces(rest, match.start()):
                continue
            labels = self.labels_of(name)
            if labels is None:
                found.append(f"no metric {name} (a histogram needs _bucket, _count or _sum)")
                continue
            known |= labels
            found += self.matcher_problems(name, matchers, labels)
        return found + [f"no metric of the query has the label {label}" for label in sorted(grouped - known)]

    def matcher_problems(self, name, matchers, labels):
        buckets = self.buckets.get(name)
        for label, value in MATCHER.findall(matchers):
            if label not in labels | SCRAPED:
                yield f"{name} has no label {label}"
            elif label == "le" and buckets is not None and value not in buckets:
                yield f'{name} has no bucket le="{value}"'


def in_braces(text, position):
    return text.count("{", 0, position) > text.count("}", 0, position)


def buckets_of(metrics_page):
    """name_bucket -> values of le, of a page of /metrics."""
    found = {}
    for name, value in re.findall(r'^(\w+_bucket)\{.*?\ble="([^"]+)"', metrics_page, re.MULTILINE):
        found.setdefault(name, set()).add(value)
    return found
