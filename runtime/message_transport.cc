#include "runtime/message_transport.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace dyncp {
namespace {

// Precedes every message on the wire, so that ranks that disagree are told apart at once instead of
// computing with each other's bytes.
struct Header {
  std::int64_t number = 0;  // of this ordered pair
  std::int64_t bytes = 0;
  std::int32_t microbatch = 0;
  std::int32_t layer = 0;
  std::int32_t step = 0;
  std::int32_t first_rank = 0;
  std::int32_t size = 0;
  char what[44] = {};
};

Header header_of(const OperationRecord& record, std::int64_t number, std::size_t bytes) {
  Header header;
  header.number = number;
  header.bytes = static_cast<std::int64_t>(bytes);
  header.microbatch = record.label.microbatch;
  header.layer = record.label.layer;
  header.step = record.label.step;
  header.first_rank = record.label.group.first_rank;
  header.size = record.label.group.size;
  const std::string what = std::string(record.kind) + " " + std::string(record.label.what);
  std::memcpy(header.what, what.data(), std::min(what.size(), sizeof header.what - 1));
  return header;
}

std::string describe(const Header& header) {
  std::string text = "'" + std::string(header.what) + "'";
  if (header.microbatch >= 0) text += " of microbatch " + std::to_string(header.microbatch);
  if (header.layer >= 0) text += ", layer " + std::to_string(header.layer);
  if (header.step >= 0) text += ", ring step " + std::to_string(header.step);
  if (header.size > 0) {
    text += ", CP group " + to_string(CpGroup{header.first_rank, header.size});
  }
  return text;
}

bool same_operation(const Header& a, const Header& b) {
  return a.microbatch == b.microbatch && a.layer == b.layer && a.step == b.step &&
         a.first_rank == b.first_rank && a.size == b.size &&
         std::strncmp(a.what, b.what, sizeof a.what) == 0;
}

}  // namespace

class MessageTransport::PendingExchange : public Transport::Pending {
 public:
  PendingExchange(MessageTransport& owner, std::size_t operation,
                  std::vector<ReceiveBuffer> receives)
      : owner_(owner), operation_(operation), receives_(std::move(receives)) {}

  ~PendingExchange() override {
    if (waited_) return;
    owner_.abort_world(owner_.rank_, "rank " + std::to_string(owner_.rank_) +
                                         " left an exchange without waiting for it: " +
                                         to_string(owner_.log_[operation_]));
  }

  void wait() override {
    waited_ = true;
    for (const ReceiveBuffer& receive : receives_) {
      const std::vector<std::byte> bytes = owner_.receive(operation_, receive.peer);
      if (bytes.size() != receive.bytes.size()) {
        owner_.fail(receive.peer, "rank " + std::to_string(receive.peer) + " sent " +
                                      std::to_string(bytes.size()) + " bytes where rank " +
                                      std::to_string(owner_.rank_) + " expects " +
                                      std::to_string(receive.bytes.size()) + ", in " +
                                      to_string(owner_.log_[operation_]));
      }
      std::copy(bytes.begin(), bytes.end(), receive.bytes.begin());
    }
    owner_.complete(operation_);
  }

 private:
  MessageTransport& owner_;
  std::size_t operation_;
  std::vector<ReceiveBuffer> receives_;
  bool waited_ = false;
};

MessageTransport::MessageTransport(int rank, int ranks, TransportOptions options,
                                   std::shared_ptr<FlightRecorder> recorder)
    : rank_(rank),
      ranks_(ranks),
      options_(options),
      recorder_(std::move(recorder)),
      delays_(options.faults.delay_seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(rank)),
      sent_(static_cast<std::size_t>(ranks)),
      received_(static_cast<std::size_t>(ranks)),
      held_back_(static_cast<std::size_t>(ranks)) {
  recorder_->set_state(rank_, RankState::kRunning);
}

std::size_t MessageTransport::begin(std::string_view kind, const OperationLabel& label) {
  if (rank_ == options_.faults.slow_rank) std::this_thread::sleep_for(options_.faults.slow_by);
  OperationRecord record;
  record.index = static_cast<std::int64_t>(log_.size());
  record.kind = kind;
  record.label = label;
  log_.push_back(std::move(record));
  recorder_->begin_operation(rank_, log_.back());
  return log_.size() - 1;
}

void MessageTransport::complete(std::size_t operation) {
  log_[operation].completed = true;
  recorder_->complete_operation(rank_, log_[operation]);
}

void MessageTransport::pause_at_random() {
  const auto most = options_.faults.max_delay.count();
  if (options_.faults.delay_seed == 0 || most == 0) return;
  const auto pause = delays_() % static_cast<std::uint64_t>(most + 1);
  std::this_thread::sleep_for(std::chrono::microseconds(pause));
}

void MessageTransport::fail(int culprit, const std::string& report) {
  recorder_->set_failure(rank_, report.substr(0, report.find('\n')));
  abort_world(culprit, report);
  throw TransportError(culprit, report);
}

