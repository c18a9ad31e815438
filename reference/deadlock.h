// Whether ranks that each run a list of communication operations can all get to the end (R12).
// Operations match like those of MPI and NCCL: between two ranks of one communicator the k-th send
// meets the k-th receive, and the k-th collective of a communicator is one meeting of its members.
// There is no wildcard receive, so whether a set of lists ends does not depend on timing: one
// simulation decides it. What is stuck is explained by its wait-for graph.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "reference/schedule.h"

namespace dyncp {

/// One communication operation of one rank.
struct Operation {
  enum class Kind { kSend, kReceive, kCollective };

  Kind kind = Kind::kSend;
  int peer = -1;           // the other rank of a send or receive
  int communicator = 0;    // index into OperationLists::communicators
  std::int64_t bytes = 0;  // per rank
  int exchange = -1;       // neighbours in a list with the same number >= 0 proceed together
  int microbatch = -1;     // for reports only, like step
  int step = -1;           // ring step
  std::string what;  // "ring forward", "barrier", ...; must agree among a collective's members

  bool operator==(const Operation&) const = default;
};

/// What every rank runs. REQUIRES: members are indices into `operations`.
struct OperationLists {
  std::vector<std::vector<int>> communicators;     // members, ascending; by convention [0] is all
  std::vector<std::vector<Operation>> operations;  // by rank, in program order
};

/// When a send ends.
///   kRendezvous  when the receive that it meets has been posted (blocking; NCCL, large messages)
///   kBuffered    at once (eager small messages)
/// Receives and collectives always wait. Operations of one exchange are all posted before any is
/// waited for (ncclGroupStart/End, batched isend/irecv).
enum class SendMode { kRendezvous, kBuffered };

enum class CommunicationRule {
  kCommunicatorExists,  // the operation's communicator exists and has this rank and its peer
  kPaired,              // every send has a receive and every receive a send
  kBytesMatch,          // the two have the same size
  kCollectiveCount,     // members of a communicator run the same number of collectives on it
  kCollectiveOrder,     // ... and the k-th is the same operation of the same size on all of them
  kNoWaitCycle,         // no ranks wait for each other in a circle
};

/// Stable kebab-case name, for example "no-wait-cycle".
std::string_view to_string(CommunicationRule rule);

/// One broken rule. -1 where a field does not apply.
struct CommunicationViolation {
  CommunicationRule rule = CommunicationRule::kPaired;
  int rank = -1;
  int operation = -1;  // index into the rank's list
  int peer = -1;       // the other rank concerned
  std::string
      sentence;  // complete: names rank, operation, peer and numbers; a cycle names them all
  bool operator==(const CommunicationViolation&) const = default;
};

/// Everything wrong with the lists, in the order of the rules. Empty means that every rank gets to
/// its end, in any timing. When a rank would hang, at least one violation says why: it waits in a
/// cycle (kNoWaitCycle), or for an operation that its peer never runs (kPaired,
/// kCollectiveCount). Linear in the number of operations.
std::vector<CommunicationViolation> check_operations(const OperationLists& lists,
                                                     SendMode mode = SendMode::kRendezvous);

/// How a rank finds the CP group that it runs a sequence on.
///   kSchedule   the schedule's own group
///   kFramework  what frameworks do: the rank knows only the size and takes the group of that size
///               that it is a member of (group policy `aligned`); with a schedule whose groups do
///               not exist, members then talk to ranks that run something else
enum class GroupLookup { kSchedule, kFramework };

/// How a schedule is turned into operations.
struct OperationOptions {
  GroupLookup lookup = GroupLookup::kSchedule;
  bool group_communicators = false;  // rings on a communicator of their CP group, not on the world
  bool grouped = true;               // send to the next and receive from the previous rank together
  bool backward = true;
  bool barrier = false;  // all ranks meet after each microbatch
  /// All ranks meet in each forward pass: expert parallelism over the rank domain.
  bool collective_each_forward = false;
  std::int64_t bytes_per_token = 1;  // K and V of one token
  /// Rings are cut off after so many steps each way. A ring repeats one and the same exchange, so
  /// that few steps show what all would; large domains have millions.
  int most_ring_steps = std::numeric_limits<int>::max();
};

/// The operations of every rank when it runs `schedule`: for each pack (serial execution: each
/// sequence) size-1 forward ring steps, K/V to the next rank of the group, then `size` backward
/// steps the other way round that carry K/V (first), both (middle) or dK/dV (last).
/// Bytes are ceil(padded tokens / size) * bytes_per_token. A rank whose group does not exist gets
/// one operation on communicator -1 in its place. Groups are cut off at the domain.
/// REQUIRES: require_valid(problem); ids of the schedule are indices into problem.lengths, sizes at
/// least 1.
OperationLists operations_of(const ScheduleProblem& problem, const Schedule& schedule,
                             const OperationOptions& options = {});

}  // namespace dyncp
