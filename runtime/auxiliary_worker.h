// A thread that runs one task at a time beside its owner: the host's counterpart of the auxiliary
// CP stream. Ring attention lets it move the next step's K/V while the owner computes.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace dyncp {

class AuxiliaryWorker {
 public:
  AuxiliaryWorker();
  /// Lets a running task end first.
  ~AuxiliaryWorker();
  AuxiliaryWorker(const AuxiliaryWorker&) = delete;
  AuxiliaryWorker& operator=(const AuxiliaryWorker&) = delete;

  /// Starts `task` on the worker. What the owner wrote before is visible to the task.
  /// REQUIRES: the task before has been waited for; the task ends by itself (transport operations
  /// do: they have deadlines).
  void start(std::function<void()> task);

  /// Returns when the task has ended, at once when there is none; rethrows what it threw. What the
  /// task wrote is visible afterwards.
  void wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;  // set while a task is to run or running
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;  // last: runs as soon as it is made
};

}  // namespace dyncp
