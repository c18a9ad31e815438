// How ranks talk: one interface over threads in one process, MPI processes and (later) NCCL.
// The ring needs only grouped send/receive on one world of ranks, whatever the CP size; collectives
// serve the data pipeline and the gradient sum. Every operation is recorded, every wait has a
// deadline, and a missed deadline ends in a report that names rank, CP group, step and peer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reference/group.h"

namespace dyncp {

/// What an operation is for; reports print it. Fields that do not apply stay at their defaults.
struct OperationLabel {
  std::string_view what;  // a string literal: "ring forward", "gradient sum", ...
  int microbatch = -1;
  int layer = -1;
  int step = -1;        // ring step
  CpGroup group{0, 0};  // the CP group at work; size 0 = the world
};

/// `bytes` go to / come from rank `peer`. The memory must outlive the operation.
struct SendBuffer {
  int peer = 0;
  std::span<const std::byte> bytes;
};
struct ReceiveBuffer {
  int peer = 0;
  std::span<std::byte> bytes;
};

/// One recorded operation of one rank, in program order.
struct OperationRecord {
  std::int64_t index = 0;
  std::string_view kind;  // "exchange", "all-reduce", "all-gather", "all-to-all", "barrier"
  OperationLabel label;
  std::vector<int> send_to;
  std::vector<int> receive_from;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  bool completed = false;
};

/// "microbatch 3, layer 1, ring step 2 of ranks 4..7 (size 4): receives 4096 bytes from rank 5".
std::string to_string(const OperationRecord& record);

/// A run that cannot go on: a deadline missed, a rank dead, a message that does not match. what()
/// is a one-screen report whose first line names the culprit. Maps to exit code 1.
class TransportError : public std::runtime_error {
 public:
  TransportError(int culprit_rank, const std::string& report)
      : std::runtime_error(report), culprit_rank_(culprit_rank) {}
  /// The rank that did not do its part, -1 when it cannot be told.
  int culprit_rank() const { return culprit_rank_; }

 private:
  int culprit_rank_;
};

/// One rank's endpoint. Not thread-safe: one operation at a time, except that work may go on
/// between start_exchange and Pending::wait.
class Transport {
 public:
  /// An exchange under way. Destroying it without wait() aborts the world.
  class Pending {
   public:
    virtual ~Pending() = default;
    /// Returns when every byte of the group has been received and every send buffer may be reused.
    /// Throws TransportError after the deadline.
    virtual void wait() = 0;
  };

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Sends and receives that proceed together, like ncclGroupStart/End: their order inside the
  /// group cannot deadlock. Between two ranks messages keep program order; sizes must match the
  /// peer's.
  virtual std::unique_ptr<Pending> start_exchange(std::vector<SendBuffer> sends,
                                                  std::vector<ReceiveBuffer> receives,
                                                  const OperationLabel& label) = 0;
  void exchange(std::vector<SendBuffer> sends, std::vector<ReceiveBuffer> receives,
                const OperationLabel& label);

  /// Element-wise sum over all ranks, added in rank order: bitwise the same on every rank and in
  /// every run. All ranks must pass the same number of values.
  virtual void all_reduce_sum(std::span<double> values, const OperationLabel& label) = 0;

  /// Every rank's bytes, by rank; sizes may differ.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                         const OperationLabel& label) = 0;

  /// outgoing[r] goes to rank r; returns what each rank sent here, by rank. Sizes may differ.
  /// REQUIRES: outgoing.size() == ranks().
  virtual std::vector<std::vector<std::byte>> all_to_all(
      const std::vector<std::vector<std::byte>>& outgoing, const OperationLabel& label) = 0;

  virtual void barrier(const OperationLabel& label) = 0;

  /// Ends the run on all ranks; every pending and later operation throws TransportError.
  virtual void abort(const std::string& reason) = 0;

  /// Everything this rank has issued so far, for the order check (rule R12) and for reports.
  virtual const std::vector<OperationRecord>& log() const = 0;
};

/// A trivially copyable value or vector as bytes and back.
template <typename T>
std::span<const std::byte> as_bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}
template <typename T>
std::span<std::byte> as_writable_bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}
template <typename T>
std::vector<T> from_bytes(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  const std::span<std::byte> target = std::as_writable_bytes(std::span<T>(values));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = bytes[i];
  return values;
}

}  // namespace dyncp
