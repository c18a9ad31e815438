// PackedSeqParams can only be built valid: one test per rule of its contract.
#include "reference/context.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace dyncp {
namespace {

const Pack kPack = Pack::padded_to({7, 3, 0, 1}, 8);

TEST(PackedSeqParams, V1SizeOneHasNoGroup) {
  EXPECT_THROW(PackedSeqParams(kPack, 1, CpGroup{0, 1}, 0), InvalidInput);
  const PackedSeqParams params(kPack, 1, std::nullopt, 3);
  EXPECT_FALSE(params.context().cp_on());
  EXPECT_EQ(params.total_tokens(), kPack.padded_tokens());
}

TEST(PackedSeqParams, V1LargerSizeNeedsItsGroup) {
  EXPECT_THROW(PackedSeqParams(kPack, 2, std::nullopt, 0), InvalidInput);
  EXPECT_THROW(PackedSeqParams(kPack, 2, CpGroup{0, 4}, 0), InvalidInput);
  EXPECT_THROW(PackedSeqParams(kPack, 4, CpGroup{4, 4}, 3), InvalidInput);
  const PackedSeqParams params(kPack, 4, CpGroup{4, 4}, 6);
  EXPECT_EQ(params.context().rank(), 2);
  EXPECT_EQ(params.context().global_rank(0), 4);
  EXPECT_EQ(params.total_tokens(), kPack.padded_tokens() / 4);
}

TEST(PackedSeqParams, V2SingletonGroupIsMetadataAndCpIsOff) {
  EXPECT_THROW(PackedSeqParams(kPack, 1, std::nullopt, 5, Contract::kV2), InvalidInput);
  const PackedSeqParams params(kPack, 1, CpGroup{5, 1}, 5, Contract::kV2);
  EXPECT_TRUE(params.cp_group().has_value());
  EXPECT_FALSE(params.context().cp_on());
  EXPECT_EQ(params.context(), CpContext());
}

TEST(PackedSeqParams, PaddedLengthsMustDivide) {
  EXPECT_THROW(PackedSeqParams(kPack, 8, CpGroup{0, 8}, 0), InvalidInput);
  EXPECT_THROW(PackedSeqParams(kPack, 0, std::nullopt, 0), InvalidInput);
}

}  // namespace
}  // namespace dyncp
