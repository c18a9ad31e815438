#include "runtime/candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "reference/error.h"
#include "reference/zigzag.h"
#include "runtime/check.h"

namespace dyncp {
namespace {

using nlohmann::json;

// Header fields that carry an option under another name.
constexpr std::string_view kFieldOptions[] = {"lengths", "padded", "cp", "first-rank", "contract"};

[[noreturn]] void fail(const std::string& what) { throw InvalidInput("candidate header: " + what); }

std::int64_t integer(const json& value, const std::string& name, std::int64_t low,
                     std::int64_t high) {
  const std::string expected = fmt::format("expected an integer in {}..{}", low, high);
  if (!value.is_number_integer()) fail(fmt::format("{} is {}, {}", name, value.dump(), expected));
  // Above the range of int64 the value is unsigned and large.
  const bool huge =
      value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (huge || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    fail(fmt::format("{} is {}, {}", name, value.dump(), expected));
  }
  return value.get<std::int64_t>();
}

double number(const json& value, const std::string& name) {
  if (!value.is_number()) fail(fmt::format("{} is {}, expected a number", name, value.dump()));
  return value.get<double>();
}

std::string text(const json& value, const std::string& name) {
  if (!value.is_string()) fail(fmt::format("{} is {}, expected a string", name, value.dump()));
  return value.get<std::string>();
}

std::vector<std::int64_t> length_list(const json& value, const std::string& name) {
  if (!value.is_array()) fail(fmt::format("{} is no list", name));
  std::vector<std::int64_t> lengths;
  for (const json& item : value) {
    lengths.push_back(
        integer(item, fmt::format("{}[{}]", name, lengths.size()), 0, kMaxCandidateTokens));
  }
  return lengths;
}

// Any driver that judges tensors, by the header's "check".
const Driver& judging_driver(const std::string& check) {
  if (check != "schedule") {
    for (const Driver* driver : drivers()) {
      if (driver->name == check) return *driver;
    }
  }
  fail(fmt::format("check is '{}', expected zigzag, rope, attention, ring or loss", check));
}

void read_options(Problem& problem, const json& header) {
  if (!header.is_object()) fail("options is no object");
  const Driver& driver = judging_driver(problem.driver);
  for (const auto& [key, value] : header.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(std::begin(kFieldOptions), std::end(kFieldOptions), name) !=
        std::end(kFieldOptions)) {
      fail(fmt::format("option {} is a field of the header itself (size for cp)", key));
    }
    const bool is_read =
        std::find(driver.options.begin(), driver.options.end(), name) != driver.options.end();
    if (!is_read) fail(fmt::format("check {} reads no option '{}'", problem.driver, key));
    std::string text;
    if (value.is_string()) {
      text = value.get<std::string>();
    } else if (value.is_boolean()) {
      text.assign(1, value.get<bool>() ? '1' : '0');
    } else if (value.is_number()) {
      text = value.dump();
    } else {
      fail(fmt::format("option {} is {}, expected a number, a string or true or false", key,
                       value.dump()));
    }
    find_problem_option(name).set(problem, text);
  }
}

void read_yarn(YarnScaling& yarn, const json& header) {
  if (!header.is_object()) fail("yarn is no object");
  for (const auto& [key, value] : header.items()) {
    const double given = number(value, "yarn." + key);
    if (key == "original_max_positions") {
      yarn.original_max_positions = given;
    } else if (key == "beta_fast") {
      yarn.beta_fast = given;
    } else if (key == "beta_slow") {
      yarn.beta_slow = given;
    } else if (key == "mscale") {
      yarn.mscale = given;
    } else if (key == "mscale_all_dim") {
      yarn.mscale_all_dim = given;
    } else {
      fail(
          fmt::format("yarn has no field '{}': expected original_max_positions, beta_fast, "
                      "beta_slow, mscale or mscale_all_dim",
                      key));
    }
  }
}

void read_rank(Candidate& candidate, const json& header) {
  const int size = candidate.problem.cp;
  if (header.contains("rank") == header.contains("ranks")) {
    fail("expected either rank (the CP rank of the tensors) or ranks (\"all\")");
  }
  if (header.contains("ranks")) {
    if (text(header["ranks"], "ranks") != "all") {
      fail(fmt::format("ranks is {}, expected \"all\"", header["ranks"].dump()));
    }
    return;
  }
  candidate.rank = static_cast<int>(integer(header["rank"], "rank", 0, kMaxRanks));
  if (*candidate.rank >= size) {
    fail(
        fmt::format("rank is {}, expected a rank inside the CP group, 0..{}: the global rank less "
                    "first_rank",
                    *candidate.rank, size - 1));
  }
}

}  // namespace

