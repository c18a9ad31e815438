#include "runtime/chart_js.h"

#ifdef DYNCP_CHART_JS
// The assembler copies the file; no generated source, no string-size limits.
asm(".section .rodata\n"
    ".global dyncp_chart_js_begin\n"
    "dyncp_chart_js_begin:\n"
    ".incbin \"" DYNCP_CHART_JS
    "\"\n"
    ".global dyncp_chart_js_end\n"
    "dyncp_chart_js_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char dyncp_chart_js_begin[];
extern "C" const char dyncp_chart_js_end[];

namespace dyncp {
std::string_view chart_js() { return {dyncp_chart_js_begin, dyncp_chart_js_end}; }
}  // namespace dyncp
#else
namespace dyncp {
std::string_view chart_js() { return {}; }
}  // namespace dyncp
#endif
