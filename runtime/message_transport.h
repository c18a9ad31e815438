// Everything of a Transport that follows from two primitives, "put a message" and "take a message":
// grouped exchanges, collectives, the operation log, deadlines, fault injection and reports.
// Threads and MPI differ only in the primitives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/flight_recorder.h"
#include "runtime/transport.h"

namespace dyncp {

/// Faults that a transport injects on purpose. Message numbers count from 0 per ordered pair of
/// ranks.
struct TransportFaults {
  std::uint64_t delay_seed = 0;  // with max_delay: random pauses around every message
  std::chrono::microseconds max_delay{0};
  struct MessageFault {
    int from = 0;
    int to = 0;
    std::int64_t number = 0;
  };
  std::optional<MessageFault> drop;       // this message is never delivered
  std::optional<MessageFault> duplicate;  // this message is delivered twice
  std::optional<MessageFault> reorder;    // this message is delivered after the one that follows it
  int slow_rank = -1;                     // this rank pauses before each operation
  std::chrono::microseconds slow_by{0};
};

struct TransportOptions {
  std::chrono::milliseconds deadline{30000};  // of each wait
  TransportFaults faults;
};

class MessageTransport : public Transport {
 public:
  MessageTransport(int rank, int ranks, TransportOptions options,
                   std::shared_ptr<FlightRecorder> recorder);

  int rank() const final { return rank_; }
  int ranks() const final { return ranks_; }
  std::unique_ptr<Pending> start_exchange(std::vector<SendBuffer> sends,
                                          std::vector<ReceiveBuffer> receives,
                                          const OperationLabel& label) final;
  void all_reduce_sum(std::span<double> values, const OperationLabel& label) final;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 const OperationLabel& label) final;
  std::vector<std::vector<std::byte>> all_to_all(
      const std::vector<std::vector<std::byte>>& outgoing, const OperationLabel& label) final;
  void barrier(const OperationLabel& label) final;
  void abort(const std::string& reason) final;
  const std::vector<OperationRecord>& log() const final { return log_; }

 protected:
  using Clock = std::chrono::steady_clock;

  /// Hands the message to `peer`; may not wait for the peer to take it.
  virtual void put(int peer, std::vector<std::byte> message) = 0;
  /// The next message from `peer` in the order it was put; nothing when `until` passes first.
  /// Throws TransportError when the world has been aborted.
  virtual std::optional<std::vector<std::byte>> take(int peer, Clock::time_point until) = 0;
  /// Makes every other rank's waits end with TransportError.
  virtual void abort_world(int culprit, const std::string& report) = 0;

 private:
  class PendingExchange;

  std::size_t begin(std::string_view kind, const OperationLabel& label);
  void complete(std::size_t operation);
  void send(std::size_t operation, int peer, std::span<const std::byte> bytes);
  std::vector<std::byte> receive(std::size_t operation, int peer);
  void pause_at_random();
  [[noreturn]] void fail(int culprit, const std::string& report);
  std::vector<std::vector<std::byte>> swap_all(
      std::size_t operation, const std::function<std::span<const std::byte>(int)>& to_peer);

  int rank_;
  int ranks_;
  TransportOptions options_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::mt19937_64 delays_;
  std::vector<OperationRecord> log_;
  std::vector<std::int64_t> sent_;                 // messages so far, by peer
  std::vector<std::int64_t> received_;             // messages so far, by peer
  std::vector<std::vector<std::byte>> held_back_;  // by peer: a message that a fault delays
};

}  // namespace dyncp
