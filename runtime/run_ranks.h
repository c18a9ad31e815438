// One entry for everything that runs on several ranks, whatever carries their messages.
//
// With threads, the body runs on threads of this process. With MPI it runs in other processes: the
// process that the user started becomes the supervisor, starts `mpirun` with this same program and
// command line, and the k-th run_ranks call of each rank process runs the body of the k-th call
// here, then ends that process. So a program that calls run_ranks
//   - must come to the same calls every time it is run with the same command line,
//   - takes what it needs out of the body by the returned strings alone (captured variables stay in
//     the rank's process; with threads they would be shared between ranks),
//   - prints and writes files outside of bodies only where is_main_process(), inside of bodies on
//     one rank only.
// Started by the user's own mpirun or srun there is no supervisor: all processes run on with the
// same results, and only rank 0 is the main process.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/message_transport.h"

namespace dyncp {

enum class TransportKind { kThreads, kMpi };

/// "threads" or "mpi".
std::string_view to_string(TransportKind kind);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
TransportKind parse_transport_kind(std::string_view name);

/// Whether this process may print and write results: not in the rank processes of run_ranks.
bool is_main_process();

/// Runs `body` on `ranks` ranks and returns what each returned (any bytes), by rank. When a rank
/// throws, dies, or a deadline passes, all ranks are ended and this throws TransportError with a
/// one-screen report that names the culprit; InvalidInput and Infeasible of a rank pass through.
/// Throws InvalidInput unless 1 <= ranks <= 64, Unavailable for kMpi when this build or machine has
/// no MPI.
std::vector<std::string> run_ranks(TransportKind kind, int ranks, const TransportOptions& options,
                                   const std::function<std::string(Transport&)>& body);

}  // namespace dyncp
