#include "runtime/external_scheduler.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "reference/error.h"
#include "runtime/scheduler_protocol.h"

namespace dyncp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxAnswer = std::size_t{256} << 20;  // bytes; more is malformed
constexpr std::size_t kStderrTail = 2000;                   // bytes kept of what it complains

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Unavailable("cannot create a pipe: " + std::string(std::strerror(errno)));
    }
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close_end(read); }
  void close_write() { close_end(write); }
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  int read = -1;
  int write = -1;
};

}  // namespace

class ExternalScheduler::Process {
 public:
  enum class Result { kLine, kTimeout, kEnded, kTooLong };

  explicit Process(const std::string& command) {
    pid_ = fork();
    if (pid_ < 0) throw Unavailable("cannot start a process: " + std::string(std::strerror(errno)));
    if (pid_ == 0) {
      setpgid(0, 0);
      dup2(input_.read, STDIN_FILENO);
      dup2(output_.write, STDOUT_FILENO);
      dup2(error_.write, STDERR_FILENO);
      signal(SIGPIPE, SIG_DFL);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    setpgid(pid_, pid_);  // by both sides, so that it holds whoever runs first
    input_.close_read();
    output_.close_write();
    error_.close_write();
    for (int end : {input_.write, output_.read, error_.read}) {
      fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
    }
  }

  ~Process() {
    kill(-pid_, SIGKILL);
    reap(true);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Forgets answers that nobody waited for, so that they are not taken for the next one's.
  bool has_unread_line() const { return received_.find('\n') != std::string::npos; }

  void write_line(std::string line) { unsent_ = std::move(line) + '\n'; }

  // Sends what is unsent and waits for one whole line.
  Result read_line(Clock::time_point until, std::string& line) {
    for (;;) {
      const std::size_t end = received_.find('\n');
      if (end != std::string::npos) {
        line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return Result::kLine;
      }
      if (received_.size() > kMaxAnswer) return Result::kTooLong;
      if (output_.read < 0) return Result::kEnded;
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      if (left.count() <= 0) return Result::kTimeout;
      std::array<pollfd, 3> ends = {pollfd{output_.read, POLLIN, 0}, pollfd{error_.read, POLLIN, 0},
                                    pollfd{unsent_.empty() ? -1 : input_.write, POLLOUT, 0}};
      poll(ends.data(), ends.size(), static_cast<int>(std::min<long>(left.count() + 1, 1000)));
      if (ends[2].revents != 0) send_some();
      if (ends[1].revents != 0) drain(error_, complaints_);
      if (ends[0].revents != 0) drain(output_, received_);
      if (complaints_.size() > kStderrTail) {
        complaints_.erase(0, complaints_.size() - kStderrTail);
      }
    }
  }

  // How it ended, in words; waits a moment for a program that has closed its output to end.
  std::string how_it_ended() {
    for (int i = 0; i < 100 && !reap(false); ++i) std::this_thread::sleep_for(milliseconds(10));
    drain(error_, complaints_);
    std::string text;
    if (!reaped_) {
      text = "closed its output without ending";
    } else if (WIFSIGNALED(status_)) {
      text = "was killed by signal " + std::to_string(WTERMSIG(status_)) + " (" +
             strsignal(WTERMSIG(status_)) + ")";
    } else {
      text = "ended with exit code " + std::to_string(WEXITSTATUS(status_));
    }
    const std::string last = last_complaint();
    return text + (last.empty() ? "" : "; its last words: " + last);
  }

 private:
  void send_some() {
    const ssize_t sent = write(input_.write, unsent_.data(), unsent_.size());
    if (sent > 0) {
      unsent_.erase(0, static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      unsent_.clear();  // it no longer reads; whether it still answers shows next
    }
  }

  static void drain(Pipe& pipe, std::string& target) {
    std::array<char, 65536> buffer{};
    while (pipe.read >= 0) {
      const ssize_t got = read(pipe.read, buffer.data(), buffer.size());
      if (got > 0) {
        target.append(buffer.data(), static_cast<std::size_t>(got));
        if (target.size() > kMaxAnswer) return;
      } else if (got == 0) {
        pipe.close_read();
      } else if (errno != EINTR) {
        return;
      }
    }
  }

  bool reap(bool wait) {
    if (!reaped_) reaped_ = waitpid(pid_, &status_, wait ? 0 : WNOHANG) == pid_;
    return reaped_;
  }

  std::string last_complaint() const {
    std::string text = complaints_;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    const std::size_t line = text.rfind('\n');
    return line == std::string::npos ? text : text.substr(line + 1);
  }

  Pipe input_, output_, error_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  int status_ = 0;
  std::string unsent_, received_, complaints_;
};

ExternalScheduler::ExternalScheduler(std::string command, milliseconds deadline)
    : command_(std::move(command)), deadline_(deadline) {
  if (command_.find_first_not_of(" \t\n") == std::string::npos) {
    throw InvalidInput("--exec needs a command");
  }
  signal(SIGPIPE, SIG_IGN);
}

ExternalScheduler::~ExternalScheduler() = default;

ScheduleAnswer ExternalScheduler::ask(const ScheduleProblem& problem) {
  using Kind = SchedulerFailure::Kind;
  milliseconds patience = deadline_;
  if (!process_) {
    process_ = std::make_unique<Process>(command_);
    if (starts_++ > 0) ++restarts_;
    patience *= 10;
  }
  const auto give_up = [&](Kind kind, std::string sentence) {
    process_.reset();
    return SchedulerFailure{kind, std::move(sentence)};
  };
  if (process_->has_unread_line()) {
    return give_up(Kind::kMalformed, "the scheduler wrote a line that nobody had asked for");
  }
  const std::int64_t id = next_id_++;
  process_->write_line(request_line(problem, id));
  const Clock::time_point due = Clock::now() + patience;
  std::string line;
  Process::Result result = process_->read_line(due, line);
  const std::string limit = std::to_string(patience.count()) + " ms";
  if (result == Process::Result::kTimeout) {
    result = process_->read_line(due + patience, line);
    if (result == Process::Result::kLine) {
      return give_up(Kind::kLate, "the scheduler answered after its deadline of " + limit);
    }
    if (result == Process::Result::kTimeout) {
      return give_up(Kind::kHang, "the scheduler hangs: no answer within twice its deadline of " +
                                      limit + ", so it was killed");
    }
  }
  if (result == Process::Result::kTooLong) {
    return give_up(Kind::kMalformed, "the scheduler wrote 256 MiB without a line end");
  }
  if (result == Process::Result::kEnded) {
    const std::string how = process_->how_it_ended();
    return give_up(Kind::kCrash, "the scheduler " + how);
  }
  ScheduleAnswer answer = parse_answer(line, id);
  // After nonsense the streams may be out of step: start afresh.
  if (std::holds_alternative<SchedulerFailure>(answer)) process_.reset();
  return answer;
}

}  // namespace dyncp
