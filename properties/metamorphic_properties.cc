// Metamorphic relations over the whole pipeline (properties/pipeline.h): two ways to run the same
// documents must agree - in every bit where they do the same arithmetic, else within the roundoff
// of the other order (tolerance_of). Each relation takes a Fault, and has a test below in which
// the faults it exists for make it fail: a relation that no fault breaks proves nothing.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "properties/generators.h"
#include "properties/pipeline.h"
#include "reference/error.h"
#include "runtime/scheduler.h"

namespace dyncp::pipeline {
namespace {

constexpr double kUnit = 0x1p-53;

struct Case {
  Model model;
  std::vector<Document> documents;
  RunOptions options;  // fault is kNone
};

Case make_case(const std::vector<std::int64_t>& lengths, std::uint64_t seed) {
  Case c;
  c.model = make_model(seed);
  std::mt19937_64 random(seed + 1);
  c.options.causal = random() % 3 != 0;
  for (std::int64_t length : lengths) {
    Document document;
    const std::uint64_t share = random() % 5;  // of 4: nothing masked ... all but the few masked
    for (std::int64_t j = 0; j < length; ++j) {
      document.tokens.push_back(
          static_cast<std::int64_t>(random() % static_cast<unsigned>(c.model.vocabulary)));
      document.mask.push_back(random() % 4 < share ? 0 : 1);
    }
    c.documents.push_back(std::move(document));
  }
  return c;
}

// One document has at least five tokens, so that every relation has something to relate.
std::vector<std::int64_t> draw_lengths() {
  auto lengths = *genLengths({.max_length = 24, .min_count = 1, .max_count = 5});
  if (*std::max_element(lengths.begin(), lengths.end()) < 5) lengths.push_back(5);
  return lengths;
}

std::vector<int> all_of(const Case& c) {
  std::vector<int> ids(c.documents.size());
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

int pick_size(std::mt19937_64& random) {
  return kGeneratedCpSizes[random() % kGeneratedCpSizes.size()];
}

CpGroup pick_group(std::mt19937_64& random, int size) {
  return {static_cast<int>(random() % 4), size};
}

RunOptions with(const Case& c, Fault fault) {
  RunOptions options = c.options;
  options.fault = fault;
  return options;
}

// ---- Comparison; "" where all is as it must be ------------------------------------------------

std::string differ(const std::string& what, double a, double b, double bound) {
  return what + ": " + std::to_string(a) + " against " + std::to_string(b) + ", apart by " +
         std::to_string(std::abs(a - b) / bound) + " times the bound";
}

// NaN is never close.
bool close(double a, double b, double bound) { return std::abs(a - b) <= bound; }

// The means: `tolerance` is that of sums over `tokens` tokens.
std::string compare_means(const ReducedLoss& a, const ReducedLoss& b, const Tolerance& tolerance,
                          std::int64_t tokens) {
  const auto n = static_cast<double>(std::max<std::int64_t>(tokens, 1));
  const double loss_bound = tolerance.sum / n + 4 * kUnit * std::abs(a.loss);
  if (!close(a.loss, b.loss, loss_bound)) return differ("loss", a.loss, b.loss, loss_bound);
  double squares = 0;
  double elements = 0;
  for (const auto& [name, gradient] : a.gradients) {
    const std::vector<double>& other = b.gradients.at(name);
    for (std::size_t i = 0; i < gradient.size(); ++i, ++elements) {
      const double bound =
          tolerance.gradients_of_sum.at(name)[i] / n + 4 * kUnit * std::abs(gradient[i]);
      squares += bound * bound;
      if (!close(gradient[i], other[i], bound)) {
        return differ("gradient of " + name + " element " + std::to_string(i), gradient[i],
                      other[i], bound);
      }
    }
  }
  const double norm_bound = std::sqrt(squares) + 2 * (elements + 2) * kUnit * a.gradient_norm;
  if (!close(a.gradient_norm, b.gradient_norm, norm_bound)) {
    return differ("gradient norm", a.gradient_norm, b.gradient_norm, norm_bound);
  }
  return "";
}

std::string compare(const StepResult& a, const StepResult& b, const Tolerance& tolerance) {
  if (a.total.tokens != b.total.tokens || a.reduced.tokens != b.reduced.tokens) {
    return "tokens: " + std::to_string(a.reduced.tokens) + " against " +
           std::to_string(b.reduced.tokens);
  }
  if (!close(a.total.sum, b.total.sum, tolerance.sum)) {
    return differ("loss sum", a.total.sum, b.total.sum, tolerance.sum);
  }
  for (const auto& [id, bounds] : tolerance.losses) {
    if (bounds.empty()) continue;  // an empty document may be left out
    if (!a.traces.contains(id) || !b.traces.contains(id)) return "a document did not run";
    for (std::size_t j = 0; j < bounds.size(); ++j) {
      const double x = a.traces.at(id).losses.at(j), y = b.traces.at(id).losses.at(j);
      if (!close(x, y, bounds[j])) {
        return differ("loss of document " + std::to_string(id) + " token " + std::to_string(j), x,
                      y, bounds[j]);
      }
    }
  }
  return compare_means(a.reduced, b.reduced, tolerance, a.total.tokens);
}

std::string same_bits(const StepResult& a, const StepResult& b) {
  if (!(a.total == b.total)) return "loss sum or tokens differ";
  if (a.reduced.loss != b.reduced.loss || a.reduced.tokens != b.reduced.tokens) {
    return "reduced loss or tokens differ";
  }
  if (a.reduced.gradients != b.reduced.gradients) return "gradients differ";
  if (a.reduced.gradient_norm != b.reduced.gradient_norm) return "gradient norms differ";
  if (a.traces != b.traces) return "rows of a document differ";
  return "";
}

// ---- The relations ----------------------------------------------------------------------------
// Each draws its choices from `seed` and returns what is violated, or "".

// The same batch on a group of any size, wherever it starts.
std::string cp_size_invariance(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const Tolerance tolerance = tolerance_of(c.model, c.documents, c.options);
  const RunOptions options = with(c, fault);
  const StepResult alone = run(c.model, c.documents, {{all_of(c), {0, 1}}}, options);
  for (int size : kGeneratedCpSizes) {
    const StepResult sharded =
        run(c.model, c.documents, {{all_of(c), pick_group(random, size)}}, options);
    const std::string violation = compare(alone, sharded, tolerance);
    if (!violation.empty()) return "CP size " + std::to_string(size) + ": " + violation;
  }
  return "";
}

// The same batch in another order.
std::string permutation(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const CpGroup group = pick_group(random, pick_size(random));
  std::vector<int> order = all_of(c);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  const RunOptions options = with(c, fault);
  return compare(run(c.model, c.documents, {{all_of(c), group}}, options),
                 run(c.model, c.documents, {{order, group}}, options),
                 tolerance_of(c.model, c.documents, c.options));
}

// The same batch as several microbatches, on groups of several sizes.
std::string repacking(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  std::vector<Placement> placements(1 + random() % 4);
  for (Placement& placement : placements) {
    placement.group = pick_group(random, pick_size(random));
  }
  for (int id : all_of(c)) placements[random() % placements.size()].documents.push_back(id);
  const RunOptions options = with(c, fault);
  return compare(run(c.model, c.documents, {{all_of(c), {0, 1}}}, options),
                 run(c.model, c.documents, placements, options),
                 tolerance_of(c.model, c.documents, c.options));
}

// The same batch as a scheduler of the field distributes it over eight ranks.
std::string scheduling(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  ScheduleProblem problem;
  problem.ranks = 8;
  problem.padding = Padding::kGroup;
  problem.max_tokens_per_rank = 16 + static_cast<std::int64_t>(random() % 48);
  for (const Document& document : c.documents) problem.lengths.push_back(document.length());
  const RunOptions options = with(c, fault);
  const StepResult alone = run(c.model, c.documents, {{all_of(c), {0, 1}}}, options);
  const Tolerance tolerance = tolerance_of(c.model, c.documents, c.options);
  for (const char* name : {"static-packing", "megatron-balanced", "megatron-packing-aware"}) {
    const Scheduler& scheduler = find_scheduler(name);
    problem.execution = scheduler.execution();
    std::vector<Placement> placements;
    try {
      for (const Microbatch& microbatch : scheduler.schedule(problem).microbatches) {
        for (const Assignment& assignment : microbatch) {
          if (problem.execution == Execution::kPack) {
            placements.push_back({assignment.sequences, assignment.group});
            continue;
          }
          for (int id : assignment.sequences) placements.push_back({{id}, assignment.group});
        }
      }
    } catch (const Infeasible&) {
      continue;  // the baselines refuse instances that they cannot place
    }
    const std::string violation =
        compare(alone, run(c.model, c.documents, placements, options), tolerance);
    if (!violation.empty()) return std::string(name) + ": " + violation;
  }
  return "";
}

// Whatever padding holds, not one bit changes.
std::string pad_content(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const Placement placement{all_of(c), pick_group(random, pick_size(random)), 1};
  RunOptions options = with(c, fault);
  options.padding = 0;
  const StepResult zeros = run(c.model, c.documents, {placement}, options);
  for (double value : {1e300, std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN(), 17.0}) {
    options.padding = value;
    options.padding_token = static_cast<std::int64_t>(random() % 13);
    const std::string violation = same_bits(zeros, run(c.model, c.documents, {placement}, options));
    if (!violation.empty()) return "padding of " + std::to_string(value) + ": " + violation;
  }
  return "";
}

// However much padding there is.
std::string pad_amount(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const CpGroup group = pick_group(random, pick_size(random));
  const int extra = 1 + static_cast<int>(random() % 3);
  const RunOptions options = with(c, fault);
  return compare(run(c.model, c.documents, {{all_of(c), group, 0}}, options),
                 run(c.model, c.documents, {{all_of(c), group, extra}}, options),
                 tolerance_of(c.model, c.documents, c.options));
}

// A masked token's label is never looked at; masking a token takes away its loss and nothing else.
std::string mask_locality(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  std::vector<int> candidates;
  for (int id : all_of(c)) {
    if (c.documents[static_cast<std::size_t>(id)].length() >= 2) candidates.push_back(id);
  }
  const int id = candidates[random() % candidates.size()];
  const auto at = static_cast<std::size_t>(id);
  const auto token =
      static_cast<std::size_t>(random() % static_cast<std::uint64_t>(c.documents[at].length() - 1));
  const Placement placement{all_of(c), pick_group(random, pick_size(random))};
  const RunOptions options = with(c, fault);

  std::vector<Document> unmasked = c.documents, masked = c.documents;
  unmasked[at].mask[token] = 1;
  masked[at].mask[token] = 0;
  std::vector<Document> relabelled = masked;
  const std::int64_t label = c.documents[at].tokens[token + 1];
  relabelled[at].label_changes[static_cast<std::int64_t>(token)] = (label + 5) % c.model.vocabulary;

  const StepResult without = run(c.model, masked, {placement}, options);
  std::string violation = same_bits(without, run(c.model, relabelled, {placement}, options));
  if (!violation.empty()) return "another label of a masked token: " + violation;

  const StepResult before = run(c.model, unmasked, {placement}, options);
  const double loss = before.traces.at(id).losses[token];
  const Tolerance tolerance = tolerance_of(c.model, unmasked, c.options);
  if (before.total.tokens != without.total.tokens + 1) return "masking a token: tokens";
  if (!close(before.total.sum - loss, without.total.sum, tolerance.sum)) {
    return differ("masking a token: loss sum", before.total.sum - loss, without.total.sum,
                  tolerance.sum);
  }
  for (int other : all_of(c)) {
    if (c.documents[static_cast<std::size_t>(other)].length() == 0) continue;
    std::vector<double> expected = before.traces.at(other).losses;
    if (other == id) expected[token] = 0;
    if (without.traces.at(other).losses != expected) return "masking a token: another token's loss";
    if (without.traces.at(other).o != before.traces.at(other).o)
      return "masking a token: attention";
  }
  return "";
}

// Other contents of one sequence, every other sequence bitwise as before.
std::string sequence_isolation(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const Placement placement{all_of(c), pick_group(random, pick_size(random))};
  const auto changed = random() % c.documents.size();
  std::vector<Document> documents = c.documents;
  for (std::int64_t& token : documents[changed].tokens) {
    token = (token + 1 + static_cast<std::int64_t>(random() % 12)) % c.model.vocabulary;
  }
  const RunOptions options = with(c, fault);
  const StepResult before = run(c.model, c.documents, {placement}, options);
  const StepResult after = run(c.model, documents, {placement}, options);
  for (const auto& [id, trace] : before.traces) {
    if (static_cast<std::size_t>(id) != changed && trace != after.traces.at(id)) {
      return "document " + std::to_string(id) + " changed with document " + std::to_string(changed);
    }
  }
  return "";
}

// Every document twice: the same means, twice the tokens.
std::string duplicate_batch(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  Case twice = c;
  twice.documents.insert(twice.documents.end(), c.documents.begin(), c.documents.end());
  const CpGroup group = pick_group(random, pick_size(random));
  const RunOptions options = with(c, fault);
  const StepResult once = run(c.model, c.documents, {{all_of(c), group}}, options);
  const StepResult both = run(c.model, twice.documents, {{all_of(twice), group}}, options);
  if (both.total.tokens != 2 * once.total.tokens ||
      both.reduced.tokens != 2 * once.reduced.tokens) {
    return "tokens: " + std::to_string(both.reduced.tokens) + ", expected twice " +
           std::to_string(once.reduced.tokens);
  }
  return compare_means(once.reduced, both.reduced,
                       tolerance_of(c.model, twice.documents, c.options), both.total.tokens);
}

// RoPE is relative: each sequence's positions may start anywhere.
std::string rope_shift(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const CpGroup group = pick_group(random, pick_size(random));
  constexpr std::int64_t kLargestShift = 1000;
  RunOptions options = with(c, fault);
  const StepResult at_zero = run(c.model, c.documents, {{all_of(c), group}}, options);
  for (std::size_t i = 0; i < c.documents.size(); ++i) {
    options.position_shift.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kLargestShift + 1)));
  }
  return compare(at_zero, run(c.model, c.documents, {{all_of(c), group}}, options),
                 tolerance_of(c.model, c.documents, c.options, kLargestShift));
}

