#!/usr/bin/env bash
# Runs tests/e2e on --transport=grpc: what a transport decides, and one group of the rest for each kind of call. With
# NORMD_TEST_FULL=1 all of it.
#   tests/e2e/on_grpc.sh E2E_TEST
set -euo pipefail
filter="AccessTest.*:AdmissionE2eTest.*:ChunkTest.*:ConnectionsE2eTest.*:DrainE2eTest.*:HealthTest.*:LimitsTest.*"
filter+=":NormalizeTest.*:ServerTest.*:SessionTransferTest.*:SharedNormdTest.*:StreamTest.*:TlsTest.*:TracesTest.*"
filter+=":TransfersE2eTest.*:*ReflectionTest.*"
if [[ ${NORMD_TEST_FULL:-0} == 1 ]]; then filter="*"; fi
NORMD_TEST_TRANSPORT=grpc exec "$1" --gtest_brief=1 "--gtest_filter=$filter"
