// Simulation of communication lists, and the operations of a schedule (contracts: deadlock.h).
#include "reference/deadlock.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

namespace dyncp {
namespace {

constexpr int kCycleNamesAtMost = 6;      // ranks of a wait cycle that are named
constexpr std::size_t kCyclesAtMost = 8;  // cycles that are reported

std::string number(std::int64_t value) { return std::to_string(value); }

std::string describe_ranks(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no ranks";
  if (ranks.size() == 1) return "rank " + number(ranks.front());
  if (ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size())) {
    return "ranks " + number(ranks.front()) + ".." + number(ranks.back());
  }
  std::string text = "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) {
    text += (i > 0 ? ", " : "") + number(ranks[i]);
  }
  return text + (ranks.size() > 8 ? ", ..." : "");
}

// Where two ranks' sends and receives in one direction meet, in program order on either side.
struct Channel {
  int from = -1;
  int to = -1;
  std::vector<int> sends;     // operation indices of `from`
  std::vector<int> receives;  // operation indices of `to`
  std::size_t sends_posted = 0;
  std::size_t receives_posted = 0;
};

// The collectives of one communicator.
struct Meeting {
  std::vector<std::vector<int>> operations;  // by member: indices into its list
  std::vector<std::size_t> arrived;          // by ordinal: members that have posted
};

class Simulation {
 public:
  Simulation(const OperationLists& lists, SendMode mode)
      : lists_(lists),
        mode_(mode),
        ranks_(static_cast<int>(lists.operations.size())),
        meetings_(lists.communicators.size()),
        places_(lists.operations.size()),
        states_(lists.operations.size()) {
    for (std::size_t c = 0; c < meetings_.size(); ++c) {
      meetings_[c].operations.resize(lists.communicators[c].size());
    }
  }