// One process through changing sizes computes what a fresh process computes at each of them.
std::string switching_history(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  const RunOptions options = with(c, fault);
  Worker worker;
  std::string history;
  for (int size : {2, 1, 4, 2, 1, 8}) {
    history += (history.empty() ? "" : " ") + std::to_string(size);
    const Placement placement{all_of(c), pick_group(random, size)};
    const std::string violation = same_bits(run(c.model, c.documents, {placement}, options),
                                            worker.run(c.model, c.documents, {placement}, options));
    if (!violation.empty()) return "after sizes " + history + ": " + violation;
  }
  return "";
}

// The same plan twice, bit by bit.
std::string repeatability(const Case& c, std::uint64_t seed, Fault fault) {
  std::mt19937_64 random(seed);
  std::vector<Placement> placements;
  for (int id : all_of(c)) placements.push_back({{id}, pick_group(random, pick_size(random))});
  placements.push_back({all_of(c), pick_group(random, 4)});
  const RunOptions options = with(c, fault);
  Worker worker;
  const StepResult first = worker.run(c.model, c.documents, placements, options);
  for (int again = 0; again < 2; ++again) {
    const std::string violation =
        same_bits(first, worker.run(c.model, c.documents, placements, options));
    if (!violation.empty()) return violation;
  }
  return "";
}

