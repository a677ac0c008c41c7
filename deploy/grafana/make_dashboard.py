#!/usr/bin/env python3
"""Prints the Grafana dashboard: deploy/grafana/make_dashboard.py > deploy/grafana/normd.json

A panel is one entry of ROWS: title, unit, and what is drawn, as (query, legend). normd.json is this
output, and CI looks up every metric and label in it.
"""

import json

RATE = "sum by ({by}) (rate({metric}{{{labels}job=\"normd\",instance=~\"$instance\"}}[$__rate_interval]))"
SELECT = "job=\"normd\",instance=~\"$instance\""
PHASES = "normd_request_duration_seconds"
WIDTH, HEIGHT, COLUMNS = 8, 8, 3


def rate(metric, by="job", labels=""):
    return RATE.format(metric=metric, by=by, labels=labels)


def gauge(metric, how="sum by (instance)", labels=""):
    return f"{how} ({metric}{{{labels}{SELECT}}})"


def quantile(of, metric, by="", labels=""):
    return f"histogram_quantile({of}, {rate(metric + '_bucket', by=(by + ', le') if by else 'le', labels=labels)})"


def latency(labels):
    return [(quantile(of, PHASES, labels=labels), name) for of, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))]


ROWS = {
    "Traffic": [
        ("Requests by method", "reqps", [(rate("normd_requests_total", "method"), "{{method}}")]),
        ("Requests by norm", "reqps", [(rate("normd_requests_total", "norm"), "{{norm}}")]),
        ("Bytes", "Bps", [(rate("normd_request_bytes_total"), "in"), (rate("normd_response_bytes_total"), "out")]),
        ("Statistics groups", "cps", [(rate("normd_rows_total", "norm"), "{{norm}}")]),
        ("Items in a batch", "short", [(quantile(0.5, "normd_batch_items"), "p50"),
                                       (quantile(0.99, "normd_batch_items"), "p99")]),
        ("Connections", "short", [(gauge("normd_connections"), "{{instance}}")]),
    ],
    "Latency": [
        ("Normalize", "s", latency('method="Normalizer/Normalize",phase="total",')),
        ("Batches", "s", latency('method="Normalizer/BatchNormalize",phase="total",')),
        ("Streams, by item", "s", latency('method="Normalizer/NormalizeStream",phase="total",')),
        ("p99 by method", "s", [(quantile(0.99, PHASES, "method", 'phase="total",'), "{{method}}")]),
        ("p99 by phase", "s", [(quantile(0.99, PHASES, "phase"), "{{phase}}")]),
        ("Share of Normalize calls over 20 ms", "percentunit", [("normd:request_slow:ratio_5m", "5 min"),
                                                                ("normd:request_slow:ratio_1h", "1 h")]),
    ],
    "Errors and refusals": [
        ("Errors by code", "reqps", [(rate("normd_requests_total", "code", 'code!="OK",'), "{{code}}")]),
        ("Errors by method", "reqps", [(rate("normd_requests_total", "method", 'code!="OK",'), "{{method}}")]),
        ("Share that failed by the server's fault", "percentunit", [("normd:request_errors:ratio_5m", "5 min"),
                                                                    ("normd:request_errors:ratio_1h", "1 h")]),
        ("Refused for want of room", "reqps",
         [(rate("normd_requests_total", "method", 'code="RESOURCE_EXHAUSTED",'), "{{method}}")]),
        ("Bytes in flight", "bytes", [(gauge("normd_in_flight_bytes"), "{{instance}}")]),
        ("Connections closed by the server", "cps", [(rate("normd_connections_closed_total", "reason"), "{{reason}}")]),
        ("Calls refused by the transport", "reqps", [(rate("normd_transport_refusals_total", "reason"), "{{reason}}")]),
    ],
    "Sessions and their store": [
        ("Sessions", "short", [(gauge("normd_sessions"), "{{instance}} in the store"),
                               (gauge("normd_resident_sessions"), "{{instance}} in memory")]),
        ("Bytes of sessions", "bytes", [(gauge("normd_session_bytes"), "{{instance}} in the store"),
                                        (gauge("normd_resident_session_bytes"), "{{instance}} in memory")]),
        ("Loads, evictions, expiries", "cps", [(rate("normd_session_loads_total"), "loads"),
                                               (rate("normd_session_evictions_total"), "evictions"),
                                               (rate("normd_session_expiries_total"), "expiries")]),
        ("Time of a transaction", "s", [(quantile(0.5, "normd_store_group_seconds"), "p50"),
                                        (quantile(0.99, "normd_store_group_seconds"), "p99")]),
        ("Rows written, conflicts", "cps", [(rate("normd_store_rows_total"), "rows"),
                                            (rate("normd_store_conflicts_total"), "conflicts"),
                                            (rate("normd_store_failed_groups_total"), "failed transactions"),
                                            (rate("normd_store_damaged_total"), "damaged records")]),
        ("Waiting", "short", [(gauge("normd_waiting", labels='stage="store_change",'), "{{instance}} changes"),
                              (gauge("normd_waiting", labels='stage="store_read",'), "{{instance}} reads")]),
    ],
    "Devices": [
        ("Computations by device", "cps", [(rate("normd_device_jobs_total", "device"), "{{device}}")]),
        ("Fallbacks and dropped work", "cps", [(rate("normd_device_fallbacks_total", "reason"), "fallback: {{reason}}"),
                                               (rate("normd_batch_dropped_total", "reason"), "dropped: {{reason}}")]),
        ("Elements that kernels left undecided", "cps", [(rate("normd_undecided_elements_total", "rung"), "{{rung}}")]),
        ("Launched together", "short", [(quantile(0.5, "normd_batch_size"), "p50"),
                                        (quantile(0.99, "normd_batch_size"), "p99")]),
    ],
    "Process": [
        ("CPU", "short", [(rate("process_cpu_seconds_total", "instance"), "{{instance}}")]),
        ("Memory", "bytes", [(gauge("process_resident_memory_bytes"), "{{instance}}"),
                             (gauge("normd_shared_memory_bytes"), "{{instance}} shared, mapped")]),
        ("Descriptors", "percentunit", [(f"process_open_fds{{{SELECT}}} / process_max_fds{{{SELECT}}}",
                                         "{{instance}}")]),
        ("Threads", "short", [(gauge("process_threads"), "{{instance}}")]),
        ("Queue threads held up", "cps", [(rate("normd_queue_callbacks_slow_total", "instance"), "{{instance}}")]),
        ("Time since the start", "s", [(f"time() - {gauge('process_start_time_seconds', 'max by (instance)')}",
                                        "{{instance}}")]),
    ],
}

SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number, title, unit, queries, at):
    return {
        "id": number, "type": "timeseries", "title": title, "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": at[0], "y": at[1]},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}},
                        "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [{"refId": "ABCD"[index], "datasource": SOURCE, "expr": query, "legendFormat": legend}
                    for index, (query, legend) in enumerate(queries)],
    }


def panels():
    found, y = [], 0
    for row, entries in ROWS.items():
        found.append({"id": len(found) + 1, "type": "row", "title": row, "collapsed": False, "panels": [],
                      "gridPos": {"h": 1, "w": WIDTH * COLUMNS, "x": 0, "y": y}})
        y += 1
        for index, (title, unit, queries) in enumerate(entries):
            at = (index % COLUMNS * WIDTH, y + index // COLUMNS * HEIGHT)
            found.append(panel(len(found) + 1, title, unit, queries, at))
        y += -(-len(entries) // COLUMNS) * HEIGHT
    return found


def variable(name, label, **more):
    return {"name": name, "label": label, "hide": 0, "refresh": 2, **more}


def dashboard():
    instances = 'label_values(up{job="normd"}, instance)'
    return {
        "uid": "normd", "title": "normd", "tags": ["normd"], "schemaVersion": 38, "version": 1, "editable": True,
        "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "graphTooltip": 1,
        "templating": {"list": [
            variable("source", "Data source", type="datasource", query="prometheus"),
            variable("instance", "Instance", type="query", datasource=SOURCE, query=instances, definition=instances,
                     multi=True, includeAll=True, allValue=".*", current={"text": "All", "value": "$__all"}),
        ]},
        "annotations": {"list": [{
            "name": "Starts", "enable": True, "iconColor": "orange", "datasource": SOURCE,
            "expr": f"changes(process_start_time_seconds{{{SELECT}}}[1m]) > 0", "titleFormat": "{{instance}} started"}]},
        "panels": panels(),
    }


def text(value):
    """An entry of the dashboard, and a panel, on each line: a changed panel is a changed line."""
    entries = {key: json.dumps(entry, ensure_ascii=False) for key, entry in value.items()}
    lines = ",\n".join(json.dumps(panel, ensure_ascii=False) for panel in value["panels"])
    entries["panels"] = f"[\n{lines}\n]"
    return "{\n" + ",\n".join(f'"{key}": {entry}' for key, entry in entries.items()) + "\n}"


if __name__ == "__main__":
    print(text(dashboard()))
