// Binding a module for one microbatch: the build-time context is back on return and on exception.
#include "runtime/cp_binding.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "reference/error.h"

namespace dyncp {
namespace {

class Module : public CpModule {
 public:
  explicit Module(const CpContext& build_time) : CpModule(build_time) {}
};

TEST(CpBinding, RestoresTheBuildTimeContextOnReturn) {
  const CpContext build_time({2, 2}, 3);
  const CpContext runtime({0, 4}, 3);
  Module module(build_time);
  EXPECT_FALSE(module.bound());
  {
    const CpBinding binding(module, runtime);
    EXPECT_TRUE(module.bound());
    EXPECT_EQ(module.context(), runtime);
    EXPECT_EQ(module.build_time_context(), build_time);
  }
  EXPECT_FALSE(module.bound());
  EXPECT_EQ(module.context(), build_time);
}

TEST(CpBinding, RestoresTheBuildTimeContextOnException) {
  Module module(CpContext{});
  try {
    const CpBinding binding(module, CpContext({0, 8}, 5));
    throw std::runtime_error("inside the microbatch");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(module.bound());
  EXPECT_EQ(module.context(), CpContext());
}

TEST(CpBinding, CpOneAfterCpFourSeesNoGroup) {
  Module module(CpContext({0, 2}, 1));
  { const CpBinding binding(module, CpContext({0, 4}, 1)); }
  const CpBinding binding(module, CpContext());
  EXPECT_FALSE(module.context().cp_on());
  EXPECT_TRUE(module.build_time_context().cp_on());
}

TEST(CpBinding, DoesNotNest) {
  Module module(CpContext{});
  const CpBinding outer(module, CpContext({0, 4}, 1));
  EXPECT_THROW(CpBinding(module, CpContext({0, 2}, 1)), InvalidInput);
  EXPECT_EQ(module.context(), CpContext({0, 4}, 1));
}

}  // namespace
}  // namespace dyncp