// ---- They hold --------------------------------------------------------------------------------

using Relation = std::string (*)(const Case&, std::uint64_t, Fault);

void holds(Relation relation) {
  const Case c = make_case(draw_lengths(), *rc::gen::arbitrary<std::uint64_t>());
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const std::string violation = relation(c, seed, Fault::kNone);
  if (!violation.empty()) RC_FAIL(violation);
}

RC_GTEST_PROP(Metamorphic, CpSizeInvariance, ()) { holds(cp_size_invariance); }
RC_GTEST_PROP(Metamorphic, Permutation, ()) { holds(permutation); }
RC_GTEST_PROP(Metamorphic, Repacking, ()) { holds(repacking); }
RC_GTEST_PROP(Metamorphic, Scheduling, ()) { holds(scheduling); }
RC_GTEST_PROP(Metamorphic, PadContent, ()) { holds(pad_content); }
RC_GTEST_PROP(Metamorphic, PadAmount, ()) { holds(pad_amount); }
RC_GTEST_PROP(Metamorphic, MaskLocality, ()) { holds(mask_locality); }
RC_GTEST_PROP(Metamorphic, SequenceIsolation, ()) { holds(sequence_isolation); }
RC_GTEST_PROP(Metamorphic, DuplicateBatch, ()) { holds(duplicate_batch); }
RC_GTEST_PROP(Metamorphic, RopeShift, ()) { holds(rope_shift); }
RC_GTEST_PROP(Metamorphic, SwitchingHistory, ()) { holds(switching_history); }
RC_GTEST_PROP(Metamorphic, Repeatability, ()) { holds(repeatability); }

