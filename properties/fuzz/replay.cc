// Runs a fuzz target without libFuzzer: every seed of a folder, then mutations of the seeds that
// are the same on every machine. A crash prints the input that made it.
//   TARGET SEED_FOLDER [MUTATIONS]        TARGET FILE     (one input, to repeat a crash)
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "properties/fuzz/fuzz.h"

namespace {

std::string current;  // the input that runs, for the report of a crash

// Only async-signal-safe calls: the process is broken already.
void report_crash(int signal) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto put = [](const char* text, std::size_t size) {
    if (::write(STDERR_FILENO, text, size) < 0) return;
  };
  constexpr char kStart[] = "\nthe input that did it, one byte as \\xNN each (for printf):\n";
  put(kStart, sizeof kStart - 1);
  for (const char c : current) {
    const auto byte = static_cast<unsigned char>(c);
    const std::array<char, 4> shown = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    put(shown.data(), shown.size());
  }
  put("\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// 1 to 8 changes: a byte flipped, replaced, put in, cut out; a stretch doubled, cut out, or taken
// from another seed; a number replaced by an edge; the end cut off.
std::string mutate(std::string input, const std::vector<std::string>& seeds,
                   std::mt19937_64& random) {
  const auto below = [&random](std::size_t bound) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(1, bound));
  };
  const std::string bytes("[]{}(),:;\"'#\\/-+.eE_ \t\r\n0189\0\xff\xc3\x7f", 34);
  const std::array<const char*, 12> tokens = {"-1",
                                              "0",
                                              "1099511627776",
                                              "1099511627777",
                                              "9223372036854775807",
                                              "9223372036854775808",
                                              "18446744073709551616",
                                              "2147483648",
                                              "1e308",
                                              "null",
                                              "true",
                                              "\xef\xbb\xbf"};
  constexpr std::size_t kLongest = 1 << 16;
  for (std::size_t change = 1 + below(8); change > 0; --change) {
    const std::size_t at = below(input.size() + 1);
    const std::size_t stretch = below(std::min<std::size_t>(32, input.size() - at) + 1);
    switch (below(9)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < input.size()) input[at] = bytes[below(bytes.size())];
        break;
      case 2:
        input.insert(at, 1, bytes[below(bytes.size())]);
        break;
      case 3:
        input.erase(at, 1);
        break;
      case 4:
        input.erase(at, stretch);
        break;
      case 5:
        input.insert(at, input.substr(at, stretch));
        break;
      case 6: {
        const std::string& other = seeds[below(seeds.size())];
        input.insert(at, other.substr(below(other.size() + 1), 1 + below(32)));
        break;
      }
      case 7:
        input.replace(at, stretch, tokens[below(tokens.size())]);
        break;
      default:
        if (below(4) == 0) input.resize(at);
    }
    if (input.size() > kLongest) input.resize(kLongest);
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || !std::filesystem::exists(argv[1])) {
    std::fprintf(stderr, "usage: %s SEED_FOLDER|FILE [MUTATIONS]\n", argv[0]);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(signal, report_crash);
  }
  if (!std::filesystem::is_directory(argv[1])) {
    run(read_all(argv[1]));
    return 0;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) seeds.push_back(read_all(path));
  if (seeds.empty()) {
    std::fprintf(stderr, "%s holds no seeds\n", argv[1]);
    return 1;
  }
  for (const std::string& seed : seeds) run(seed);
  const long mutations = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1000;
  std::mt19937_64 random(1);
  std::vector<std::string> pool = seeds;
  for (long i = 0; i < mutations; ++i) {
    const auto from = static_cast<std::size_t>(random() % pool.size());
    std::string input = mutate(pool[from], seeds, random);
    // Some mutants are mutated again, which leads further away from the seeds.
    if (random() % 8 == 0) {
      if (pool.size() < seeds.size() + 256) {
        pool.push_back(input);
      } else {
        pool[seeds.size() + static_cast<std::size_t>(random() % 256)] = input;
      }
    }
    run(std::move(input));
  }
  std::printf("%zu seeds and %ld mutations held\n", seeds.size(), mutations);
  return 0;
}
