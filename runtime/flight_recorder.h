// What each rank is doing right now and did last, readable by everybody, alive or not.
// Lives in memory shared by all ranks: anonymous for threads, a mapped file for processes, so that
// a report can still be written when a rank has died. Fixed-size plain slots, no pointers, one
// writer a slot.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/transport.h"

namespace dyncp {

/// Whether a rank is computing, waiting for a message, or gone.
enum class RankState : std::int32_t { kNotStarted, kRunning, kWaiting, kFinished, kFailed };

/// A snapshot of one rank.
struct RankSnapshot {
  RankState state = RankState::kNotStarted;
  int waiting_for = -1;                // rank whose message is missing, when kWaiting
  std::int64_t operations = 0;         // issued so far
  std::vector<std::string> last;       // the last few operations, oldest first
  std::vector<std::int64_t> sent;      // messages sent to each rank
  std::vector<std::int64_t> received;  // messages taken from each rank
  std::string failure;                 // why it failed, when kFailed
};

class FlightRecorder {
 public:
  /// For ranks that are threads of this process.
  static std::shared_ptr<FlightRecorder> in_memory(int ranks);
  /// For ranks that are processes: `path` is created by whoever comes first, and mapped by all.
  /// Throws InvalidInput when it cannot be created or mapped.
  static std::shared_ptr<FlightRecorder> in_file(const std::string& path, int ranks);

  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  int ranks() const { return ranks_; }

  // Written by rank `rank` only.
  void set_state(int rank, RankState state, int waiting_for = -1);
  void set_failure(int rank, const std::string& why);
  void begin_operation(int rank, const OperationRecord& record);
  void complete_operation(int rank, const OperationRecord& record);
  void count_sent(int rank, int peer);
  void count_received(int rank, int peer);

  RankSnapshot snapshot(int rank) const;

  /// The rank that keeps `waiting_rank` from going on: follows who waits for whom until a rank that
  /// is not waiting, or a message that was sent and never arrived, or a cycle. -1 when it cannot be
  /// told.
  int find_culprit(int waiting_rank) const;

  /// One screen: a first line that names the culprit and why, then each rank's state and last
  /// operations (at most 16 ranks in full).
  std::string report(int waiting_rank, const std::string& reason) const;

 private:
  FlightRecorder(void* memory, std::size_t bytes, int ranks);
  struct Slot;
  Slot& slot(int rank) const;

  void* memory_;
  std::size_t bytes_;
  int ranks_;
};

}  // namespace dyncp
