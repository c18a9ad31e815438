// Metrics lines, their way through a file, and what a resumed run keeps of it.
#include "runtime/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/line_file.h"

namespace dyncp {
namespace {

StepMetrics metrics_of(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 0.1 + static_cast<double>(step);
  metrics.tokens = 900;
  metrics.gradient_norm = 1.0 / 3.0;
  metrics.learning_rate = 1e-3;
  metrics.real_tokens = 910;
  metrics.padded_tokens = 928;
  metrics.cp_sizes = {{1, 3}, {4, 2}};
  metrics.parameter_norms = {{"head.weight", 2.5}, {"a", 1.0}};
  return metrics;
}

std::string refusal_of(const std::string& path, std::int64_t steps) {
  try {
    metrics_lines_until(path, steps);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Metrics, LineHoldsEveryNumberExactly) {
  EXPECT_EQ(
      metrics_line(metrics_of(1)),
      "{\"step\":1,\"loss\":1.1,\"tokens\":900,\"grad_norm\":0.3333333333333333,"
      "\"learning_rate\":0.001,\"real_tokens\":910,\"padded_tokens\":928,"
      "\"cp_sizes\":{\"1\":3,\"4\":2},\"parameter_norms\":{\"head.weight\":2.5,\"a\":1.0}}\n");
  StepMetrics broken = metrics_of(1);
  broken.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(metrics_line(broken).find("\"loss\":null"), std::string::npos);
}

TEST(Metrics, KeepsTheLinesBeforeACheckpoint) {
  const ScratchFolder folder;
  const std::string first = metrics_line(metrics_of(1)) + metrics_line(metrics_of(2));
  const std::string path = folder.file("metrics", first + metrics_line(metrics_of(3)) + "{\"st");
  EXPECT_EQ(metrics_lines_until(path, 2), first);
  EXPECT_EQ(metrics_lines_until(path, 0), "");
  EXPECT_EQ(refusal_of(path, 4), path +
                                     ": line 4 is not the metrics of step 4: going on after step 4 "
                                     "needs those of all steps before");
  refusal_of(path + ".none", 1);
  const std::string other = folder.file("other", metrics_line(metrics_of(2)));
  EXPECT_NE(refusal_of(other, 1).find("line 1 is not the metrics of step 1"), std::string::npos);
}

TEST(LineFile, GrowsAndReplaces) {
  const ScratchFolder folder;
  const std::string path = folder.file("lines", "old\n");
  {
    LineFile file(path, "kept\n");
    file.append("a\n");
    EXPECT_EQ(read_file(path), "kept\na\n");
    file.append("b\n");
  }
  EXPECT_EQ(read_file(path), "kept\na\nb\n");
  EXPECT_THROW(LineFile(folder.path()), InvalidInput);
  EXPECT_THROW(LineFile(folder.path() + "/none/lines"), InvalidInput);
}

}  // namespace
}  // namespace dyncp
