// Recorded attention tensors for tests of the judge: what a ring of this project computes, written
// as a candidate file would hold it, with faults put in on the way.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention.h"
#include "reference/ring.h"
#include "reference/zigzag.h"
#include "runtime/attention_case.h"
#include "runtime/candidate.h"
#include "runtime/check.h"

namespace dyncp {

/// One microbatch of attention on `size` ranks and what it gave.
struct Recorded {
  AttentionCase input;
  int size = 1;
  Arithmetic arithmetic = Arithmetic::kBf16;
  RingResult result;

  RingPlan plan() const {
    return make_ring_plan(input.pack, size, input.options.causal, input.options.window);
  }
  RingOptions ring_options() const {
    return {input.options.scale, input.options.sink, arithmetic, Accumulation::kWide, {}};
  }
};

/// A clean run. Padding inputs are NaN.
inline Recorded record(const Pack& pack, int size, Arithmetic arithmetic,
                       AttentionShape shape = {4, 2, 16, 16}, AttentionOptions options = {},
                       Accumulation accumulation = Accumulation::kWide, std::uint64_t seed = 5) {
  for (double& sink : options.sink) sink = round_to(storage_format(arithmetic), sink);
  Recorded recorded{make_attention_case(pack, shape, options, seed, storage_format(arithmetic)),
                    size,
                    arithmetic,
                    {}};
  RingOptions ring = recorded.ring_options();
  ring.accumulation = accumulation;
  const AttentionCase& c = recorded.input;
  recorded.result = ring_attention(recorded.plan(), c.q, c.k, c.v, c.d_o, ring);
  return recorded;
}

/// How a recording is written.
struct WriteOptions {
  std::optional<int> rank;                          // one rank's slice instead of all
  bool pack_order = false;                          // whole tensors instead of slices
  bool lse_transposed = false;                      // stored as [rows, heads]
  std::vector<std::string> tensors = {"o", "lse"};  // besides q, k, v and what gradients need
};

inline std::string dtype_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kDouble:
      return "F64";
    case Arithmetic::kFloat:
      return "F32";
    case Arithmetic::kBf16:
      return "BF16";
    case Arithmetic::kFp16:
      return "F16";
  }
  return "?";
}

inline Safetensors to_file(const Recorded& recorded, const std::string& driver,
                           const WriteOptions& write = {}) {
  const Pack& pack = recorded.input.pack;
  Safetensors file;
  Candidate candidate;
  candidate.problem.driver = driver;
  for (int s = 0; s < pack.sequences(); ++s) {
    candidate.problem.lengths.push_back(pack.real_length(s));
    candidate.problem.padded.push_back(pack.padded_length(s));
  }
  candidate.problem.cp = recorded.size;
  candidate.problem.contract = Contract::kV1;
  candidate.problem.mask = recorded.input.options.causal ? "causal" : "full";
  candidate.problem.window = recorded.input.options.window;
  candidate.problem.sink = !recorded.input.options.sink.empty();
  candidate.rank = write.rank;
  file.metadata[std::string(kCandidateKey)] = candidate_header(candidate);

  const std::int64_t local = pack.padded_tokens() / recorded.size;
  const auto put = [&](const std::string& name, const Tensor<double>& whole, bool all_ranks) {
    NamedTensor tensor;
    tensor.dtype = dtype_of(recorded.arithmetic);
    if (write.rank && !all_ranks) {
      const Tensor<double> slice = gather(whole, zigzag_rows(pack, recorded.size, *write.rank));
      tensor.shape = {slice.rows, slice.heads, slice.dim};
      tensor.values = slice.data;
    } else if (write.pack_order) {
      tensor.shape = {whole.rows, whole.heads, whole.dim};
      tensor.values = whole.data;
    } else {
      tensor.shape = {recorded.size, local, whole.heads, whole.dim};
      for (const Tensor<double>& slice : slice_pack(pack, recorded.size, whole)) {
        tensor.values.insert(tensor.values.end(), slice.data.begin(), slice.data.end());
      }
    }
    file.tensors[name] = std::move(tensor);
  };
  const auto put_lse = [&](const HeadRows<double>& whole) {
    NamedTensor tensor;
    tensor.dtype = recorded.arithmetic == Arithmetic::kDouble ? "F64" : "F32";
    std::vector<std::vector<std::int64_t>> units;
    if (write.rank) {
      units = {zigzag_rows(pack, recorded.size, *write.rank)};
    } else if (write.pack_order) {
      units = {zigzag_rows(pack, 1, 0)};
    } else {
      for (int r = 0; r < recorded.size; ++r) units.push_back(zigzag_rows(pack, recorded.size, r));
      tensor.shape = {recorded.size};
    }
    const auto rows = static_cast<std::int64_t>(units[0].size());
    tensor.shape.push_back(write.lse_transposed ? rows : whole.heads);
    tensor.shape.push_back(write.lse_transposed ? whole.heads : rows);
    for (const auto& unit : units) {
      for (std::int64_t n = 0; n < rows * whole.heads; ++n) {
        const auto head = static_cast<int>(write.lse_transposed ? n % whole.heads : n / rows);
        const std::int64_t row = write.lse_transposed ? n / whole.heads : n % rows;
        tensor.values.push_back(whole.at(head, unit[static_cast<std::size_t>(row)]));
      }
    }
    file.tensors["lse"] = std::move(tensor);
  };
  const auto wants = [&](const std::string& name) {
    return std::find(write.tensors.begin(), write.tensors.end(), name) != write.tensors.end();
  };
  const bool keys = wants("dk") || wants("dv");
  put("q", recorded.input.q, keys);
  put("k", recorded.input.k, true);
  put("v", recorded.input.v, true);
  if (candidate.problem.sink) {
    file.tensors["sink"] = {"F64",
                            {static_cast<std::int64_t>(recorded.input.options.sink.size())},
                            recorded.input.options.sink};
  }
  if (wants("o")) put("o", recorded.result.output.o, false);
  if (wants("lse")) put_lse(recorded.result.output.lse);
  if (keys || wants("dq")) put("do", recorded.input.d_o, keys);
  if (wants("dq")) put("dq", recorded.result.gradients.dq, false);
  if (wants("dk")) put("dk", recorded.result.gradients.dk, false);
  if (wants("dv")) put("dv", recorded.result.gradients.dv, false);
  return file;
}

/// What the driver says about a file.
inline CaseResult judge_file(const Safetensors& file) {
  const Problem problem = read_candidate(file).problem;
  return find_driver(problem.driver).judge(problem, file);
}

/// Status, reason, findings and details in one text.
inline std::string text_of(const CaseResult& result) {
  std::string text = fmt::format("{} {}", to_string(result.status()), result.reason());
  for (const Finding& finding : result.findings()) {
    text += fmt::format("\n{}: {}", finding.check, finding.message);
  }
  for (const std::string& line : result.details()) text += "\n  " + line;
  return text;
}

/// The messages of one check's findings.
inline std::string message_of(const CaseResult& result, const std::string& check) {
  std::string text;
  for (const Finding& finding : result.findings()) {
    if (finding.check == check) text += finding.message;
  }
  return text;
}

}  // namespace dyncp
