// Ranks as threads of one process, messages through host memory: the embedded default.
#pragma once

#include <functional>

#include "runtime/message_transport.h"

namespace dyncp {

/// Runs `body` once on each of `ranks` threads, each with its own endpoint, and returns when all
/// have finished. When a rank throws, or a wait passes its deadline, every rank is aborted and this
/// throws: a TransportError whose first line names the culprit; InvalidInput and Infeasible of a
/// rank pass through. A thread that never comes back (it ignores the abort for another deadline) is
/// left behind and named; the process should then exit. Throws InvalidInput unless 1 <= ranks
/// <= 64.
void run_thread_ranks(int ranks, const TransportOptions& options,
                      const std::function<void(Transport&)>& body);

}  // namespace dyncp
