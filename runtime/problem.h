// The problem grammar: one struct that describes a check case, prints itself as the command line
// that repeats it, and parses itself back (print and parse are inverse, a property holds them to
// it). Only non-default options are printed. Options are the problem; there is no positional form.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/context.h"
#include "reference/schedule.h"

namespace dyncp {

/// One case of one driver. Every driver reads the fields it needs; an option that a driver does not
/// read is refused by the parser, so that no case looks as if it tested what it did not.
struct Problem {
  std::string driver;  // schedule | zigzag | rope | attention | ring | loss

  // What is packed. All drivers.
  std::vector<std::int64_t> lengths;  // --lengths: real lengths, tokens
  std::vector<std::int64_t> padded;   // --padded: padded lengths; empty = multiple of 2*cp*tp
  std::uint64_t seed = 1;             // --seed: all random values of the case derive from it

  // The CP group (not schedule).
  int cp = 1;                         // --cp: group size
  int first_rank = 0;                 // --first-rank: global rank of the group's first member
  Contract contract = Contract::kV1;  // --contract v1|v2
  int tensor_parallel = 1;            // --tp: factor of the padding multiple

  // Shapes (rope, attention, ring).
  int heads = 4;      // --heads
  int kv_heads = 2;   // --kv-heads; divides heads
  int dim = 16;       // --dim: query/key head dimension
  int value_dim = 0;  // --value-dim; 0 = dim

  // Attention and ring.
  std::string mask = "causal";  // --mask causal|full
  std::int64_t window = -1;     // --window: keys to the left a query sees besides itself, -1 all
  bool sink = false;            // --sink: one learnable sink logit a head

  // RoPE.
  std::string pairing = "half";  // --pairing half|interleaved
  int rotary_dim = 0;            // --rotary-dim; 0 = dim
  double rope_base = 10000.0;    // --rope-base
  double yarn_scale = 1.0;       // --yarn-scale; 1 = off

  // Loss.
  int vocabulary = 32;               // --vocabulary
  std::string loss_mask = "random";  // --loss-mask all|random|none|one-rank

  // Schedule.
  std::string scheduler;           // --scheduler; empty = the default
  int ranks = 8;                   // --ranks: the rank domain
  std::int64_t max_tokens = 4096;  // --max-tokens: per rank
  int min_cp = 1;                  // --min-cp
  int microbatch_multiple = 1;     // --microbatch-multiple
  int max_sequences = 0;           // --max-sequences per pack; 0 = no limit
  std::string execution;           // --execution pack|serial; empty = the scheduler's own
  GroupPolicy group_policy = GroupPolicy::kAligned;  // --group-policy
  Padding padding = Padding::kNone;                  // --padding (schedule only)

  bool operator==(const Problem&) const = default;

  /// The layout of the case's pack: `padded` where given, else multiples of 2*cp*tp.
  /// Throws InvalidInput when the counts differ or a padded length is below its real length.
  Pack pack() const;
  /// The scheduling instance of a schedule case. Throws InvalidInput.
  ScheduleProblem schedule_problem() const;
};

struct Driver;  // runtime/check.h

/// One option of the grammar. The command line, batch files, sweeps and reproducers all work from
/// this table; nothing else knows names or ranges.
struct ProblemOption {
  std::string_view name;   // without dashes
  std::string_view value;  // the value as --help shows it: "N", "v1|v2"; empty for a flag
  std::string_view help;
  bool flag = false;  // takes no value; its text is "1" or "0"
  std::function<std::string(const Problem&)> text;
  /// Inverse of text. Throws InvalidInput naming the option, the value and what was expected.
  std::function<void(Problem&, const std::string&)> set;
};

/// Every option, in the order they are printed and set. The seed stands first: lengths that are
/// drawn from a distribution depend on it.
const std::vector<ProblemOption>& problem_options();

/// Throws InvalidInput that lists the known names.
const ProblemOption& find_problem_option(std::string_view name);

/// The same for an option that `driver` reads. Throws InvalidInput that lists what the driver reads
/// when it does not.
const ProblemOption& find_problem_option(const Driver& driver, std::string_view name);

/// Splits a command as a shell does: blanks separate, '..' and ".." hold blanks, \ takes the next
/// character as it is. Throws InvalidInput on a quote that is not closed.
std::vector<std::string> split_words(std::string_view text);

/// Inverse of split_words: words separated by one blank, in quotes where a shell would take them
/// apart.
std::string join_words(const std::vector<std::string>& words);

/// The options that `driver` reads and whose value is not the default: {"--cp", "4", "--sink"}.
std::vector<std::string> print_arguments(const Driver& driver, const Problem& problem);

/// Inverse of print_arguments; "--cp=4" is read too. Throws InvalidInput: unknown option, option
/// that the driver does not read, option given twice, missing value, value out of range.
Problem parse_arguments(const Driver& driver, const std::vector<std::string>& words);

/// "dyncp check ring --cp 4 --lengths 698,7,0" - complete, ready to paste in a shell. Options that
/// the driver does not read are left out: they cannot matter. Throws InvalidInput when the driver
/// is unknown.
std::string print_command(const Problem& problem);

/// Parses what print_command prints, with or without the leading "dyncp check".
/// Throws InvalidInput naming the option, its value and what was expected.
Problem parse_command(std::string_view command);

/// Most cases of one sweep or batch: more is a slip of the keyboard.
inline constexpr std::int64_t kMaxCases = 100'000;

/// The cross product of the options in `words` with all sweeps ("cp=1,2,4"), the last sweep varying
/// fastest. Throws InvalidInput like parse_arguments, for a malformed sweep, when an option is both
/// given and swept or swept twice, for options whose value is a list, and beyond kMaxCases cases.
std::vector<Problem> sweep_problems(const Driver& driver, const std::vector<std::string>& words,
                                    const std::vector<std::string>& sweeps);

/// The problem lines of a file ("ring --cp 4 --lengths 7,3", with or without "dyncp check"): lines
/// that begin with '#' are comments, "--batch FILE" alone on a line reads another file, at most 8
/// deep. Relative paths, of --batch and of --lengths, are taken from the folder of the file that
/// names them. Throws InvalidInput "FILE:LINE: ...".
std::vector<Problem> read_batch(const std::string& path);

}  // namespace dyncp
