#!/usr/bin/env python3
"""The checks of deploy/ find what they are for: each is given something wrong."""

import copy
import unittest

import compose_check
import kubernetes_check
import prometheus_check
from facts import Programs, number
from queries import Queries, buckets_of

METRICS = {"calls_total": ("counter", {"code"}), "time_seconds": ("histogram", {"phase"}), "size": ("gauge", set())}
CONTAINER = {
    "name": "normd", "env": [{"name": "NORMD_LISTEN", "value": "0.0.0.0:8001"}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]}}}
POD = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
       "automountServiceAccountToken": False, "containers": [CONTAINER]}


def without_programs():
    programs = Programs.__new__(Programs)
    programs.normd = "/nonexistent"
    programs.options = {"drain_settle": "0s", "drain_timeout": "30s", "max_resident_bytes": "1GiB",
                        "max_in_flight_bytes": "288MiB"}
    programs.metrics, programs.flags = METRICS, {"server"}
    return programs


class QueriesTest(unittest.TestCase):
    def found(self, query):
        return Queries(METRICS, {"r:r": {"code"}}, {"time_seconds_bucket": {"0.1"}}).problems(query)

    def test_a_good_query_has_no_problem(self):
        for query in ('sum by (code) (rate(calls_total{code!="OK",job="normd"}[5m])) / 2e3 > 0.5', "r:r > 14.4 * 0.001",
                      'histogram_quantile(0.99, sum by (le) (rate(time_seconds_bucket{le="0.1"}[$__rate_interval])))',
                      "size and on (instance) up == 0", "time() - max(size)"):
            self.assertEqual(self.found(query), [], query)

    def test_an_unknown_metric_is_found(self):
        self.assertIn("no metric calls ", self.found("rate(calls[5m])")[0])
        self.assertIn("no metric calls_count ", self.found("calls_count")[0])

    def test_a_histogram_without_a_suffix_is_found(self):
        self.assertIn("no metric time_seconds ", self.found("time_seconds")[0])

    def test_an_unknown_label_is_found(self):
        self.assertEqual(self.found('calls_total{phase="x"}'), ["calls_total has no label phase"])
        self.assertEqual(self.found("sum by (phase) (calls_total)"), ["no metric of the query has the label phase"])

    def test_an_unknown_bucket_is_found(self):
        self.assertEqual(self.found('time_seconds_bucket{le="0.2"}'), ['time_seconds_bucket has no bucket le="0.2"'])

    def test_buckets_are_read_from_a_page(self):
        page = 'a_bucket{x="y",le="1e-05"} 3\na_bucket{le="+Inf"} 4\n'
        self.assertEqual(buckets_of(page), {"a_bucket": {"1e-05", "+Inf"}})


class RulesTest(unittest.TestCase):
    def test_an_alert_without_a_test_is_found(self):
        rule = {"alert": "NormdUnheardOf", "annotations": {"summary": "", "action": ""}}
        self.assertEqual(list(prometheus_check.tested([rule])), ["rules_test.yml has no test of NormdUnheardOf"])

    def test_a_limit_that_is_not_the_default_is_found(self):
        rule = {"alert": "NormdBytesNearBudget", "expr": "x > 0.8 * 5"}
        self.assertEqual(len(list(prometheus_check.defaults(without_programs(), [rule]))), 1)

    def test_panels_in_one_place_are_found(self):
        panel = {"id": 1, "title": "a", "gridPos": {"x": 0, "y": 0, "w": 8, "h": 8}}
        self.assertEqual(len(list(prometheus_check.panels([panel, {**panel, "id": 2}]))), 1)


class OptionsTest(unittest.TestCase):
    def test_an_unknown_option_is_found(self):
        found = without_programs().environment_problems({"NORMD_LISTE": None})
        self.assertEqual(found, ["normd has no option --liste"])

    def test_an_unknown_flag_of_normload_is_found(self):
        container = {"command": ["normload", "--server=a", "--serve=b"]}
        self.assertEqual(list(kubernetes_check.client_problems(without_programs(), {}, container)),
                         ["normload has no flag --serve"])

    def test_units_are_those_of_their_files(self):
        self.assertEqual([number(text) for text in ("2Gi", "2GiB", "2g", "5min", "30s", "7")],
                         [2 << 30, 2 << 30, 2 << 30, 300, 30, 7])


