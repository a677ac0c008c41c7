// gRPC server reflection, versions v1 and v1alpha: what grpcurl and its like ask for the services of a server and for
// the messages that they take.
// In the path: beside it, on the same queues as everything else; not counted as work. The descriptors are those that
// this program was compiled with.
// Threads: safe from any thread. A stream holds at most one request and one reply.
#ifndef NORMD_SERVER_RPC_SERVICES_REFLECTION_H_
#define NORMD_SERVER_RPC_SERVICES_REFLECTION_H_

#include <google/protobuf/descriptor.h>

#include <set>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.pb.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

// The reply to one request: descriptors out of `pool`, or the names of `services`. A name that is not in the pool and a
// request of no kind are answered with an ErrorResponse.
grpc::reflection::v1::ServerReflectionResponse ReplyToReflection(grpc::reflection::v1::ServerReflectionRequest request,
                                                                 const google::protobuf::DescriptorPool& pool,
                                                                 const std::set<std::string>& services);

// The routes of both versions, which list the services of `served` and their own two. `context` is borrowed and must
// outlive the streams.
std::vector<Route> ReflectionRoutes(const RouteContext* context, const std::vector<Route>& served);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_REFLECTION_H_
