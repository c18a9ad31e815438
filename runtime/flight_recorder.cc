#include "runtime/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <set>

#include "reference/error.h"

namespace dyncp {
namespace {

constexpr int kKept = 4;            // operations kept per rank
constexpr std::size_t kText = 256;  // bytes of text per operation
constexpr int kMaxWorld = 64;       // ranks a recorder holds; message counts are a square table

void copy_text(char* target, const std::string& text) {
  const std::size_t length = std::min(text.size(), kText - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

std::string state_text(const RankSnapshot& rank) {
  switch (rank.state) {
    case RankState::kNotStarted:
      return "has not started";
    case RankState::kRunning:
      return "is outside any operation";
    case RankState::kWaiting:
      return "waits for rank " + std::to_string(rank.waiting_for);
    case RankState::kFinished:
      return "has finished";
    case RankState::kFailed:
      return "failed: " + rank.failure;
  }
  return "?";
}

}  // namespace

// Plain data in zero-filled shared memory. Text may be torn while a rank writes it; it is only read
// for reports, when that rank is stuck or gone.
struct FlightRecorder::Slot {
  std::atomic<std::int32_t> state;
  std::atomic<std::int32_t> waiting_for;
  std::atomic<std::int64_t> operations;
  std::atomic<std::int64_t> sent[kMaxWorld];
  std::atomic<std::int64_t> received[kMaxWorld];
  char last[kKept][kText];
  char failure[kText];
};

FlightRecorder::FlightRecorder(void* memory, std::size_t bytes, int ranks)
    : memory_(memory), bytes_(bytes), ranks_(ranks) {}

FlightRecorder::~FlightRecorder() { munmap(memory_, bytes_); }

FlightRecorder::Slot& FlightRecorder::slot(int rank) const {
  return static_cast<Slot*>(memory_)[rank];
}

std::shared_ptr<FlightRecorder> FlightRecorder::in_memory(int ranks) {
  if (ranks < 1 || ranks > kMaxWorld) {
    throw InvalidInput("ranks " + std::to_string(ranks) + " is outside 1.." +
                       std::to_string(kMaxWorld));
  }
  const std::size_t bytes = sizeof(Slot) * static_cast<std::size_t>(ranks);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return std::shared_ptr<FlightRecorder>(new FlightRecorder(memory, bytes, ranks));
}

std::shared_ptr<FlightRecorder> FlightRecorder::in_file(const std::string& path, int ranks) {
  if (ranks < 1 || ranks > kMaxWorld) {
    throw InvalidInput("ranks " + std::to_string(ranks) + " is outside 1.." +
                       std::to_string(kMaxWorld));
  }
  const std::size_t bytes = sizeof(Slot) * static_cast<std::size_t>(ranks);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  // ftruncate extends with zeros and leaves an existing file of this size as it is.
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const std::string why = std::strerror(errno);
    if (file >= 0) close(file);
    throw InvalidInput("cannot create the flight recorder file " + path + ": " + why);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw InvalidInput("cannot map the flight recorder file " + path);
  return std::shared_ptr<FlightRecorder>(new FlightRecorder(memory, bytes, ranks));
}

void FlightRecorder::set_state(int rank, RankState state, int waiting_for) {
  slot(rank).waiting_for = waiting_for;
  slot(rank).state = static_cast<std::int32_t>(state);
}

void FlightRecorder::set_failure(int rank, const std::string& why) {
  copy_text(slot(rank).failure, why);
  set_state(rank, RankState::kFailed);
}

void FlightRecorder::begin_operation(int rank, const OperationRecord& record) {
  Slot& s = slot(rank);
  copy_text(s.last[record.index % kKept], to_string(record));
  s.operations = record.index + 1;
}

void FlightRecorder::complete_operation(int rank, const OperationRecord& record) {
  // A later operation may have taken the place already.
  if (slot(rank).operations - record.index <= kKept) {
    copy_text(slot(rank).last[record.index % kKept], to_string(record));
  }
}

void FlightRecorder::count_sent(int rank, int peer) { ++slot(rank).sent[peer]; }

void FlightRecorder::count_received(int rank, int peer) { ++slot(rank).received[peer]; }

RankSnapshot FlightRecorder::snapshot(int rank) const {
  const Slot& s = slot(rank);
  RankSnapshot result;
  result.state = static_cast<RankState>(s.state.load());
  result.waiting_for = result.state == RankState::kWaiting ? s.waiting_for.load() : -1;
  result.operations = s.operations;
  for (std::int64_t i = std::max<std::int64_t>(0, result.operations - kKept); i < result.operations;
       ++i) {
    result.last.emplace_back(s.last[i % kKept]);
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    result.sent.push_back(s.sent[peer]);
    result.received.push_back(s.received[peer]);
  }
  result.failure = s.failure;
  return result;
}

int FlightRecorder::find_culprit(int waiting_rank) const {
  std::set<int> seen;
  int rank = waiting_rank;
  while (rank >= 0 && seen.insert(rank).second) {
    const RankSnapshot here = snapshot(rank);
    if (here.state != RankState::kWaiting) return rank;
    const int peer = here.waiting_for;
    if (peer < 0 || peer >= ranks_) return rank;
    // Sent and never taken: the message, not the peer's pace, is what is missing.
    if (snapshot(peer).sent[static_cast<std::size_t>(rank)] >
        here.received[static_cast<std::size_t>(peer)]) {
      return peer;
    }
    rank = peer;
  }
  return rank;  // a cycle: any member names it
}

std::string FlightRecorder::report(int waiting_rank, const std::string& reason) const {
  const int culprit = find_culprit(waiting_rank);
  std::string text;
  if (culprit >= 0) {
    const RankSnapshot rank = snapshot(culprit);
    text = "rank " + std::to_string(culprit) + " is the culprit: it ";
    // Which of its messages was lost, if one was.
    int victim = -1;
    for (int other = 0; other < ranks_; ++other) {
      const RankSnapshot there = snapshot(other);
      if (there.state == RankState::kWaiting && there.waiting_for == culprit &&
          rank.sent[static_cast<std::size_t>(other)] >
              there.received[static_cast<std::size_t>(culprit)]) {
        victim = other;
      }
    }
    if (victim >= 0) {
      text += "sent " + std::to_string(rank.sent[static_cast<std::size_t>(victim)]) +
              " messages to rank " + std::to_string(victim) + ", which has received only " +
              std::to_string(snapshot(victim).received[static_cast<std::size_t>(culprit)]) +
              ": a message was lost";
    } else {
      text += state_text(rank);
      if (!rank.last.empty()) text += "; its last operation: " + rank.last.back();
    }
    text += '\n';
  }
  text += reason + '\n';
  constexpr int kShown = 16;
  for (int r = 0; r < std::min(ranks_, kShown); ++r) {
    const RankSnapshot rank = snapshot(r);
    text += "  rank " + std::to_string(r) + " " + state_text(rank) + ", " +
            std::to_string(rank.operations) + " operations\n";
    const std::size_t from = rank.last.size() > 2 ? rank.last.size() - 2 : 0;
    for (std::size_t i = from; i < rank.last.size(); ++i) text += "    " + rank.last[i] + '\n';
  }
  if (ranks_ > kShown) text += "  and " + std::to_string(ranks_ - kShown) + " more ranks\n";
  return text;
}

}  // namespace dyncp