void MessageTransport::send(std::size_t operation, int peer, std::span<const std::byte> bytes) {
  const auto p = static_cast<std::size_t>(peer);
  OperationRecord& record = log_[operation];
  record.send_to.push_back(peer);
  record.bytes_sent += static_cast<std::int64_t>(bytes.size());
  const std::int64_t number = sent_[p]++;
  const Header header = header_of(record, number, bytes.size());
  std::vector<std::byte> message(sizeof header + bytes.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::copy(bytes.begin(), bytes.end(), message.begin() + sizeof header);
  pause_at_random();
  recorder_->count_sent(rank_, peer);
  const auto hit = [&](const std::optional<TransportFaults::MessageFault>& fault) {
    return fault && fault->from == rank_ && fault->to == peer && fault->number == number;
  };
  if (hit(options_.faults.drop)) return;
  if (hit(options_.faults.reorder)) {
    held_back_[p] = std::move(message);
    return;
  }
  if (hit(options_.faults.duplicate)) put(peer, message);
  put(peer, std::move(message));
  if (!held_back_[p].empty()) put(peer, std::exchange(held_back_[p], {}));
}

std::vector<std::byte> MessageTransport::receive(std::size_t operation, int peer) {
  const auto p = static_cast<std::size_t>(peer);
  pause_at_random();
  recorder_->set_state(rank_, RankState::kWaiting, peer);
  std::optional<std::vector<std::byte>> message = take(peer, Clock::now() + options_.deadline);
  if (!message) {
    const std::string reason = "rank " + std::to_string(rank_) + " waited " +
                               std::to_string(options_.deadline.count()) + " ms for rank " +
                               std::to_string(peer) + " in " + to_string(log_[operation]);
    const int culprit = recorder_->find_culprit(rank_);
    const std::string report = recorder_->report(rank_, reason);
    fail(culprit, report);
  }
  recorder_->set_state(rank_, RankState::kRunning);
  recorder_->count_received(rank_, peer);
  Header header;
  std::memcpy(&header, message->data(), sizeof header);
  const Header expected = header_of(log_[operation], received_[p]++, 0);
  if (header.number != expected.number) {
    fail(peer, "message " + std::to_string(header.number) + " from rank " + std::to_string(peer) +
                   " reached rank " + std::to_string(rank_) + " where message " +
                   std::to_string(expected.number) +
                   " was due: messages were lost, repeated or reordered");
  }
  if (!same_operation(header, expected)) {
    fail(peer, "rank " + std::to_string(peer) + " runs " + describe(header) + " while rank " +
                   std::to_string(rank_) + " runs " + describe(expected) +
                   ": the ranks follow different plans");
  }
  message->erase(message->begin(), message->begin() + sizeof header);
  return std::move(*message);
}

std::unique_ptr<Transport::Pending> MessageTransport::start_exchange(
    std::vector<SendBuffer> sends, std::vector<ReceiveBuffer> receives,
    const OperationLabel& label) {
  const std::size_t operation = begin("exchange", label);
  for (const ReceiveBuffer& receive : receives) {
    log_[operation].receive_from.push_back(receive.peer);
    log_[operation].bytes_received += static_cast<std::int64_t>(receive.bytes.size());
  }
  for (const SendBuffer& buffer : sends) send(operation, buffer.peer, buffer.bytes);
  recorder_->begin_operation(rank_, log_[operation]);  // now with its peers and bytes
  return std::make_unique<PendingExchange>(*this, operation, std::move(receives));
}

std::vector<std::vector<std::byte>> MessageTransport::swap_all(
    std::size_t operation, const std::function<std::span<const std::byte>(int)>& to_peer) {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) send(operation, peer, to_peer(peer));
  }
  std::vector<std::vector<std::byte>> result(static_cast<std::size_t>(ranks_));
  for (int peer = 0; peer < ranks_; ++peer) {
    auto& bytes = result[static_cast<std::size_t>(peer)];
    if (peer == rank_) {
      const auto own = to_peer(peer);
      bytes.assign(own.begin(), own.end());
    } else {
      bytes = receive(operation, peer);
      log_[operation].bytes_received += static_cast<std::int64_t>(bytes.size());
    }
  }
  complete(operation);
  return result;
}

void MessageTransport::all_reduce_sum(std::span<double> values, const OperationLabel& label) {
  const std::size_t operation = begin("all-reduce", label);
  const auto gathered =
      swap_all(operation, [&](int) { return std::as_bytes(std::span<const double>(values)); });
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto& bytes = gathered[static_cast<std::size_t>(peer)];
    if (bytes.size() != values.size_bytes()) {
      fail(peer, "rank " + std::to_string(peer) + " reduces " +
                     std::to_string(bytes.size() / sizeof(double)) + " values where rank " +
                     std::to_string(rank_) + " reduces " + std::to_string(values.size()));
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (const auto& bytes : gathered) {
      double value;
      std::memcpy(&value, bytes.data() + i * sizeof(double), sizeof value);
      sum += value;
    }
    values[i] = sum;
  }
}

std::vector<std::vector<std::byte>> MessageTransport::all_gather(std::span<const std::byte> mine,
                                                                 const OperationLabel& label) {
  return swap_all(begin("all-gather", label), [&](int) { return mine; });
}

std::vector<std::vector<std::byte>> MessageTransport::all_to_all(
    const std::vector<std::vector<std::byte>>& outgoing, const OperationLabel& label) {
  return swap_all(begin("all-to-all", label), [&](int peer) {
    return std::span<const std::byte>(outgoing[static_cast<std::size_t>(peer)]);
  });
}

void MessageTransport::barrier(const OperationLabel& label) {
  swap_all(begin("barrier", label), [](int) { return std::span<const std::byte>(); });
}

void MessageTransport::abort(const std::string& reason) {
  recorder_->set_failure(rank_, reason);
  abort_world(rank_, "rank " + std::to_string(rank_) + " gave up: " + reason);
}

}  // namespace dyncp
