// Checkpoints of a training run: everything that the next step depends on, in one safetensors file.
//   model.NAME, first_moment.NAME, second_moment.NAME   F32 or F64 like T, shapes of gpt_tensors
//   metadata: format "dyncp-checkpoint-1", config (JSON), steps, seed, data_position, run.KEY
// Reading gives back the same bits (the payload of a NaN aside), so a resumed run goes on exactly
// as the one that was interrupted.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/adamw.h"
#include "runtime/gpt_parameters.h"
#include "runtime/safetensors.h"

namespace dyncp {

/// T is float or double.
template <typename T>
struct Checkpoint {
  GptParameters<T> parameters;
  AdamWState<T> moments;
  std::uint64_t seed = 0;                  // of the data
  std::int64_t data_position = 0;          // documents or batches taken so far: the reader's unit
  std::map<std::string, std::string> run;  // whatever else the trainer wants to find again

  /// Zeros. Throws InvalidInput like require_valid(config).
  explicit Checkpoint(const GptConfig& config) : parameters(config), moments(config) {}
  bool operator==(const Checkpoint&) const = default;
};

/// The file's contents. Throws InvalidInput when a number of `checkpoint` is negative.
template <typename T>
Safetensors checkpoint_file(const Checkpoint<T>& checkpoint);

/// The inverse. Throws InvalidInput, one line: no checkpoint of this format, a configuration other
/// than `expected` (naming the first value that differs), metadata that is missing or no number, a
/// tensor that is missing, unknown, or of another dtype or shape.
template <typename T>
Checkpoint<T> parse_checkpoint(const Safetensors& file, const GptConfig& expected);

/// Writes to a temporary name and renames, so no half-written checkpoint is ever seen and a failed
/// attempt leaves the old one. Throws InvalidInput like checkpoint_file and write_safetensors.
template <typename T>
void write_checkpoint(const std::string& path, const Checkpoint<T>& checkpoint);

/// Throws InvalidInput naming the path: like read_safetensors and parse_checkpoint.
template <typename T>
Checkpoint<T> read_checkpoint(const std::string& path, const GptConfig& expected);

}  // namespace dyncp
