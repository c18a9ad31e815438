// The thread transport: what it computes, and how each kind of broken rank ends - within the
// deadline, in a report that names the culprit, never in a hang.
#include "runtime/thread_transport.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "reference/error.h"

namespace dyncp {
namespace {

using std::chrono::milliseconds;

TransportOptions options_with(milliseconds deadline) {
  TransportOptions options;
  options.deadline = deadline;
  return options;
}

// One turn of a ring: every rank sends its payload to the next and gets the previous one's.
void turn_ring(Transport& transport, int step, std::vector<double>& payload) {
  const int next = (transport.rank() + 1) % transport.ranks();
  const int previous = (transport.rank() + transport.ranks() - 1) % transport.ranks();
  std::vector<double> incoming(payload.size());
  transport.exchange({{next, as_bytes_of(payload)}}, {{previous, as_writable_bytes_of(incoming)}},
                     {.what = "ring forward", .step = step, .group = {0, transport.ranks()}});
  payload = incoming;
}

// Runs `body` and returns the error of the run. The run must fail.
TransportError failure_of(int ranks, const TransportOptions& options,
                          const std::function<void(Transport&)>& body) {
  try {
    run_thread_ranks(ranks, options, body);
  } catch (const TransportError& error) {
    return error;
  }
  ADD_FAILURE() << "the run did not fail";
  return {-2, ""};
}

std::string first_line(const TransportError& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

TEST(ThreadTransport, RingReturnsEachPayloadToItsOwner) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    run_thread_ranks(ranks, {}, [](Transport& transport) {
      std::vector<double> payload(17, transport.rank());
      for (int step = 0; step < transport.ranks(); ++step) {
        turn_ring(transport, step, payload);
        const int owner = (transport.rank() - step - 1 + 2 * transport.ranks()) % transport.ranks();
        EXPECT_EQ(payload, std::vector<double>(17, owner));
      }
    });
  }
}

TEST(ThreadTransport, SumsInRankOrderBitwiseWithAndWithoutDelays) {
  // Values whose sum depends on the order it is taken in.
  constexpr std::array<double, 4> kValues = {1e16, 1.0, -1e16, 3.0};
  const double expected = ((kValues[0] + kValues[1]) + kValues[2]) + kValues[3];
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    TransportOptions options;
    options.faults.delay_seed = seed;
    options.faults.max_delay = std::chrono::microseconds(200);
    run_thread_ranks(4, options, [&](Transport& transport) {
      std::vector<double> value = {kValues[static_cast<std::size_t>(transport.rank())]};
      transport.all_reduce_sum(value, {.what = "sum"});
      EXPECT_EQ(value[0], expected);
    });
  }
}

TEST(ThreadTransport, GathersAndReroutesUnevenSizes) {
  run_thread_ranks(3, {}, [](Transport& transport) {
    const std::vector<int> mine(static_cast<std::size_t>(transport.rank()), transport.rank());
    const auto all = transport.all_gather(as_bytes_of(mine), {.what = "lengths"});
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(from_bytes<int>(all[static_cast<std::size_t>(r)]),
                std::vector<int>(static_cast<std::size_t>(r), r));
    }
    std::vector<std::vector<std::byte>> outgoing(3);
    for (int r = 0; r < 3; ++r) {
      outgoing[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(r + 1),
                                                   static_cast<std::byte>(transport.rank()));
    }
    const auto incoming = transport.all_to_all(outgoing, {.what = "reroute"});
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(incoming[static_cast<std::size_t>(r)],
                std::vector<std::byte>(static_cast<std::size_t>(transport.rank() + 1),
                                       static_cast<std::byte>(r)));
    }
  });
}

TEST(ThreadTransport, ARankThatLeavesIsNamed) {
  const TransportError error =
      failure_of(4, options_with(milliseconds(200)), [](Transport& transport) {
        std::vector<double> payload(3);
        turn_ring(transport, 0, payload);
        if (transport.rank() == 2) return;
        turn_ring(transport, 1, payload);
      });
  EXPECT_EQ(error.culprit_rank(), 2) << error.what();
  EXPECT_NE(first_line(error).find("rank 2 is the culprit: it has finished"), std::string::npos)
      << error.what();
}

