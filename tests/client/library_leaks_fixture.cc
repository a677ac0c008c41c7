// What LeakSanitizer is to overlook in client_test: c-ares, by which gRPC looks up names, keeps some bytes of each
// resolver of a name.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares"; }
#endif
#endif