  std::vector<CommunicationViolation> run() {
    place_operations();
    check_pairs();
    check_collectives();
    simulate();
    report_cycles();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& left, const auto& right) { return left.rule < right.rule; });
    return std::move(found_);
  }

 private:
  // Where an operation meets its partners: channel or communicator, and its ordinal there.
  struct Place {
    int meeting_point = -1;  // -1: the operation is void (reported), it ends at once
    std::size_t ordinal = 0;
  };
  struct RankState {
    std::size_t begin = 0;  // the step at work: operations [begin, end)
    std::size_t end = 0;
    std::size_t pending = 0;  // of these, how many have not ended
    std::vector<bool> ended;  // by operation
  };

  const std::vector<Operation>& list(int rank) const {
    return lists_.operations[static_cast<std::size_t>(rank)];
  }
  const Operation& operation(int rank, int index) const {
    return list(rank)[static_cast<std::size_t>(index)];
  }
  Place& place(int rank, std::size_t index) {
    return places_[static_cast<std::size_t>(rank)][index];
  }
  RankState& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }
  Channel& channel(int index) { return channels_[static_cast<std::size_t>(index)]; }
  bool finished(int rank) { return state(rank).begin == list(rank).size(); }

  // Index of `rank` among the members of a communicator, -1 when it is none.
  int member(int communicator, int rank) const {
    const auto& members = lists_.communicators[static_cast<std::size_t>(communicator)];
    const auto found = std::lower_bound(members.begin(), members.end(), rank);
    if (found == members.end() || *found != rank) return -1;
    return static_cast<int>(found - members.begin());
  }

  void add(CommunicationRule rule, int rank, int index, int peer, std::string sentence) {
    found_.push_back({rule, rank, index, peer, std::move(sentence)});
  }

  // "rank 3 operation 17 (microbatch 2, ring forward step 1, send to rank 4)"
  std::string describe(int rank, int index) const {
    const Operation& op = operation(rank, index);
    std::string text = "rank " + number(rank) + " operation " + number(index) + " (";
    if (op.microbatch >= 0) text += "microbatch " + number(op.microbatch) + ", ";
    if (!op.what.empty()) {
      text += op.what + (op.step >= 0 ? " step " + number(op.step) : std::string()) + ", ";
    }
    switch (op.kind) {
      case Operation::Kind::kSend:
        text += "send to rank " + number(op.peer);
        break;
      case Operation::Kind::kReceive:
        text += "receive from rank " + number(op.peer);
        break;
      case Operation::Kind::kCollective:
        text += "collective on communicator " + number(op.communicator);
        break;
    }
    return text + ")";
  }

  // Finds the meeting point of every operation; reports those that have none.
  void place_operations() {
    std::map<std::array<int, 3>, int> index_of;  // communicator, from, to -> channel
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::size_t count = list(rank).size();
      places_[static_cast<std::size_t>(rank)].resize(count);
      state(rank).ended.assign(count, false);
      std::array<int, 3> last_key{-1, -1, -1};
      int last_channel = -1;
      for (std::size_t i = 0; i < count; ++i) {
        const Operation& op = list(rank)[i];
        const int index = static_cast<int>(i);
        if (!communicator_exists(rank, index)) continue;
        if (op.kind == Operation::Kind::kCollective) {
          Meeting& meeting = meetings_[static_cast<std::size_t>(op.communicator)];
          auto& mine = meeting.operations[static_cast<std::size_t>(member(op.communicator, rank))];
          place(rank, i) = {op.communicator, mine.size()};
          mine.push_back(index);
          continue;
        }
        const bool sends = op.kind == Operation::Kind::kSend;
        const std::array<int, 3> key{op.communicator, sends ? rank : op.peer,
                                     sends ? op.peer : rank};
        if (key != last_key) {
          const auto [entry, created] =
              index_of.try_emplace(key, static_cast<int>(channels_.size()));
          if (created) channels_.push_back({key[1], key[2], {}, {}, 0, 0});
          last_key = key;
          last_channel = entry->second;
        }
        auto& mine = sends ? channel(last_channel).sends : channel(last_channel).receives;
        place(rank, i) = {last_channel, mine.size()};
        mine.push_back(index);
      }
    }
    for (Meeting& meeting : meetings_) {
      std::size_t most = 0;
      for (const auto& mine : meeting.operations) most = std::max(most, mine.size());
      meeting.arrived.assign(most, 0);
    }
  }

  bool communicator_exists(int rank, int index) {
    const Operation& op = operation(rank, index);
    const auto wrong = [&](const std::string& why) {
      add(CommunicationRule::kCommunicatorExists, rank, index, op.peer,
          describe(rank, index) + " " + why);
      return false;
    };
    if (op.communicator < 0 || op.communicator >= static_cast<int>(meetings_.size())) {
      return wrong("uses a communicator that does not exist");
    }
    const std::string members =
        "communicator " + number(op.communicator) + ", " +
        describe_ranks(lists_.communicators[static_cast<std::size_t>(op.communicator)]);
    if (member(op.communicator, rank) < 0)
      return wrong("uses " + members + ", without being in it");
    if (op.kind == Operation::Kind::kCollective) return true;
    if (op.peer < 0 || op.peer >= ranks_ || member(op.communicator, op.peer) < 0) {
      return wrong("names a peer outside " + members);
    }
    if (op.peer == rank) return wrong("names itself as the peer");
    return true;
  }

  void check_pairs() {
    for (const Channel& c : channels_) {
      const std::size_t pairs = std::min(c.sends.size(), c.receives.size());
      const std::string counts = "rank " + number(c.from) + " sends " +
                                 std::to_string(c.sends.size()) + " times to rank " + number(c.to) +
                                 ", which receives " + std::to_string(c.receives.size()) +
                                 " times from it";
      if (c.sends.size() > pairs) {
        add(CommunicationRule::kPaired, c.from, c.sends[pairs], c.to,
            describe(c.from, c.sends[pairs]) + " is never received: " + counts);
      } else if (c.receives.size() > pairs) {
        add(CommunicationRule::kPaired, c.to, c.receives[pairs], c.from,
            describe(c.to, c.receives[pairs]) + " is never sent: " + counts);
      }
      for (std::size_t k = 0; k < pairs; ++k) {
        const std::int64_t sent = operation(c.from, c.sends[k]).bytes;
        const std::int64_t expected = operation(c.to, c.receives[k]).bytes;
        if (sent == expected) continue;
        add(CommunicationRule::kBytesMatch, c.from, c.sends[k], c.to,
            describe(c.from, c.sends[k]) + " sends " + number(sent) + " bytes but " +
                describe(c.to, c.receives[k]) + " expects " + number(expected));
        break;  // what follows on this channel is a consequence
      }
    }
  }

  void check_collectives() {
    for (std::size_t c = 0; c < meetings_.size(); ++c) {
      const std::vector<int>& members = lists_.communicators[c];
      if (members.empty()) continue;
      const auto& first = meetings_[c].operations[0];
      bool told_count = false, told_order = false;
      for (std::size_t j = 1; j < members.size(); ++j) {
        const auto& mine = meetings_[c].operations[j];
        if (mine.size() != first.size() && !told_count) {
          told_count = true;
          const bool fewer = mine.size() < first.size();
          add(CommunicationRule::kCollectiveCount, members[j],
              fewer ? (mine.empty() ? -1 : mine.back()) : mine[first.size()], members[0],
              "communicator " + std::to_string(c) + " (" + describe_ranks(members) + "): rank " +
                  number(members[0]) + " runs " + std::to_string(first.size()) +
                  " collectives, rank " + number(members[j]) + " runs " +
                  std::to_string(mine.size()));
        }
        for (std::size_t k = 0; k < std::min(mine.size(), first.size()) && !told_order; ++k) {
          const Operation& theirs = operation(members[0], first[k]);
          const Operation& ours = operation(members[j], mine[k]);
          if (theirs.what == ours.what && theirs.bytes == ours.bytes) continue;
          told_order = true;
          add(CommunicationRule::kCollectiveOrder, members[j], mine[k], members[0],
              "communicator " + std::to_string(c) + " (" + describe_ranks(members) +
                  "): collective " + std::to_string(k) + " is " + theirs.what + " of " +
                  number(theirs.bytes) + " bytes on rank " + number(members[0]) + " (operation " +
                  number(first[k]) + ") but " + ours.what + " of " + number(ours.bytes) +
                  " bytes on rank " + number(members[j]) + " (operation " + number(mine[k]) + ")");
        }
      }
    }
  }

  void end_operation(int rank, int index) {
    RankState& s = state(rank);
    s.ended[static_cast<std::size_t>(index)] = true;
    if (--s.pending == 0) ready_.push_back(rank);
  }

  void post(int rank, std::size_t i) {
    const Operation& op = list(rank)[i];
    const Place where = place(rank, i);
    const int index = static_cast<int>(i);
    if (where.meeting_point < 0) {
      end_operation(rank, index);
      return;
    }
    if (op.kind == Operation::Kind::kCollective) {
      Meeting& meeting = meetings_[static_cast<std::size_t>(where.meeting_point)];
      if (++meeting.arrived[where.ordinal] < meeting.operations.size()) return;
      const auto& members = lists_.communicators[static_cast<std::size_t>(where.meeting_point)];
      for (std::size_t j = 0; j < members.size(); ++j) {
        end_operation(members[j], meeting.operations[j][where.ordinal]);
      }
      return;
    }
    Channel& c = channel(where.meeting_point);
    if (op.kind == Operation::Kind::kSend) {
      ++c.sends_posted;
      const bool met = c.receives_posted > where.ordinal;
      if (met) end_operation(c.to, c.receives[where.ordinal]);
      if (met || mode_ == SendMode::kBuffered) end_operation(rank, index);
    } else {
      ++c.receives_posted;
      if (c.sends_posted <= where.ordinal) return;
      if (mode_ == SendMode::kRendezvous) end_operation(c.from, c.sends[where.ordinal]);
      end_operation(rank, index);
    }
  }

  // Posts the step that follows the one `rank` has ended.
  void next_step(int rank) {
    RankState& s = state(rank);
    const std::vector<Operation>& ops = list(rank);
    s.begin = s.end;
    if (s.begin == ops.size()) return;
    s.end = s.begin + 1;
    if (ops[s.begin].exchange >= 0) {
      while (s.end < ops.size() && ops[s.end].exchange == ops[s.begin].exchange) ++s.end;
    }
    s.pending = s.end - s.begin;
    for (std::size_t i = s.begin, end = s.end; i < end; ++i) post(rank, i);
  }

  void simulate() {
    for (int rank = 0; rank < ranks_; ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      next_step(rank);
    }
  }

  // A rank that waits, in which operation, and for whom.
  struct Wait {
    int operation;
    int rank;
  };

  std::vector<Wait> waits_of(int rank) {
    std::vector<Wait> waits;
    const RankState& s = state(rank);
    for (std::size_t i = s.begin; i < s.end; ++i) {
      if (s.ended[i]) continue;
      const Operation& op = list(rank)[i];
      const int index = static_cast<int>(i);
      if (op.kind != Operation::Kind::kCollective) {
        waits.push_back({index, op.peer});
        continue;
      }
      const Place where = place(rank, i);
      const auto& members = lists_.communicators[static_cast<std::size_t>(where.meeting_point)];
      const Meeting& meeting = meetings_[static_cast<std::size_t>(where.meeting_point)];
      for (std::size_t j = 0; j < members.size(); ++j) {
        const auto& theirs = meeting.operations[j];
        const bool arrived =
            where.ordinal < theirs.size() &&
            static_cast<std::size_t>(theirs[where.ordinal]) < state(members[j]).end;
        if (!arrived) waits.push_back({index, members[j]});
      }
    }
    return waits;
  }

  // Depth-first search of the wait-for graph; every back edge to a rank on the path is a cycle.
  void report_cycles() {
    enum class Colour : char { kNew, kOnPath, kDone };
    std::vector<Colour> colour(static_cast<std::size_t>(ranks_), Colour::kNew);
    struct Frame {
      int rank;
      std::vector<Wait> waits;
      std::size_t next;
    };
    std::size_t cycles = 0;
    for (int root = 0; root < ranks_ && cycles < kCyclesAtMost; ++root) {
      if (finished(root) || colour[static_cast<std::size_t>(root)] != Colour::kNew) continue;
      std::vector<Frame> path;
      path.push_back({root, waits_of(root), 0});
      colour[static_cast<std::size_t>(root)] = Colour::kOnPath;
      bool told = false;  // one cycle tells what is wrong with everything that leads to it
      while (!path.empty()) {
        Frame& frame = path.back();
        if (frame.next == frame.waits.size()) {
          colour[static_cast<std::size_t>(frame.rank)] = Colour::kDone;
          path.pop_back();
          continue;
        }
        const int target = frame.waits[frame.next++].rank;
        if (finished(target)) continue;
        Colour& seen = colour[static_cast<std::size_t>(target)];
        if (seen == Colour::kNew) {
          seen = Colour::kOnPath;
          path.push_back({target, waits_of(target), 0});
        } else if (seen == Colour::kOnPath && !told) {
          told = true;
          ++cycles;
          std::vector<std::pair<int, Wait>> cycle;
          std::size_t start = 0;
          while (path[start].rank != target) ++start;
          for (std::size_t i = start; i < path.size(); ++i) {
            cycle.emplace_back(path[i].rank, path[i].waits[path[i].next - 1]);
          }
          report_cycle(cycle);
        }
      }
    }
  }

  void report_cycle(const std::vector<std::pair<int, Wait>>& cycle) {
    std::string text =
        "deadlock of " + std::to_string(cycle.size()) + (cycle.size() == 1 ? " rank" : " ranks");
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      if (i == kCycleNamesAtMost) {
        text += "; and so on through " + std::to_string(cycle.size() - i) + " more back to rank " +
                number(cycle.front().first);
        break;
      }
      const auto& [rank, wait] = cycle[i];
      text += (i == 0 ? ": " : "; ") + describe(rank, wait.operation) + " waits for rank " +
              number(wait.rank);
    }
    const auto& [rank, wait] = cycle.front();
    add(CommunicationRule::kNoWaitCycle, rank, wait.operation, wait.rank, text);
  }

  const OperationLists& lists_;
  const SendMode mode_;
  const int ranks_;
  std::vector<Channel> channels_;
  std::vector<Meeting> meetings_;           // by communicator
  std::vector<std::vector<Place>> places_;  // by rank and operation
  std::vector<RankState> states_;           // by rank
  std::deque<int> ready_;                   // ranks whose step has ended
  std::vector<CommunicationViolation> found_;
};

