// What a check is: a driver turns one Problem into one CaseResult, made of named expectations.
// Statuses are those of oneDNN's benchdnn: MISTRUSTED says that the case held but could not have
// failed (no CP group larger than 1, all lengths multiples of 2*size, zeros everywhere, ...).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/problem.h"
#include "runtime/safetensors.h"

namespace dyncp {

enum class Status { kPassed, kFailed, kMistrusted, kSkipped, kInvalid };

/// "PASSED", "FAILED", "MISTRUSTED", "SKIPPED" or "INVALID".
std::string_view to_string(Status status);

/// The class of bug a check detects: the column of the fault matrix.
enum class Kind {
  kState,
  kPosition,
  kSlice,
  kPadding,
  kAttention,
  kLoss,
  kSchedule,
  kCommunication
};

/// "state", "position", "slice", "padding", "attention", "loss", "schedule" or "communication".
std::string_view to_string(Kind kind);

/// One failed expectation.
struct Finding {
  std::string check;  // stable name "driver.what", for example "ring.coverage"
  Kind kind = Kind::kState;
  std::string message;  // one sentence with the numbers: which rank, sequence, row, expected, got
};

/// What came of one case. Built by calling expect/mistrust/detail; status() is derived.
class CaseResult {
 public:
  /// Records that the check `name` ran; when `held` is false records the finding. `message` is only
  /// called on failure. Returns `held`.
  bool expect(std::string_view name, Kind kind, bool held,
              const std::function<std::string()>& message);
  /// The case cannot fail for the stated reason.
  void mistrust(std::string reason);
  void skip(std::string reason);
  void invalid(std::string reason);
  /// A line for a person (a table row, a measured figure); never part of the verdict.
  void detail(std::string line);

  /// FAILED with any finding; else INVALID, SKIPPED or MISTRUSTED when said; MISTRUSTED when no
  /// check ran; else PASSED.
  Status status() const;
  /// One line: the first finding, the stated reason, or empty.
  std::string reason() const;
  const std::vector<Finding>& findings() const { return findings_; }
  /// Names of the checks that ran, in order of first use, without repeats.
  const std::vector<std::string>& checks_run() const { return checks_run_; }
  const std::vector<std::string>& details() const { return details_; }

 private:
  std::vector<Finding> findings_;
  std::vector<std::string> checks_run_;
  std::vector<std::string> details_;
  std::string mistrusted_, skipped_, invalid_;
};

/// A named set of real lengths, from fixtures/lengths.
struct LengthSet {
  std::string name;
  std::vector<std::int64_t> lengths;
};

/// smoke under 30 s, ci under 5 minutes, full: everything; on 2 cores, for the whole gate.
enum class Tier { kSmoke, kCi, kFull };

/// One driver of `dyncp check`.
struct Driver {
  std::string_view name;     // "ring"
  std::string_view summary;  // one line for `dyncp list drivers`
  /// Options of the problem grammar this driver reads, without dashes ("lengths", "cp", ...).
  std::vector<std::string_view> options;
  /// Runs one case. Throws InvalidInput for a malformed problem (the caller reports INVALID).
  CaseResult (*run)(const Problem& problem);
  /// Judges tensors that another implementation recorded; null when the driver takes none.
  /// `problem` comes from the file's header. Throws InvalidInput for missing or misshapen tensors.
  CaseResult (*judge)(const Problem& problem, const Safetensors& file);
  /// The cases `dyncp gate` runs at a tier, drawn from the given length sets.
  std::vector<Problem> (*gate_cases)(Tier tier, const std::vector<LengthSet>& sets,
                                     std::uint64_t seed);
};

// One per file of runtime/checks/.
const Driver& schedule_driver();
const Driver& zigzag_driver();
const Driver& rope_driver();
const Driver& attention_driver();
const Driver& ring_driver();
const Driver& loss_driver();

/// All of the above in the order of the data flow.
const std::vector<const Driver*>& drivers();

/// Throws InvalidInput that lists the known names.
const Driver& find_driver(std::string_view name);

}  // namespace dyncp
