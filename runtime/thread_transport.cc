#include "runtime/thread_transport.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "reference/error.h"

namespace dyncp {
namespace {

// Shared by the ranks of one run, and kept alive by them: a thread that is left behind may still
// touch it.
struct World {
  World(int count, TransportOptions world_options)
      : ranks(count),
        options(world_options),
        recorder(FlightRecorder::in_memory(count)),
        mailboxes(static_cast<std::size_t>(count) * static_cast<std::size_t>(count)) {}

  std::deque<std::vector<std::byte>>& mailbox(int from, int to) {
    return mailboxes[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) +
                     static_cast<std::size_t>(to)];
  }

  int ranks;
  TransportOptions options;
  std::shared_ptr<FlightRecorder> recorder;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<std::vector<std::byte>>> mailboxes;
  int finished = 0;
  bool aborted = false;
  int culprit = -1;
  std::string report;                // of the first abort
  std::exception_ptr first_failure;  // what the first failing rank threw
};

class ThreadTransport : public MessageTransport {
 public:
  ThreadTransport(int rank, std::shared_ptr<World> world)
      : MessageTransport(rank, world->ranks, world->options, world->recorder),
        world_(std::move(world)) {}

 protected:
  void put(int peer, std::vector<std::byte> message) override {
    {
      const std::lock_guard lock(world_->mutex);
      world_->mailbox(rank(), peer).push_back(std::move(message));
    }
    world_->changed.notify_all();
  }

  std::optional<std::vector<std::byte>> take(int peer, Clock::time_point until) override {
    std::unique_lock lock(world_->mutex);
    auto& box = world_->mailbox(peer, rank());
    world_->changed.wait_until(lock, until, [&] { return world_->aborted || !box.empty(); });
    if (world_->aborted) throw TransportError(world_->culprit, world_->report);
    if (box.empty()) return std::nullopt;
    std::vector<std::byte> message = std::move(box.front());
    box.pop_front();
    return message;
  }

  void abort_world(int culprit, const std::string& report) override {
    {
      const std::lock_guard lock(world_->mutex);
      if (!world_->aborted) {
        world_->aborted = true;
        world_->culprit = culprit;
        world_->report = report;
      }
    }
    world_->changed.notify_all();
  }

 private:
  std::shared_ptr<World> world_;
};

void run_rank(int rank, const std::shared_ptr<World>& world,
              const std::function<void(Transport&)>& body) {
  ThreadTransport transport(rank, world);
  // Kept before the abort is told: ranks that it wakes up must not be taken for the first to fail.
  const auto keep_failure = [&world] {
    const std::lock_guard lock(world->mutex);
    if (!world->first_failure) world->first_failure = std::current_exception();
  };
  try {
    body(transport);
    world->recorder->set_state(rank, RankState::kFinished);
  } catch (const TransportError&) {
    keep_failure();  // its abort has been announced already
  } catch (const std::exception& error) {
    keep_failure();
    transport.abort(error.what());
  } catch (...) {
    keep_failure();
    transport.abort("it threw something that is no exception of the standard library");
  }
  const std::lock_guard lock(world->mutex);
  ++world->finished;
  world->changed.notify_all();
}

}  // namespace

void run_thread_ranks(int ranks, const TransportOptions& options,
                      const std::function<void(Transport&)>& body) {
  const auto world = std::make_shared<World>(ranks, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([rank, world, body] { run_rank(rank, world, body); });
  }
  std::unique_lock lock(world->mutex);
  const auto all_done = [&] { return world->finished == ranks; };
  // As long as nobody has failed a rank may compute for as long as it likes: only waits have
  // deadlines.
  world->changed.wait(lock, [&] { return world->aborted || all_done(); });
  if (!world->changed.wait_for(lock, options.deadline, all_done)) {
    const std::string report = world->report;
    const int culprit = world->culprit;
    lock.unlock();
    for (std::thread& thread : threads) thread.detach();
    throw TransportError(culprit, report +
                                      "a rank did not come back after the abort and is left "
                                      "behind; the process must exit\n");
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  if (!world->first_failure) return;
  try {
    std::rethrow_exception(world->first_failure);
  } catch (const InvalidInput&) {
    throw;
  } catch (const Infeasible&) {
    throw;
  } catch (const std::exception&) {
    throw TransportError(world->culprit, world->report);
  }
}

}  // namespace dyncp