// Builds the lists of operations_of.
class Writer {
 public:
  Writer(const ScheduleProblem& problem, const OperationOptions& options)
      : problem_(problem),
        options_(options),
        framework_(problem.ranks, GroupPolicy::kAligned, problem.min_cp) {
    std::vector<int> world(static_cast<std::size_t>(problem.ranks));
    for (int rank = 0; rank < problem.ranks; ++rank) world[static_cast<std::size_t>(rank)] = rank;
    lists_.communicators.push_back(std::move(world));
    lists_.operations.resize(static_cast<std::size_t>(problem.ranks));
    exchanges_.resize(static_cast<std::size_t>(problem.ranks), 0);
  }

  OperationLists write(const Schedule& schedule) {
    for (std::size_t m = 0; m < schedule.microbatches.size(); ++m) {
      microbatch_ = static_cast<int>(m);
      for (const Assignment& assignment : schedule.microbatches[m]) write_assignment(assignment);
      if (!options_.barrier) continue;
      for (int rank = 0; rank < problem_.ranks; ++rank) write_collective(rank, "barrier");
    }
    return std::move(lists_);
  }

 private:
  void write_assignment(const Assignment& assignment) {
    const int size = assignment.group.size;
    const int first = std::max(0, assignment.group.first_rank);
    const auto end = static_cast<int>(
        std::min<std::int64_t>(problem_.ranks, std::int64_t{assignment.group.first_rank} + size));
    std::vector<std::int64_t> packs;  // padded tokens of each forward pass
    std::int64_t sum = 0;
    for (int id : assignment.sequences) {
      const std::int64_t tokens = problem_.padded_length(id, size);
      sum += tokens;
      if (problem_.execution == Execution::kSerial) packs.push_back(tokens);
    }
    if (problem_.execution == Execution::kPack && !assignment.sequences.empty()) {
      packs.push_back(sum);
    }
    for (int rank = first; rank < end; ++rank) {
      for (std::int64_t tokens : packs) {
        if (options_.collective_each_forward) write_collective(rank, "expert exchange");
        if (size > 1) write_ring(rank, assignment.group, ceil_div(tokens, size));
      }
    }
  }