// ---- They can fail ----------------------------------------------------------------------------

// Padding is finite, so that no fault is found merely because NaN differs from itself.
Case control_case(bool causal) {
  Case c = make_case({13, 1, 22, 7, 0, 18}, 5);
  c.options.causal = causal;
  c.options.padding = 0.25;
  return c;
}

constexpr std::uint64_t kSeeds = 8;

// The relation holds for every seed without a fault, and fails for one with each of the faults.
void fails_with(Relation relation, const std::vector<std::pair<const char*, Fault>>& faults,
                bool causal = true) {
  const Case c = control_case(causal);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(relation(c, seed, Fault::kNone), "");
  }
  for (const auto& [name, fault] : faults) {
    std::string violation;
    for (std::uint64_t seed = 0; seed < kSeeds && violation.empty(); ++seed) {
      violation = relation(c, seed, fault);
    }
    EXPECT_NE(violation, "") << "the fault " << name << " was not noticed";
    if (fault != Fault::kPadNanTimesZero) {
      EXPECT_EQ(violation.find("nan"), std::string::npos) << name << ": " << violation;
    }
  }
}

TEST(MetamorphicControls, CpSizeInvariance) {
  fails_with(cp_size_invariance, {{"slice-whole-buffer", Fault::kSliceWholeBuffer},
                                  {"rope-build-time-group", Fault::kRopeBuildTimeGroup},
                                  {"position-of-first-sequence", Fault::kPositionOfFirstSequence},
                                  {"labels-rolled-after-slice", Fault::kLabelsRolledAfterSlice},
                                  {"last-dkv-lost", Fault::kLastDkvLost},
                                  {"local-mean", Fault::kLocalMean},
                                  {"loss-times-cp", Fault::kLossTimesCp},
                                  {"tokens-counted-twice", Fault::kTokensCountedTwice}});
}

