// The dyncp command.
#include <fmt/core.h>

int main() {
  fmt::print("dyncp\n");
  return 0;
}