  void write_ring(int rank, const CpGroup& scheduled, std::int64_t local_tokens) {
    CpGroup group = scheduled;
    if (options_.lookup == GroupLookup::kFramework) {
      group.first_rank = rank / group.size * group.size;
      if (!framework_.exists(group)) {
        Operation missing;
        missing.kind = Operation::Kind::kCollective;
        missing.communicator = -1;
        missing.microbatch = microbatch_;
        missing.what = "lookup of a CP group of size " + std::to_string(group.size);
        push(rank, missing);
        return;
      }
    } else if (group.first_rank < 0 || group.first_rank > problem_.ranks - group.size) {
      Operation missing;
      missing.kind = Operation::Kind::kCollective;
      missing.communicator = -1;
      missing.microbatch = microbatch_;
      missing.what = "ring of a CP group outside the rank domain";
      push(rank, missing);
      return;
    }
    const int position = rank - group.first_rank;
    const int next = group.first_rank + (position + 1) % group.size;
    const int previous = group.first_rank + (position + group.size - 1) % group.size;
    const std::int64_t bytes = local_tokens * options_.bytes_per_token;
    const int communicator = options_.group_communicators ? communicator_of(group) : 0;
    const int forward = std::min(group.size - 1, options_.most_ring_steps);
    for (int step = 0; step < forward; ++step) {
      write_exchange(rank, communicator, next, previous, bytes, step, "ring forward");
    }
    const int backward = options_.backward ? std::min(group.size, options_.most_ring_steps) : 0;
    for (int step = 0; step < backward; ++step) {
      const bool both = step > 0 && step < group.size - 1;
      write_exchange(rank, communicator, previous, next, both ? 2 * bytes : bytes, step,
                     "ring backward");
    }
  }

