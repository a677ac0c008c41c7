// The status page's HTML, style and script, compiled in from status_page.html.
#ifndef NORMD_SERVER_ADMIN_STATUS_PAGE_H_
#define NORMD_SERVER_ADMIN_STATUS_PAGE_H_

#include "absl/strings/string_view.h"

namespace normd {

// With {{nonce}}, {{state}} and {{tables}} to be replaced (status_report.h).
absl::string_view StatusPageTemplate();

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_STATUS_PAGE_H_