TEST(MetamorphicControls, Permutation) {
  fails_with(permutation, {{"position-of-first-sequence", Fault::kPositionOfFirstSequence},
                           {"cross-sequence-leak", Fault::kCrossSequenceLeak},
                           {"slice-whole-buffer", Fault::kSliceWholeBuffer},
                           {"sequence-lost", Fault::kSequenceLost}});
}

TEST(MetamorphicControls, Repacking) {
  fails_with(repacking, {{"local-mean", Fault::kLocalMean},
                         {"loss-times-cp", Fault::kLossTimesCp},
                         {"tokens-counted-twice", Fault::kTokensCountedTwice},
                         {"cross-sequence-leak", Fault::kCrossSequenceLeak},
                         {"sequence-lost", Fault::kSequenceLost}});
}

TEST(MetamorphicControls, Scheduling) {
  fails_with(scheduling, {{"local-mean", Fault::kLocalMean},
                          {"rope-build-time-group", Fault::kRopeBuildTimeGroup},
                          {"sequence-lost", Fault::kSequenceLost}});
}

TEST(MetamorphicControls, PadContent) {
  fails_with(pad_content, {{"pad-nan-times-zero", Fault::kPadNanTimesZero}});
  fails_with(pad_content, {{"padded-as-real", Fault::kPaddedAsReal}}, /*causal=*/false);
}

