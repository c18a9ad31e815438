#include "runtime/auxiliary_worker.h"

#include <utility>

namespace dyncp {

AuxiliaryWorker::AuxiliaryWorker() : thread_([this] { run(); }) {}

AuxiliaryWorker::~AuxiliaryWorker() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !task_; });
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AuxiliaryWorker::start(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
  }
  changed_.notify_all();
}

void AuxiliaryWorker::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !task_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void AuxiliaryWorker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || task_; });
    if (stopping_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      task_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace dyncp