TEST(ThreadTransport, ARankThatThrowsIsNamed) {
  const TransportError error =
      failure_of(4, options_with(milliseconds(5000)), [](Transport& transport) {
        if (transport.rank() == 1) {
          throw std::runtime_error("out of luck");
        }
        transport.barrier({.what = "meet"});
      });
  EXPECT_EQ(error.culprit_rank(), 1) << error.what();
  EXPECT_NE(first_line(error).find("out of luck"), std::string::npos) << error.what();
}

TEST(ThreadTransport, BadInputOfARankPassesThrough) {
  EXPECT_THROW(run_thread_ranks(2, {},
                                [](Transport& transport) {
                                  if (transport.rank() == 0) throw InvalidInput("no");
                                  transport.barrier({});
                                }),
               InvalidInput);
}

TEST(ThreadTransport, ARankThatNeverComesBackIsLeftBehindAndNamed) {
  static std::atomic<bool> release{false};
  const TransportError error =
      failure_of(3, options_with(milliseconds(150)), [](Transport& transport) {
        if (transport.rank() == 1) {
          while (!release) std::this_thread::sleep_for(milliseconds(1));
          return;
        }
        transport.barrier({.what = "meet"});
      });
  EXPECT_EQ(error.culprit_rank(), 1) << error.what();
  EXPECT_NE(std::string(error.what()).find("did not come back"), std::string::npos);
  release = true;
}

TEST(ThreadTransport, ALostMessageIsNamed) {
  // In the middle of a run the next message shows the gap; the last one shows only as a wait.
  for (std::int64_t number : {3, 7}) {
    TransportOptions options = options_with(milliseconds(200));
    options.faults.drop = TransportFaults::MessageFault{.from = 1, .to = 2, .number = number};
    const TransportError error = failure_of(4, options, [](Transport& transport) {
      std::vector<double> payload(3);
      for (int step = 0; step < 8; ++step) turn_ring(transport, step, payload);
    });
    EXPECT_EQ(error.culprit_rank(), 1) << error.what();
    EXPECT_NE(first_line(error).find("lost"), std::string::npos) << error.what();
  }
}

TEST(ThreadTransport, ARepeatedOrReorderedMessageIsNamed) {
  for (bool repeated : {true, false}) {
    TransportOptions options = options_with(milliseconds(2000));
    const TransportFaults::MessageFault fault{.from = 2, .to = 0, .number = 1};
    (repeated ? options.faults.duplicate : options.faults.reorder) = fault;
    const TransportError error = failure_of(3, options, [](Transport& transport) {
      // Eager sends, so that the message after the held-back one exists.
      std::vector<std::vector<double>> in(6, std::vector<double>(2));
      const std::vector<double> out(2, transport.rank());
      const int next = (transport.rank() + 1) % 3;
      const int previous = (transport.rank() + 2) % 3;
      std::vector<std::unique_ptr<Transport::Pending>> pending;
      for (int step = 0; step < 6; ++step) {
        pending.push_back(transport.start_exchange(
            {{next, as_bytes_of(out)}},
            {{previous, as_writable_bytes_of(in[static_cast<std::size_t>(step)])}},
            {.what = "ring forward", .step = step}));
      }
      for (auto& exchange : pending) exchange->wait();
    });
    EXPECT_EQ(error.culprit_rank(), 2) << error.what();
    EXPECT_NE(first_line(error).find("lost, repeated or reordered"), std::string::npos)
        << error.what();
  }
}

TEST(ThreadTransport, ARankWithAnotherPlanIsNamed) {
  const TransportError error =
      failure_of(4, options_with(milliseconds(2000)), [](Transport& transport) {
        std::vector<double> payload(transport.rank() == 3 ? 5 : 3);
        turn_ring(transport, transport.rank() == 3 ? 1 : 0, payload);
      });
  EXPECT_NE(first_line(error).find("different plans"), std::string::npos) << error.what();
}

TEST(ThreadTransport, ASlowRankIsOnlySlow) {
  TransportOptions options = options_with(milliseconds(5000));
  options.faults.slow_rank = 1;
  options.faults.slow_by = milliseconds(5);
  run_thread_ranks(3, options, [](Transport& transport) {
    std::vector<double> payload(3, transport.rank());
    for (int step = 0; step < 3; ++step) turn_ring(transport, step, payload);
    EXPECT_EQ(payload[0], transport.rank());
    EXPECT_EQ(transport.log().size(), 3U);
    for (const OperationRecord& record : transport.log()) EXPECT_TRUE(record.completed);
  });
}

}  // namespace
}  // namespace dyncp
