// Binding a module to the CP group of one microbatch (rule R3): a module built with one CP size
// runs a microbatch on another, and the build-time group is back afterwards, however it ends.
#pragma once

#include <optional>

#include "reference/context.h"

namespace dyncp {

class CpBinding;

/// A module that runs under a CP context: the build-time one, or that of the microbatch it is bound
/// to.
class CpModule {
 public:
  CpModule(const CpModule&) = delete;
  CpModule& operator=(const CpModule&) = delete;

  const CpContext& build_time_context() const { return build_time_; }
  bool bound() const { return bound_.has_value(); }
  /// What the module runs on now. A CP1 microbatch sees CP off, never an earlier group.
  const CpContext& context() const { return bound_ ? *bound_ : build_time_; }

 protected:
  explicit CpModule(const CpContext& build_time) : build_time_(build_time) {}
  ~CpModule() = default;

 private:
  friend class CpBinding;
  CpContext build_time_;
  std::optional<CpContext> bound_;
};

/// Binds `module` to `context` from construction to destruction, by return or by exception. The
/// scope of one microbatch: its forward and backward passes.
class CpBinding {
 public:
  /// Throws InvalidInput when the module is bound already: microbatches do not nest.
  /// REQUIRES: the module outlives the binding.
  CpBinding(CpModule& module, const CpContext& context);
  ~CpBinding();
  CpBinding(const CpBinding&) = delete;
  CpBinding& operator=(const CpBinding&) = delete;

 private:
  CpModule& module_;
};

}  // namespace dyncp