TEST(MetamorphicControls, PadAmount) {
  fails_with(pad_amount, {{"position-of-first-sequence", Fault::kPositionOfFirstSequence},
                          {"labels-rolled-after-slice", Fault::kLabelsRolledAfterSlice}});
  fails_with(pad_amount, {{"padded-as-real", Fault::kPaddedAsReal}}, /*causal=*/false);
}

TEST(MetamorphicControls, MaskLocality) {
  fails_with(mask_locality, {{"mask-ignored", Fault::kMaskIgnored}});
}

TEST(MetamorphicControls, SequenceIsolation) {
  fails_with(sequence_isolation, {{"cross-sequence-leak", Fault::kCrossSequenceLeak},
                                  {"slice-whole-buffer", Fault::kSliceWholeBuffer}});
}

TEST(MetamorphicControls, DuplicateBatch) {
  fails_with(duplicate_batch, {{"sum-not-divided", Fault::kSumNotDivided},
                               {"sequence-lost", Fault::kSequenceLost},
                               {"cross-sequence-leak", Fault::kCrossSequenceLeak}});
}

TEST(MetamorphicControls, RopeShift) {
  fails_with(rope_shift, {{"rotate-queries-only", Fault::kRotateQueriesOnly}});
}

TEST(MetamorphicControls, SwitchingHistory) {
  fails_with(switching_history, {{"cos-sin-cache-key", Fault::kCosSinCacheKey},
                                 {"stale-group-after-cp1", Fault::kStaleGroupAfterCp1}});
}

TEST(MetamorphicControls, Repeatability) {
  fails_with(repeatability, {{"order-of-arrival", Fault::kOrderOfArrival}});
}

// ---- The pipeline and the tolerance themselves ------------------------------------------------

TEST(Pipeline, GradientsAreThoseOfTheSum) {
  for (bool causal : {true, false}) {
    const Case c = control_case(causal);
    const Placement placement{all_of(c), {2, 3}};
    const StepResult result = run(c.model, c.documents, {placement}, c.options);
    const auto n = static_cast<double>(result.total.tokens);
    const double step = 0x1p-17;
    const auto check = [&](const char* name, std::vector<double> Model::*weights) {
      const auto sum = [&](const std::vector<double>& values) {
        Model model = c.model;
        model.*weights = values;
        return run(model, c.documents, {placement}, c.options).total.sum;
      };
      const auto numeric = central_differences(sum, c.model.*weights, step);
      const std::vector<double>& mean = result.reduced.gradients.at(name);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        // Roundoff 2^-53 * sum * sqrt(terms) / step is about 1e-8, the truncation of a smooth
        // function of order 1 with ~60 terms h^2 * 60 about 4e-9.
        EXPECT_NEAR(mean[i] * n, numeric[i], 1e-6 * (1 + std::abs(numeric[i]))) << name << " " << i;
      }
    };
    check("embedding", &Model::embedding);
    check("head", &Model::head);
  }
}

TEST(Pipeline, NothingUnmaskedGivesExactZeros) {
  Case c = control_case(true);
  for (Document& document : c.documents) std::fill(document.mask.begin(), document.mask.end(), 0);
  c.options.padding = std::numeric_limits<double>::quiet_NaN();
  const StepResult result = run(c.model, c.documents, {{all_of(c), {0, 3}}}, c.options);
  EXPECT_EQ(result.total, LossSum());
  EXPECT_EQ(result.reduced.loss, 0.0);
  EXPECT_EQ(result.reduced.gradient_norm, 0.0);
}

// A tolerance far above what is compared would hide faults.
TEST(Pipeline, ToleranceIsNarrow) {
  const Case c = control_case(true);
  const Tolerance tolerance = tolerance_of(c.model, c.documents, c.options);
  const StepResult result = run(c.model, c.documents, {{all_of(c), {0, 4}}}, c.options);
  const auto n = static_cast<double>(result.total.tokens);
  EXPECT_LT(tolerance.sum, 1e-9 * result.total.sum);
  double largest = 0;
  for (const auto& [name, bounds] : tolerance.gradients_of_sum) {
    for (double bound : bounds) largest = std::max(largest, bound);
  }
  EXPECT_LT(largest, 1e-8 * n * result.reduced.gradient_norm);
}

}  // namespace
}  // namespace dyncp::pipeline
