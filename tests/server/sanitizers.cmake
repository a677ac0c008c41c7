# Sources of server_test in which one thread alone runs, so that the thread sanitizer has nothing to compare; e2e_test
# has the same code in a server with all its threads. A regular expression of paths.
if(NORMD_SANITIZE STREQUAL "thread")
  string(CONCAT NORMD_SOURCES_LEFT_OUT_OF_server
    "/server/(make_token|service_manager|options/(config|config_file|option_help|option_sources)"
    "|admin/(http_request|metric_reading|status_report)"
    "|base/(clock|errors|lru|regular_file|slice|tenant_quotas|traceparent)"
    "|engine/engine_refusals|obs/(session_drifts|tenant_metrics)|rpc/codec/[a-z_]+"
    "|security/(certificates|content_memory|pattern|policy_file|readme_policy|token_list)"
    "|session/(running_state|session_checks|session_key|record/[a-z_]+))_test[.]cc$")
endif()
