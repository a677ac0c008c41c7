// The fields of the method that a NormSpec chooses, by their names, for code that treats all methods alike. Pure
// functions.
//
//   DoubleOf(spec, "eps");  // 0 where the method has no eps, or it is not set
#ifndef NORMD_CLIENT_NORMCTL_SPEC_FIELDS_H_
#define NORMD_CLIENT_NORMCTL_SPEC_FIELDS_H_

#include <initializer_list>

#include "google/protobuf/message.h"
#include "normd/v1/norm.pb.h"

namespace normd::client {

// The message of the method. REQUIRES: `spec` chooses one.
const google::protobuf::Message& MethodMessage(const v1::NormSpec& spec);

// A spec that chooses no method has no fields.
bool HasField(const v1::NormSpec& spec, const char* name);  // set or not
bool IsSet(const v1::NormSpec& spec, const char* name);
// 0 for a field that is not set, or that the method does not have.
double DoubleOf(const v1::NormSpec& spec, const char* name);
int EnumOf(const v1::NormSpec& spec, const char* name);

// REQUIRES: the method has the field.
void SetDouble(v1::NormSpec& spec, const char* name, double value);
void SetEnum(v1::NormSpec& spec, const char* name, int value);
// Clears those that the method has. REQUIRES: `spec` chooses a method.
void ClearFields(v1::NormSpec& spec, std::initializer_list<const char*> names);

// Whether `spec` rounds before the affine step.
bool CastsFirst(const v1::NormSpec& spec);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SPEC_FIELDS_H_
