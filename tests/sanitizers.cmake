# What builds with a sanitizer leave out, and why: the only list, but for sources of server_test, which are in
# server/sanitizers.cmake, so that the kernels' tests need not run again for a change there. Included by
# tests/CMakeLists.txt; tests/ci_test.py fails where a pattern names no test. All of it is in the release build's tests.
# A sanitizer is for code of ours whose memory or threads it sees nowhere else; another sweep of numbers through the same
# loops shows it nothing.

# Labels of CTest. Programs that have one are configured, so that clang-tidy sees their sources, but neither built nor
# run.
set(NORMD_LEFT_OUT "")
if(NORMD_SANITIZE)
  list(APPEND NORMD_LEFT_OUT
    accuracy       # sweeps of numbers through the kernels, which kernels_test calls in every way
    amplification  # replaces malloc, and costs would be the sanitizer's; the fuzzer of cost stands in for it
    bench          # nobody measures with a sanitizer
    checks         # of texts, scripts and reports: no code of ours runs
    crash)         # a kill leaves no report, and what is read afterwards is what the tests of the stores read
endif()
if(NORMD_SANITIZE STREQUAL "thread")
  list(APPEND NORMD_LEFT_OUT
    client kernels device proto  # run in the thread that calls them, but for the pool of the kernels: worker_pool_test
    programs)                    # have no threads that e2e_test has not
endif()
# In every build, for .ci/run, when nothing that these are made of has changed since they passed (.ci/when_changed.py).
set(NORMD_TEST_WITHOUT "" CACHE STRING "tests to leave out that link nothing of the server: client, kernels, golden")
if("kernels" IN_LIST NORMD_TEST_WITHOUT)
  list(APPEND NORMD_LEFT_OUT accuracy kernels device)
endif()
if("client" IN_LIST NORMD_TEST_WITHOUT)
  list(APPEND NORMD_LEFT_OUT client)
endif()
if("golden" IN_LIST NORMD_TEST_WITHOUT)
  list(APPEND NORMD_LEFT_OUT golden)
endif()
list(REMOVE_DUPLICATES NORMD_LEFT_OUT)
list(JOIN NORMD_LEFT_OUT "|" labels)
set(NORMD_LEFT_OUT_LABELS "${labels}" CACHE INTERNAL "labels of tests that tests/run.sh leaves out")

# normd_leave_out(SANITIZER PROGRAM PATTERN...): tests of PROGRAM_test, as GoogleTest's filters name them.
function(normd_leave_out sanitizer program)
  if(NORMD_SANITIZE STREQUAL sanitizer)
    set(NORMD_LEFT_OUT_OF_${program} ${NORMD_LEFT_OUT_OF_${program}} ${ARGN} PARENT_SCOPE)
  endif()
endfunction()

# Hashes, distances from the oracle, and equalities between methods: of calls that InvarianceTest makes, too, cut in
# every way that they can be.
normd_leave_out(address kernels GoldenTest.* */AccuracyTest.* */IdentitiesTest.*)
# The oracles, the comparison and the rows for them are code of the tests.
normd_leave_out(address kernels OracleTest.* OracleStateTest.* WideTest.* AccuracyComparisonTest.*)
normd_leave_out(address kernels NearestTest.* NearestStateTest.* BoundaryRowsTest.*)
# Of exact-4, which NearestRoundingTest.GivesTheSameBytesHoweverItRuns runs in every way, too.
normd_leave_out(address kernels NearestBoundaryTest.* */NearestRoundingTest.GivesTheNearestValueOfEveryCase/*)
normd_leave_out(address kernels */NearestRoundingTest.GivesTheSameBytesWhicheverRungDecides/*)
# Of the emulated GPUs the newest has ways of its own (clusters), and 8.9 has those of 8.0.
normd_leave_out(address device */DeviceShapesTest.*/sm_89)

# normd_discover_tests(PROGRAM FOLDER LABEL TIMEOUT): entries in CTest for the tests of a GoogleTest program.
function(normd_discover_tests program folder label timeout)
  if(label IN_LIST NORMD_LEFT_OUT)
    set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  set(filter "")
  if(NORMD_LEFT_OUT_OF_${folder})
    list(JOIN NORMD_LEFT_OUT_OF_${folder} ":" patterns)
    set(filter TEST_FILTER "-${patterns}")
  endif()
  set(processors 1)
  if(label MATCHES "^(accuracy|device|kernels)$")  # compute, where others wait: tests/run.sh runs two of these a core
    set(processors 2)
  endif()
  gtest_discover_tests(${program} ${filter} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    PROPERTIES LABELS ${label} TIMEOUT ${timeout} PROCESSORS ${processors})
endfunction()

# normd_test_folder(FOLDER): a folder with a list of its own.
function(normd_test_folder folder)
  if(folder IN_LIST NORMD_LEFT_OUT)
    add_subdirectory(${folder} EXCLUDE_FROM_ALL)
  else()
    add_subdirectory(${folder})
  endif()
endfunction()

# Programs that no test runs with a sanitizer.
if(NORMD_SANITIZE)
  set_target_properties(layer_norm train_step stream shared_memory moments errors PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
if(NORMD_SANITIZE STREQUAL "thread")
  set_target_properties(normd normctl normload normd_client_tools PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
