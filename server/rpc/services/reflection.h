// gRPC server reflection, versions v1 and v1alpha: tools such as grpcurl ask it for the services of a server and for
// their messages. The descriptors are those with which this program was compiled.
// In the path: beside it, on the same queues as everything else; not counted as work.
// Threads: safe from any thread. A stream holds at most one request and one reply.
#ifndef NORMD_SERVER_RPC_SERVICES_REFLECTION_H_
#define NORMD_SERVER_RPC_SERVICES_REFLECTION_H_

#include <google/protobuf/descriptor.h>

#include <set>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.pb.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

// Makes the reply to one request: descriptors from `pool`, or the names of `services`. The reply to an unknown name,
// and to a request that asks for nothing, is an ErrorResponse.
grpc::reflection::v1::ServerReflectionResponse ReplyToReflection(grpc::reflection::v1::ServerReflectionRequest request,
                                                                 const google::protobuf::DescriptorPool& pool,
                                                                 const std::set<std::string>& services);

// Makes the routes of both versions, which list the services of `served` and the two of reflection. Borrows `context`,
// which must outlive the streams.
std::vector<Route> ReflectionRoutes(const RouteContext* context, const std::vector<Route>& served);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_REFLECTION_H_
