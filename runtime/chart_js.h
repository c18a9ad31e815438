// The Chart.js library, embedded when the build found it (Debian: libjs-chart.js), so that HTML
// pages are self-contained.
#pragma once

#include <string_view>

namespace dyncp {

/// The minified source; empty when dyncp was built without it.
std::string_view chart_js();

}  // namespace dyncp
