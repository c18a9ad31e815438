// Reads and writes cost model files (format: the header).
#include "runtime/cost_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "reference/error.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

constexpr std::pair<const char*, double CostModel::*> kRates[] = {
    {"a", &CostModel::a},
    {"b", &CostModel::b},
    {"c0", &CostModel::c0},
    {"c1", &CostModel::c1},
    {"hidden", &CostModel::hidden},
    {"d", &CostModel::d},
    {"slow_c0", &CostModel::slow_c0},
    {"slow_c1", &CostModel::slow_c1},
};

constexpr const char* kExpected = R"(expected an object such as {"a": 5.7e-5, "b": 1.87})";

[[noreturn]] void refuse(const std::string& origin, const std::string& key,
                         const nlohmann::json& found, const std::string& expected) {
  throw InvalidInput(
      fmt::format("{}: {} is {}: expected {}", origin, quote(key), quote(found.dump()), expected));
}

double rate(const nlohmann::json& value, const std::string& origin, const std::string& key) {
  const double most = key == "hidden" ? 1.0 : 1e12;
  const std::string expected = key == "hidden" ? "a number from 0 to 1" : "a number from 0 to 1e12";
  if (!value.is_number()) refuse(origin, key, value, expected);
  const double number = value.get<double>();
  if (!(number >= 0 && number <= most)) refuse(origin, key, value, expected);
  return number;
}

int fast_domain(const nlohmann::json& value, const std::string& origin) {
  const std::string expected = "an integer of at least 1";
  if (!value.is_number_integer()) refuse(origin, "fast_domain", value, expected);
  const auto ranks = value.get<std::int64_t>();
  if (ranks < 1 || ranks > std::numeric_limits<int>::max()) {
    refuse(origin, "fast_domain", value, expected);
  }
  return static_cast<int>(ranks);
}

nlohmann::json parse_object(std::string_view text, const std::string& origin) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    throw InvalidInput(
        fmt::format("{}: broken JSON at byte {}: {}", origin, error.byte, kExpected));
  } catch (const nlohmann::json::exception&) {
    throw InvalidInput(fmt::format("{}: JSON with a number out of range: {}", origin, kExpected));
  }
  if (!object.is_object()) {
    throw InvalidInput(fmt::format("{}: found {}: {}", origin, quote(object.dump()), kExpected));
  }
  return object;
}

}  // namespace

CostModel parse_cost_model(std::string_view text, const std::string& origin) {
  const nlohmann::json object = parse_object(text, origin);
  CostModel cost;
  for (const auto& entry : object.items()) {
    const std::string& key = entry.key();
    bool known = key == "comment";
    if (key == "fast_domain") {
      cost.fast_domain = fast_domain(entry.value(), origin);
      known = true;
    }
    for (const auto& field : kRates) {
      if (key != field.first) continue;
      cost.*field.second = rate(entry.value(), origin, key);
      known = true;
    }
    if (!known) {
      throw InvalidInput(fmt::format(
          "{}: unknown key {}: expected a, b, c0, c1, hidden, d, fast_domain, slow_c0, slow_c1 or "
          "comment",
          origin, quote(key)));
    }
  }
  return cost;
}

std::string print_cost_model(const CostModel& cost) {
  nlohmann::ordered_json object;
  for (const auto& field : kRates) object[field.first] = cost.*field.second;
  if (cost.fast_domain != CostModel().fast_domain) object["fast_domain"] = cost.fast_domain;
  return object.dump();
}

CostModel cost_model_from_option(const std::string& value) {
  if (value == "flat") return CostModel::flat();
  if (value == "two-tier") return CostModel::two_tier();
  if (value == "quadratic") return CostModel::quadratic();
  std::error_code ignored;
  if (!std::filesystem::exists(value, ignored)) {
    throw InvalidInput("unknown cost model " + quote(value) +
                       ": expected flat, two-tier, quadratic or the path of a JSON file");
  }
  return parse_cost_model(read_file(value), value);
}

}  // namespace dyncp