  void write_exchange(int rank, int communicator, int to, int from, std::int64_t bytes, int step,
                      const char* what) {
    const int exchange = options_.grouped ? exchanges_[static_cast<std::size_t>(rank)]++ : -1;
    Operation op{
        Operation::Kind::kSend, to, communicator, bytes, exchange, microbatch_, step, what};
    push(rank, op);
    op.kind = Operation::Kind::kReceive;
    op.peer = from;
    push(rank, op);
  }

  void write_collective(int rank, const char* what) {
    Operation op;
    op.kind = Operation::Kind::kCollective;
    op.microbatch = microbatch_;
    op.what = what;
    push(rank, op);
  }

  void push(int rank, const Operation& op) {
    lists_.operations[static_cast<std::size_t>(rank)].push_back(op);
  }

  int communicator_of(const CpGroup& group) {
    const auto [entry, created] = communicators_.try_emplace(
        {group.first_rank, group.size}, static_cast<int>(lists_.communicators.size()));
    if (created) {
      std::vector<int> members;
      for (int rank = group.first_rank; rank < group.end_rank(); ++rank) members.push_back(rank);
      lists_.communicators.push_back(std::move(members));
    }
    return entry->second;
  }

  const ScheduleProblem& problem_;
  const OperationOptions& options_;
  const GroupTable framework_;
  OperationLists lists_;
  std::map<std::pair<int, int>, int> communicators_;  // first rank and size -> index
  std::vector<int> exchanges_;                        // by rank: exchanges written
  int microbatch_ = 0;
};

}  // namespace

std::string_view to_string(CommunicationRule rule) {
  switch (rule) {
    case CommunicationRule::kCommunicatorExists:
      return "communicator-exists";
    case CommunicationRule::kPaired:
      return "paired";
    case CommunicationRule::kBytesMatch:
      return "bytes-match";
    case CommunicationRule::kCollectiveCount:
      return "collective-count";
    case CommunicationRule::kCollectiveOrder:
      return "collective-order";
    case CommunicationRule::kNoWaitCycle:
      return "no-wait-cycle";
  }
  return "?";
}

std::vector<CommunicationViolation> check_operations(const OperationLists& lists, SendMode mode) {
  return Simulation(lists, mode).run();
}

OperationLists operations_of(const ScheduleProblem& problem, const Schedule& schedule,
                             const OperationOptions& options) {
  return Writer(problem, options).write(schedule);
}

}  // namespace dyncp
