// The errors a person can cause, each one clear line: what, where, what was expected.
// Functions of dyncp throw these and nothing else for bad input; a std::logic_error that escapes is
// a defect of dyncp itself. The command maps them to exit codes (docs/architecture.md).
#pragma once

#include <stdexcept>
#include <string>

namespace dyncp {

/// Bad usage or bad input: exit code 2.
class InvalidInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A well-formed instance that has no valid answer (a sequence that does not fit, ...): exit
/// code 2.
class Infeasible : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The environment lacks what was asked for (a GPU, MPI, a program): exit code 3.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace dyncp
