// The demo's inputs, compiled in (see embed.cmake), so that an installed normctl needs no files.
#ifndef NORMD_CLIENT_NORMCTL_DEMO_DATA_H_
#define NORMD_CLIENT_NORMCTL_DEMO_DATA_H_

#include "absl/strings/string_view.h"

namespace normd::client {

// Published worked examples, as a JSON list.
absl::string_view WorkedExamplesJson();

// Fisher's iris measurements as .csv: a header line and 150 rows of 4 numbers.
absl::string_view IrisCsv();

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_DEMO_DATA_H_