Candidate read_candidate(const Safetensors& file) {
  const auto found = file.metadata.find(std::string(kCandidateKey));
  if (found == file.metadata.end()) {
    throw InvalidInput(
        "the file has no candidate header: expected JSON under the metadata key \"dyncp\"");
  }
  const json header = json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  if (header.is_discarded()) fail("not valid JSON");
  if (!header.is_object()) fail("not a JSON object");
  constexpr std::string_view kFields[] = {"version",  "check",     "lengths", "padded",
                                          "size",     "rank",      "ranks",   "first_rank",
                                          "contract", "positions", "yarn",    "options"};
  for (const auto& [key, value] : header.items()) {
    if (std::find(std::begin(kFields), std::end(kFields), key) == std::end(kFields)) {
      fail(fmt::format("unknown field '{}': expected {}", key,
                       fmt::join(std::begin(kFields), std::end(kFields), ", ")));
    }
  }
  for (const char* key : {"version", "check", "lengths", "size"}) {
    if (!header.contains(key)) fail(fmt::format("no field '{}'", key));
  }
  if (integer(header["version"], "version", 0, 1'000'000) != 1) {
    fail(fmt::format("version is {}, this dyncp reads version 1", header["version"].dump()));
  }
  Candidate candidate;
  Problem& problem = candidate.problem;
  problem.driver = text(header["check"], "check");
  (void)judging_driver(problem.driver);
  problem.lengths = length_list(header["lengths"], "lengths");
  if (header.contains("padded")) problem.padded = length_list(header["padded"], "padded");
  problem.cp = static_cast<int>(integer(header["size"], "size", 1, kMaxRanks));
  read_rank(candidate, header);
  if (header.contains("first_rank")) {
    problem.first_rank =
        static_cast<int>(integer(header["first_rank"], "first_rank", 0, kMaxRanks));
  }
  if (header.contains("contract")) {
    problem.contract = parse_contract(text(header["contract"], "contract"));
  }
  const bool is_rope = problem.driver == "rope";
  if (header.contains("positions")) {
    const std::string positions = text(header["positions"], "positions");
    if (!is_rope) fail("positions belongs to check rope");
    if (positions != "restarting" && positions != "packed") {
      fail(fmt::format("positions is '{}', expected restarting or packed", positions));
    }
    candidate.packed_positions = positions == "packed";
  }
  if (header.contains("options")) read_options(problem, header["options"]);
  if (header.contains("yarn")) {
    if (!is_rope) fail("yarn belongs to check rope");
    read_yarn(candidate.yarn, header["yarn"]);
  }
  candidate.yarn.scale = problem.yarn_scale;
  if (!problem.padded.empty() && problem.padded.size() != problem.lengths.size()) {
    fail(fmt::format("{} padded lengths for {} lengths", problem.padded.size(),
                     problem.lengths.size()));
  }
  const Pack pack = problem.pack();
  if (pack.padded_tokens() > kMaxCandidateTokens) {
    fail(fmt::format("the pack has {} padded tokens, more than {}", pack.padded_tokens(),
                     kMaxCandidateTokens));
  }
  require_divisible(pack, problem.cp);
  return candidate;
}

std::string candidate_header(const Candidate& candidate) {
  const Problem& problem = candidate.problem;
  json header = {{"version", 1},
                 {"check", problem.driver},
                 {"lengths", problem.lengths},
                 {"size", problem.cp},
                 {"first_rank", problem.first_rank},
                 {"contract", std::string(to_string(problem.contract))}};
  if (!problem.padded.empty()) header["padded"] = problem.padded;
  if (candidate.rank) {
    header["rank"] = *candidate.rank;
  } else {
    header["ranks"] = "all";
  }
  const Problem defaults;
  json given = json::object();
  for (const ProblemOption& option : problem_options()) {
    const std::string text = option.text(problem);
    const bool is_field = std::find(std::begin(kFieldOptions), std::end(kFieldOptions),
                                    option.name) != std::end(kFieldOptions);
    if (is_field || text == option.text(defaults)) continue;
    const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
    given[std::string(option.name)] = value.is_number() ? value : json(text);
  }
  header["options"] = given;
  if (problem.driver == "rope") {
    header["positions"] = candidate.packed_positions ? "packed" : "restarting";
    header["yarn"] = {{"original_max_positions", candidate.yarn.original_max_positions},
                      {"beta_fast", candidate.yarn.beta_fast},
                      {"beta_slow", candidate.yarn.beta_slow},
                      {"mscale", candidate.yarn.mscale},
                      {"mscale_all_dim", candidate.yarn.mscale_all_dim}};
  }
  return header.dump();
}

