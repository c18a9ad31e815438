// The runner of runtime/report.h: threads, deadlines, crashes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "reference/error.h"
#include "runtime/report.h"

namespace dyncp {
namespace {

using Clock = std::chrono::steady_clock;

// Cases that overran their deadline before no further case is begun: their threads go on running
// and take processors away from the others.
constexpr int kMostLeftBehind = 4;

// The command of the case that this thread runs, for the signal handler.
thread_local const char* current_command = nullptr;

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction previous_actions[std::size(kFatalSignals)];

// Async-signal-safe: write, strlen, sigaction and raise are.
void on_fatal_signal(int signal) {
  if (current_command != nullptr) {
    for (const char* part : {"\ndyncp: crashed in: ", current_command, "\n"}) {
      if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
    }
  }
  for (std::size_t i = 0; i < std::size(kFatalSignals); ++i) {
    if (kFatalSignals[i] == signal) sigaction(signal, &previous_actions[i], nullptr);
  }
  raise(signal);
}

struct Outcome {
  CaseResult result;
  Ending ending = Ending::kReturned;
  double seconds = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Outcome run_one(const Case& one) {
  Outcome outcome;
  const auto threw = [&](const std::string& what) {
    outcome.ending = Ending::kThrew;
    outcome.result.expect(one.problem.driver + ".exception", Kind::kState, false,
                          [&] { return "the driver threw, a defect of dyncp: " + what; });
  };
  const Clock::time_point start = Clock::now();
  current_command = one.command.c_str();
  try {
    outcome.result = one.run();
  } catch (const InvalidInput& error) {
    outcome.ending = Ending::kRefused;
    outcome.result.invalid(error.what());
  } catch (const Infeasible& error) {
    outcome.ending = Ending::kRefused;
    outcome.result.invalid(error.what());
  } catch (const Unavailable& error) {
    outcome.ending = Ending::kUnavailable;
    outcome.result.skip(error.what());
  } catch (const std::exception& error) {
    threw(error.what());
  } catch (...) {
    threw("something that is no std::exception");
  }
  current_command = nullptr;
  outcome.seconds = seconds_since(start);
  return outcome;
}

// What the threads of one run share, and keep alive: a case that overran may outlive the run.
struct Work {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Case> cases;  // not changed once threads run
  struct Slot {
    bool done = false;
    Clock::time_point begun_at;
    Outcome outcome;
  };
  std::vector<Slot> slots;
  std::vector<std::size_t> running;  // cases that are running and not overrun
  std::size_t next = 0;              // the next case to begin
  std::size_t released = 0;          // cases that may begin
  int threads = 0;                   // that may still touch this
  int left_behind = 0;
};

void work_on(const std::shared_ptr<Work>& work) {
  std::unique_lock lock(work->mutex);
  while (true) {
    work->changed.wait(
        lock, [&] { return work->next < work->released || work->next >= work->cases.size(); });
    if (work->next >= work->cases.size()) break;
    const std::size_t index = work->next++;
    work->slots[index].begun_at = Clock::now();
    work->running.push_back(index);
    work->changed.notify_all();  // the deadline watch
    lock.unlock();
    Outcome outcome = run_one(work->cases[index]);
    lock.lock();
    const auto mine = std::find(work->running.begin(), work->running.end(), index);
    if (mine == work->running.end()) break;  // overran: another thread has taken over
    work->running.erase(mine);
    work->slots[index].outcome = std::move(outcome);
    work->slots[index].done = true;
    work->changed.notify_all();
  }
  --work->threads;
  work->changed.notify_all();
}

void start_thread(const std::shared_ptr<Work>& work) {
  ++work->threads;
  std::thread(work_on, work).detach();
}

// Fails every running case that is past its deadline and puts another thread in its place.
void leave_overrun_behind(const std::shared_ptr<Work>& work, double deadline_seconds) {
  const std::vector<std::size_t> running = work->running;
  for (const std::size_t index : running) {
    Work::Slot& slot = work->slots[index];
    const double seconds = seconds_since(slot.begun_at);
    if (seconds < deadline_seconds) continue;
    work->running.erase(std::find(work->running.begin(), work->running.end(), index));
    slot.outcome.ending = Ending::kOverran;
    slot.outcome.seconds = seconds;
    slot.outcome.result.expect(
        work->cases[index].problem.driver + ".deadline", Kind::kCommunication, false,
        [&] { return fmt::format("the case ran past its deadline of {} s", deadline_seconds); });
    slot.done = true;
    if (++work->left_behind < kMostLeftBehind) start_thread(work);
  }
  if (work->left_behind < kMostLeftBehind) return;
  for (; work->next < work->cases.size(); ++work->next) {
    Work::Slot& slot = work->slots[work->next];
    slot.outcome.result.skip(
        fmt::format("not begun: {} cases ran past their deadline before", kMostLeftBehind));
    slot.done = true;
  }
  work->changed.notify_all();
}

// When the first of the running cases reaches its deadline; a minute from now when none runs.
Clock::time_point next_deadline(const Work& work, double deadline_seconds) {
  Clock::time_point first = Clock::now() + std::chrono::minutes(1);
  for (const std::size_t index : work.running) {
    const std::chrono::duration<double> left(
        std::min(deadline_seconds - seconds_since(work.slots[index].begun_at), 60.0));
    first = std::min(first, Clock::now() + std::chrono::duration_cast<Clock::duration>(left));
  }
  return first;
}

}  // namespace

Case make_case(const Driver& driver, const Problem& problem) {
  Case one{&driver, problem, print_command(problem), nullptr};
  one.run = [&driver, problem] {
    if (driver.run == nullptr) {
      throw Unavailable(fmt::format("driver {} is not built", driver.name));
    }
    return driver.run(problem);
  };
  return one;
}

std::vector<Case> make_cases(const std::vector<Problem>& problems) {
  std::vector<Case> cases;
  cases.reserve(problems.size());
  for (const Problem& problem : problems) {
    cases.push_back(make_case(find_driver(problem.driver), problem));
  }
  return cases;
}

void tell_case_on_crash() {
  for (std::size_t i = 0; i < std::size(kFatalSignals); ++i) {
    struct sigaction action = {};
    action.sa_handler = on_fatal_signal;
    action.sa_flags = SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(kFatalSignals[i], &action, &previous_actions[i]);
  }
}

Report run_cases(std::vector<Case> cases, const RunOptions& options) {
  const auto work = std::make_shared<Work>();
  const std::size_t total = cases.size();
  work->cases = std::move(cases);
  work->slots.resize(total);
  work->released = options.one_by_one ? 0 : total;

  Report report;
  report.runs.reserve(total);
  std::unique_lock lock(work->mutex);
  const auto wanted = static_cast<std::size_t>(std::max(1, options.threads));
  for (std::size_t i = 0; i < std::min(wanted, total); ++i) start_thread(work);
  for (std::size_t i = 0; i < total; ++i) {
    if (options.on_start) {
      lock.unlock();
      options.on_start(work->cases[i]);
      lock.lock();
    }
    if (options.one_by_one) {
      work->released = i + 1;
      work->changed.notify_all();
    }
    while (!work->slots[i].done) {
      work->changed.wait_until(lock, next_deadline(*work, options.deadline_seconds));
      leave_overrun_behind(work, options.deadline_seconds);
    }
    const Outcome outcome = work->slots[i].outcome;
    lock.unlock();
    const Case& one = work->cases[i];
    report.runs.push_back(
        {one.driver, one.problem, one.command, outcome.result, outcome.ending, outcome.seconds});
    if (options.on_done) options.on_done(report.runs.back(), i + 1, total);
    lock.lock();
  }
  // Threads without a case end by themselves; one that overran might not.
  const auto all_ended = [&] { return work->threads == 0; };
  if (work->left_behind == 0) {
    work->changed.wait(lock, all_ended);
  } else {
    work->changed.wait_for(lock, std::chrono::milliseconds(100), all_ended);
  }
  report.abandoned = work->threads > 0;
  return report;
}

}  // namespace dyncp
