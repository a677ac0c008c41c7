// Methods as text for people, made from what the server says of itself: the page of one method, and the attributes of
// all methods. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_METHOD_PAGE_H_
#define NORMD_CLIENT_NORMCTL_METHOD_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Formula, axes with pictures, parameters, attributes, uses and an example.
std::string MethodPage(const v1::MethodDescription& method, int width);

// Every attribute once, with the methods that have it and their defaults.
std::string AttributesText(const v1::DescribeResponse& describe, int width);

// A small tensor with the axes of `shape`, "B,C,H,W": equal letters mark the elements that share their statistics,
// taken over `axes` as a MethodDescription writes them. Capitals mark the first k of an axis. Empty if the method does
// not apply.
std::string AxesPicture(absl::string_view shape, absl::string_view axes);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_METHOD_PAGE_H_
