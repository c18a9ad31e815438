// JSON as training frameworks write it: Python puts NaN and Infinity where JSON has no word for them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/metrics_log.h"

namespace dyncp {

/// The value of a JSON text, with bare NaN, Infinity and -Infinity read as the strings "NaN",
/// "Infinity" and "-Infinity"; discarded when it is no JSON or nests deeper than 64 levels.
nlohmann::ordered_json parse_lax_json(std::string_view text);

/// The number a JSON value stands for: a number, or a string that is one ("nan" too). null is NaN:
/// orjson writes NaN so. False for anything else.
bool json_number(const nlohmann::ordered_json& value, double& number, WrittenDigits& digits);

}  // namespace dyncp
