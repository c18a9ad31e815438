// round_up is the least multiple, and padding for a larger group never pads less than it must.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "properties/generators.h"
#include "reference/sequence.h"

namespace dyncp {
namespace {

RC_GTEST_PROP(SequenceProperties, RoundUpIsTheLeastMultiple, ()) {
  const std::int64_t length = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  const std::int64_t multiple = *rc::gen::inRange<std::int64_t>(1, 1000);
  const std::int64_t padded = round_up(length, multiple);
  RC_ASSERT(padded % multiple == 0);
  RC_ASSERT(padded >= length);
  RC_ASSERT(padded - length < multiple);
  RC_ASSERT(round_up(padded, multiple) == padded);
  RC_ASSERT(ceil_div(length, multiple) * multiple == padded);
}

RC_GTEST_PROP(SequenceProperties, PaddingForAMultipleOfTheSizeRunsOnTheSize, ()) {
  const int size = *genCpSize();
  const int times = *genInt(1, 8);
  const int tensor_parallel = *genInt(1, 4);
  const std::int64_t length = *rc::gen::inRange<std::int64_t>(0, 100'000);
  const std::int64_t global = round_up(length, padding_multiple(size * times, tensor_parallel));
  RC_ASSERT(global % padding_multiple(size, tensor_parallel) == 0);
  RC_ASSERT(global >= round_up(length, padding_multiple(size, tensor_parallel)));
}

}  // namespace
}  // namespace dyncp
