#include "runtime/run_ranks.h"

#include <cstddef>
#include <memory>

#include "reference/error.h"
#include "runtime/thread_transport.h"

namespace dyncp {

std::string_view to_string(TransportKind kind) {
  return kind == TransportKind::kThreads ? "threads" : "mpi";
}

TransportKind parse_transport_kind(std::string_view name) {
  if (name == "threads") return TransportKind::kThreads;
  if (name == "mpi") return TransportKind::kMpi;
  throw InvalidInput("unknown transport '" + std::string(name) + "': expected threads or mpi");
}

bool is_main_process() { return true; }

std::vector<std::string> run_ranks(TransportKind kind, int ranks, const TransportOptions& options,
                                   const std::function<std::string(Transport&)>& body) {
  if (kind == TransportKind::kMpi) throw Unavailable("--transport mpi: built without MPI");
  // Shared with the ranks: one that never comes back may still write its result.
  const auto results =
      std::make_shared<std::vector<std::string>>(static_cast<std::size_t>(ranks > 0 ? ranks : 0));
  run_thread_ranks(ranks, options, [results, body](Transport& transport) {
    (*results)[static_cast<std::size_t>(transport.rank())] = body(transport);
  });
  return *results;
}

}  // namespace dyncp