std::string shape_text(const NamedTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

std::vector<RecordedRows> recorded_rows(const Candidate& candidate, const Safetensors& file,
                                        const std::string& name, int trailing) {
  const NamedTensor& tensor = find_tensor(file, name);
  std::vector<std::int64_t> shape = tensor.shape;
  const int ranks = candidate.rank ? 1 : candidate.problem.cp;
  const auto mismatch = [&]() {
    return InvalidInput(fmt::format(
        "tensor {} has shape {}, expected {} with {} dimension{} behind rows", name,
        shape_text(tensor),
        candidate.rank ? std::string("[rows, ...]") : fmt::format("[{}, rows, ...]", ranks),
        trailing, trailing == 1 ? "" : "s"));
  };
  if (!candidate.rank) {
    if (shape.empty() || shape.front() != ranks) throw mismatch();
    shape.erase(shape.begin());
  }
  const auto wanted = static_cast<std::size_t>(trailing) + 1;
  if (shape.size() == wanted + 1 && shape.front() == 1) shape.erase(shape.begin());
  if (shape.size() != wanted) throw mismatch();
  std::vector<RecordedRows> result;
  RecordedRows part;
  part.rows = shape.front();
  part.width = std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1},
                               std::multiplies<std::int64_t>());
  const std::int64_t values = part.rows * part.width;
  for (int i = 0; i < ranks; ++i) {
    part.rank = candidate.rank.value_or(i);
    part.values.assign(tensor.values.begin() + i * values,
                       tensor.values.begin() + (i + 1) * values);
    result.push_back(part);
  }
  return result;
}

std::vector<Tensor<double>> recorded_tensors(const Candidate& candidate, const Safetensors& file,
                                             const std::string& name, std::int64_t rows) {
  std::vector<Tensor<double>> result;
  const std::vector<std::int64_t>& shape = find_tensor(file, name).shape;
  for (RecordedRows& part : recorded_rows(candidate, file, name, 2)) {
    if (part.rows != rows) {
      throw InvalidInput(fmt::format("tensor {} has {} rows on rank {}, expected {}", name,
                                     part.rows, part.rank, rows));
    }
    const std::int64_t heads = shape[shape.size() - 2], dim = shape.back();
    if (heads < 1 || dim < 1 || heads > (1 << 20) || dim > (1 << 20)) {
      throw InvalidInput(fmt::format("tensor {} has shape {}, expected heads and dim of at least 1",
                                     name, shape_text(find_tensor(file, name))));
    }
    Tensor<double> tensor(0, static_cast<int>(heads), static_cast<int>(dim));
    tensor.rows = rows;
    tensor.data = std::move(part.values);
    result.push_back(std::move(tensor));
  }
  return result;
}

std::vector<std::int64_t> to_integers(const std::string& name, const std::vector<double>& values) {
  std::vector<std::int64_t> result;
  result.reserve(values.size());
  for (double value : values) {
    if (!(std::fabs(value) <= 0x1p53) || value != std::nearbyint(value)) {
      throw InvalidInput(fmt::format("tensor {} holds {} at index {}, expected integers", name,
                                     value, result.size()));
    }
    result.push_back(static_cast<std::int64_t>(value));
  }
  return result;
}

RopePrecision rope_precision(const std::string& name, const NamedTensor& tensor) {
  if (tensor.dtype == "F64") return {};
  if (tensor.dtype == "F32") {
    return {.unit = 0x1p-24, .underflow = 0x1p-126, .angle_unit = 0x1p-24};
  }
  // Subnormals of F32 and BF16 may be flushed; F16 has them in hardware.
  if (tensor.dtype == "BF16") return {.unit = 0x1p-8, .underflow = 0x1p-126, .angle_unit = 0x1p-24};
  if (tensor.dtype == "F16") return {.unit = 0x1p-11, .underflow = 0x1p-25, .angle_unit = 0x1p-24};
  throw InvalidInput(
      fmt::format("tensor {} has dtype {}, expected F64, F32, F16 or BF16", name, tensor.dtype));
}

}  // namespace dyncp
