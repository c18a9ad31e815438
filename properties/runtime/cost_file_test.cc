// Cost model files: the shipped ones, what is refused and in which words, and print/parse.
#include "runtime/cost_file.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"

namespace dyncp {
namespace {

std::string shipped(const std::string& name) {
  return std::string(DYNCP_SOURCE_DIR) + "/fixtures/cost/" + name;
}

std::string refusal(const std::string& text) {
  try {
    parse_cost_model(text, "model.json");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(CostFile, ShippedModelsAreTheBuiltInOnes) {
  EXPECT_EQ(cost_model_from_option(shipped("h200-flat.json")), CostModel::flat());
  EXPECT_EQ(cost_model_from_option(shipped("h200-two-tier.json")), CostModel::two_tier());
  EXPECT_EQ(cost_model_from_option(shipped("quadratic.json")), CostModel::quadratic());
  EXPECT_EQ(cost_model_from_option("flat"), CostModel::flat());
  EXPECT_EQ(cost_model_from_option("two-tier"), CostModel::two_tier());
  EXPECT_EQ(cost_model_from_option("quadratic"), CostModel::quadratic());
  EXPECT_EQ(cost_model_from_option(shipped("slow-links.json")).c1, CostModel::two_tier().slow_c1);
}

TEST(CostFile, WhatIsLeftOutKeepsTheDefault) {
  CostModel expected;
  expected.d = 350;
  EXPECT_EQ(parse_cost_model(R"({"d": 350, "comment": "slow launches"})", "x"), expected);
  EXPECT_EQ(parse_cost_model("{}", "x"), CostModel::flat());
}

TEST(CostFile, ReadsBackWhatItPrints) {
  CostModel cost = CostModel::two_tier();
  cost.a = 1.0 / 3;
  cost.hidden = 1;
  cost.fast_domain = 3;
  EXPECT_EQ(parse_cost_model(print_cost_model(cost), "x"), cost);
  EXPECT_EQ(parse_cost_model(print_cost_model(CostModel::flat()), "x"), CostModel::flat());
}

TEST(CostFile, SaysWhatIsWrongInOneLine) {
  EXPECT_EQ(refusal(R"({"hidden": 1.5})"),
            "model.json: 'hidden' is '1.5': expected a number from 0 to 1");
  EXPECT_EQ(refusal(R"({"a": -1})"), "model.json: 'a' is '-1': expected a number from 0 to 1e12");
  EXPECT_EQ(refusal(R"({"b": "2"})"),
            "model.json: 'b' is '\"2\"': expected a number from 0 to 1e12");
  EXPECT_EQ(refusal(R"({"fast_domain": 2.5})"),
            "model.json: 'fast_domain' is '2.5': expected an integer of at least 1");
  EXPECT_EQ(refusal(R"({"fast_domain": 0})"),
            "model.json: 'fast_domain' is '0': expected an integer of at least 1");
  EXPECT_NE(refusal(R"({"c2": 1})").find("unknown key 'c2'"), std::string::npos);
  EXPECT_NE(refusal("[1]").find("expected an object"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1").find("broken JSON at byte"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1e999}").find("model.json"), std::string::npos);
  EXPECT_THROW(cost_model_from_option("no-such-model"), InvalidInput);
}

}  // namespace
}  // namespace dyncp