class KubernetesTest(unittest.TestCase):
    def test_a_restricted_pod_has_no_problem(self):
        self.assertEqual(list(kubernetes_check.restricted_problems(POD)), [])

    def test_a_pod_that_is_not_locked_in_is_found(self):
        for part, key, value in (("pod", "automountServiceAccountToken", True), ("security", "runAsNonRoot", False),
                                 ("container", "securityContext", {}), ("resources", "requests", {})):
            pod = copy.deepcopy(POD)
            {"pod": pod, "security": pod["securityContext"], "container": pod["containers"][0],
             "resources": pod["containers"][0]["resources"]}[part][key] = value
            self.assertEqual(len(list(kubernetes_check.restricted_problems(pod))), 1, key)

    def test_too_little_memory_and_too_short_a_stop_are_found(self):
        pod = {**POD, "terminationGracePeriodSeconds": 35}
        container = {**CONTAINER, "env": [], "ports": []}
        programs = without_programs()
        self.assertEqual(programs.memory_rule({}), (100 + 1024 + 576) << 20)
        with self.assertRaises(KeyError):  # after these two it reads the ports, which are not there
            found = []
            for problem in kubernetes_check.server_problems(programs, pod, container):
                found.append(problem)
        self.assertEqual(len(found), 2, found)

    def test_plain_text_beside_a_certificate_is_found(self):
        certificate = {"NORMD_TLS_CERTIFICATE": "/tls.crt"}
        found = [list(kubernetes_check.plaintext_problems({**certificate, **more}))
                 for more in ({"NORMD_PLAINTEXT": "true"}, {"NORMD_ADMIN_PLAINTEXT": "true"})]
        self.assertEqual([len(problems) for problems in found], [1, 0], found)

    def test_what_selects_nothing_is_found(self):
        service = {"kind": "Service", "metadata": {"name": "s", "labels": {}},
                   "spec": {"selector": {"a": "b"}, "ports": [{"name": "p", "targetPort": "p"}]}}
        found = list(kubernetes_check.Objects([service]).selector_problems())
        self.assertEqual(len(found), 2, found)

    def test_a_namespace_that_denies_nothing_is_found(self):
        namespace = {"kind": "Namespace", "metadata": {"name": "n"}}
        self.assertEqual(list(kubernetes_check.Objects([namespace]).selector_problems()),
                         ["no policy denies everything by default"])

    def test_a_field_that_kubernetes_lacks_is_found(self):
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"port": 1}}
        self.assertEqual(len(list(kubernetes_check.schema_problems([service]))), len(kubernetes_check.RELEASES))


class ComposeTest(unittest.TestCase):
    GOOD = {"image": "${A_IMAGE:-a:1}", "read_only": True, "cap_drop": ["ALL"], "healthcheck": {},
            "security_opt": ["no-new-privileges:true"], "ports": ["127.0.0.1:1:1"]}

    def test_a_good_service_has_no_problem(self):
        self.assertEqual(list(compose_check.service_problems(self.GOOD)), [])

    def test_each_omission_is_found(self):
        for key, value in (("image", "a:1"), ("read_only", False), ("cap_drop", []), ("security_opt", []),
                           ("ports", ["1:1"]), ("volumes", ["./nowhere:/a"])):
            self.assertEqual(len(list(compose_check.service_problems({**self.GOOD, key: value}))), 1, key)

    def test_a_password_in_the_file_is_found(self):
        self.assertEqual(len(list(compose_check.text_problems("  POSTGRES_PASSWORD: hunter22\n"))), 1)
        self.assertEqual(list(compose_check.text_problems("  X_PASSWORD_FILE: /run/secrets/x\n")), [])


if __name__ == "__main__":
    unittest.main()
