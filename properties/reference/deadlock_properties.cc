// The communication check against a second simulator that tries ranks in random order, and over the
// operations of random valid schedules.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "properties/schedule_generators.h"
#include "reference/deadlock.h"

namespace dyncp {
namespace {

bool breaks(const std::vector<CommunicationViolation>& violations, CommunicationRule rule) {
  return std::any_of(violations.begin(), violations.end(),
                     [rule](const auto& violation) { return violation.rule == rule; });
}

// Whether some rank never ends, by literal search: in each round every rank, in random order, looks
// through all of the other lists for its partners.
class PlainSimulator {
 public:
  PlainSimulator(const OperationLists& lists, SendMode mode)
      : lists_(lists), mode_(mode), first_(lists.operations.size(), 0), end_(first_) {
    for (std::size_t rank = 0; rank < first_.size(); ++rank) post_next(static_cast<int>(rank));
  }

  bool hangs(rc::Random random) {
    bool moved = true;
    while (moved) {
      moved = false;
      std::vector<int> order;
      for (std::size_t rank = 0; rank < first_.size(); ++rank) order.push_back(int(rank));
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.next() % i]);
      }
      for (int rank : order) {
        const auto r = static_cast<std::size_t>(rank);
        if (first_[r] == lists_.operations[r].size()) continue;
        bool all = true;
        for (std::size_t i = first_[r]; i < end_[r]; ++i) all = all && over(rank, i);
        if (!all) continue;
        first_[r] = end_[r];
        post_next(rank);
        moved = true;
      }
    }
    for (std::size_t rank = 0; rank < first_.size(); ++rank) {
      if (first_[rank] != lists_.operations[rank].size()) return true;
    }
    return false;
  }

 private:
  void post_next(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto& ops = lists_.operations[r];
    if (end_[r] == ops.size()) return;
    const int exchange = ops[end_[r]++].exchange;
    while (exchange >= 0 && end_[r] < ops.size() && ops[end_[r]].exchange == exchange) ++end_[r];
  }

  // Posted operations of `rank` before index `end` that match `like`.
  std::size_t posted(int rank, const Operation& like, std::size_t end) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < end; ++i) {
      const Operation& op = lists_.operations[static_cast<std::size_t>(rank)][i];
      if (op.kind == like.kind && op.communicator == like.communicator &&
          (op.kind == Operation::Kind::kCollective || op.peer == like.peer)) {
        ++count;
      }
    }
    return count;
  }

  bool over(int rank, std::size_t index) const {
    const Operation& op = lists_.operations[static_cast<std::size_t>(rank)][index];
    const std::size_t mine = posted(rank, op, index + 1);
    if (op.kind == Operation::Kind::kCollective) {
      for (int member : lists_.communicators[static_cast<std::size_t>(op.communicator)]) {
        if (posted(member, op, end_[static_cast<std::size_t>(member)]) < mine) return false;
      }
      return true;
    }
    if (op.kind == Operation::Kind::kSend && mode_ == SendMode::kBuffered) return true;
    Operation partner = op;
    partner.kind =
        op.kind == Operation::Kind::kSend ? Operation::Kind::kReceive : Operation::Kind::kSend;
    partner.peer = rank;
    return posted(op.peer, partner, end_[static_cast<std::size_t>(op.peer)]) >= mine;
  }

  const OperationLists& lists_;
  const SendMode mode_;
  std::vector<std::size_t> first_, end_;  // by rank: the step at work
};

// 2..4 ranks; communicators: the world and some pairs. Matched pairs and collectives are put into
// the lists at random places, so that most lists pair up and about half of them hang; sometimes one
// operation is then left out.
rc::Gen<OperationLists> genOperationLists() {
  return rc::gen::map(
      rc::gen::tuple(genInt(2, 4), rc::gen::container<std::vector<int>>(8, genInt(0, 1 << 28)),
                     genInt(1, 8), genInt(0, 3)),
      [](const std::tuple<int, std::vector<int>, int, int>& drawn) {
        const auto& [ranks, numbers, events, damage] = drawn;
        OperationLists lists;
        std::vector<int> world;
        for (int rank = 0; rank < ranks; ++rank) world.push_back(rank);
        lists.communicators = {world, {0, 1}};
        if (ranks > 2) lists.communicators.push_back({1, 2});
        if (ranks > 2) lists.communicators.push_back({0, 2});
        lists.operations.resize(static_cast<std::size_t>(ranks));
        for (int event = 0; event < events; ++event) {
          int number = numbers[static_cast<std::size_t>(event)];
          const auto take = [&number](int bound) {
            const int value = number % bound;
            number /= bound;
            return value;
          };
          const auto put = [&](int rank, Operation op) {
            auto& ops = lists.operations[static_cast<std::size_t>(rank)];
            // At the end or before the last one; sometimes in one exchange with its neighbour.
            const std::size_t back = ops.empty() ? 0 : static_cast<std::size_t>(take(2));
            const auto at = ops.insert(ops.end() - static_cast<std::ptrdiff_t>(back), op);
            if (take(3) == 0 && at != ops.begin() && at->exchange < 0) {
              const int exchange = event;
              if ((at - 1)->exchange < 0) (at - 1)->exchange = exchange;
              at->exchange = (at - 1)->exchange;
            }
          };
          if (take(3) == 0) {
            const int communicator = take(static_cast<int>(lists.communicators.size()));
            for (int member : lists.communicators[static_cast<std::size_t>(communicator)]) {
              put(member, {Operation::Kind::kCollective, -1, communicator, 8, -1, -1, -1, "sum"});
            }
          } else {
            const int from = take(ranks), to = (from + 1 + take(ranks - 1)) % ranks;
            put(from, {Operation::Kind::kSend, to, 0, 8, -1, -1, -1, ""});
            put(to, {Operation::Kind::kReceive, from, 0, 8, -1, -1, -1, ""});
          }
        }
        auto& victim = lists.operations[static_cast<std::size_t>(numbers[0] % ranks)];
        if (damage == 3 && !victim.empty()) victim.pop_back();
        return lists;
      });
}

void showOperations(const OperationLists& lists, std::ostream& out) {
  for (std::size_t rank = 0; rank < lists.operations.size(); ++rank) {
    out << "rank " << rank << ':';
    for (const Operation& op : lists.operations[rank]) {
      const char* kind = op.kind == Operation::Kind::kSend      ? " send "
                         : op.kind == Operation::Kind::kReceive ? " receive "
                                                                : " collective ";
      out << kind << (op.peer >= 0 ? op.peer : op.communicator) << '/' << op.exchange;
    }
    out << '\n';
  }
}

RC_GTEST_PROP(Deadlock, AgreesWithAPlainSimulatorInAnyTiming, ()) {
  const OperationLists lists = *genOperationLists();
  const auto seed = static_cast<std::uint64_t>(*genInt(0, 1 << 20));
  for (SendMode mode : {SendMode::kRendezvous, SendMode::kBuffered}) {
    const auto violations = check_operations(lists, mode);
    const bool hangs = PlainSimulator(lists, mode).hangs(rc::Random(seed));
    const bool cycle = breaks(violations, CommunicationRule::kNoWaitCycle);
    const bool incomplete = breaks(violations, CommunicationRule::kPaired) ||
                            breaks(violations, CommunicationRule::kCollectiveCount);
    RC_TAG(std::string(hangs ? "hangs" : "ends") + (incomplete ? ", incomplete" : ""));
    std::ostringstream text;
    showOperations(lists, text);
    RC_LOG(text.str());
    if (hangs) RC_ASSERT(cycle || incomplete);
    if (cycle) RC_ASSERT(hangs);
    if (!incomplete) RC_ASSERT(hangs == cycle);
  }
}

RC_GTEST_PROP(Deadlock, ValidSchedulesNeverHang, ()) {
  ScheduledCase scheduled = *genScheduledCase();
  OperationOptions options;
  options.group_communicators = *genInt(0, 1) == 1;
  options.barrier = *genInt(0, 1) == 1;
  options.backward = *genInt(0, 3) > 0;
  if (scheduled.problem.group_policy == GroupPolicy::kAligned && *genInt(0, 1) == 1) {
    options.lookup = GroupLookup::kFramework;
  }
  options.collective_each_forward =
      scheduled.problem.execution == Execution::kPack && *genInt(0, 1) == 1;
  const OperationLists lists = operations_of(scheduled.problem, scheduled.schedule, options);
  for (SendMode mode : {SendMode::kRendezvous, SendMode::kBuffered}) {
    const auto violations = check_operations(lists, mode);
    if (!violations.empty()) RC_FAIL(violations.front().sentence);
  }
}

// Groups that one rank meets in another order than its partners: the ring of some group of two
// microbatches, exchanged on one rank.
RC_GTEST_PROP(Deadlock, MicrobatchesInAnotherOrderOnOneRankAreFound, ()) {
  const int ranks = *genInt(2, 5);
  ScheduleProblem problem;
  problem.ranks = ranks;
  problem.max_tokens_per_rank = 10;
  problem.lengths = {10 * ranks, 5 * ranks};
  const Schedule schedule{{{{{0, ranks}, {0}}}, {{{0, ranks}, {1}}}}};
  OperationLists lists = operations_of(problem, schedule);
  auto& ops = lists.operations[static_cast<std::size_t>(*genInt(0, ranks - 1))];
  std::rotate(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(ops.size() / 2), ops.end());
  RC_ASSERT(breaks(check_operations(lists), CommunicationRule::kBytesMatch));
}

}  // namespace
}  // namespace dyncp
