// The shipped data: found in every place it may lie, complete, and of the kind it says.
#include "runtime/fixtures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/files.h"
#include "runtime/lengths.h"

namespace dyncp {
namespace {

// Sets DYNCP_FIXTURES for one scope; null unsets it.
class Environment {
 public:
  explicit Environment(const char* value) {
    const char* old = std::getenv("DYNCP_FIXTURES");
    had_ = old != nullptr;
    if (had_) old_ = old;
    set(value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { set(had_ ? old_.c_str() : nullptr); }

 private:
  static void set(const char* value) {
    if (value == nullptr) {
      ::unsetenv("DYNCP_FIXTURES");
    } else {
      ::setenv("DYNCP_FIXTURES", value, 1);
    }
  }
  bool had_ = false;
  std::string old_;
};

TEST(Fixtures, TheEnvironmentComesFirstAndTheSourceTreeLast) {
  {
    const Environment none(nullptr);
    EXPECT_EQ(fixtures_directory(), std::string(DYNCP_SOURCE_DIR) + "/fixtures");
  }
  {
    const Environment empty("");
    EXPECT_EQ(fixtures_directory(), std::string(DYNCP_SOURCE_DIR) + "/fixtures");
  }
  const ScratchFolder folder;
  folder.file("lengths/b.csv", "len\n7\n");
  folder.file("lengths/a.txt", "1 2");
  folder.file("lengths/c.jsonl", "{\"len\": 3}");
  folder.file("lengths/README.md", "no lengths");
  const Environment chosen(folder.path().c_str());
  EXPECT_EQ(fixtures_directory(), folder.path());
  const std::vector<LengthSet> sets = fixture_length_sets();
  ASSERT_EQ(sets.size(), 3U);
  EXPECT_EQ(sets[0].name, "a");
  EXPECT_EQ(sets[0].lengths, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(sets[1].name, "b");
  EXPECT_EQ(sets[2].name, "c");
  folder.file("lengths/bad.txt", "1\nx");
  EXPECT_THROW(fixture_length_sets(), InvalidInput);
}

TEST(Fixtures, AWrongEnvironmentIsRefused) {
  const ScratchFolder folder;
  const Environment missing((folder.path() + "/none").c_str());
  EXPECT_THROW(fixtures_directory(), InvalidInput);
  const Environment without_lengths(folder.path().c_str());
  EXPECT_THROW(fixture_length_sets(), InvalidInput);
}

TEST(Fixtures, EverySetIsThereAndOfItsKind) {
  const Environment none(nullptr);
  std::map<std::string, std::vector<std::int64_t>> sets;
  for (const LengthSet& set : fixture_length_sets()) sets[set.name] = set.lengths;
  const auto share_above = [&](const std::string& name, std::int64_t tokens) {
    return summarize_lengths(sets.at(name), tokens).share_above;
  };
  for (const auto& [name, least] : std::map<std::string, std::size_t>{
           {"python-stdlib", 500}, {"debian-manpages", 2000}, {"debian-copyright", 500}}) {
    ASSERT_TRUE(sets.contains(name)) << name;
    const auto& lengths = sets[name];
    EXPECT_GE(lengths.size(), least) << name;
    // Real documents: nearly all lengths odd residues of 16, and a heavy tail.
    EXPECT_GT(std::count_if(lengths.begin(), lengths.end(), [](auto l) { return l % 16 != 0; }),
              static_cast<std::ptrdiff_t>(lengths.size() * 9 / 10))
        << name;
    const LengthSummary summary = summarize_lengths(lengths, 1);
    EXPECT_GT(summary.max, 20 * summary.p50) << name;
  }
  ASSERT_TRUE(sets.contains("convergence-12288"));
  EXPECT_EQ(summarize_lengths(sets["convergence-12288"], 1).max, 12288);
  // CP 1, 2 and 4 at 3072 tokens a rank, and the same mix at a sixteenth.
  for (const auto& [name, m] : {std::pair{"convergence-12288", 3072}, {"convergence-768", 192}}) {
    const double cp1 = 1 - share_above(name, m);
    const double cp4 = share_above(name, 2 * m);
    EXPECT_GT(cp1, 0.5) << name;
    EXPECT_GT(1 - cp1 - cp4, 0.15) << name;
    EXPECT_GT(cp4, 0.1) << name;
    EXPECT_EQ(share_above(name, 4 * m), 0.0) << name;
  }
}

TEST(Fixtures, MeasuredSetsSayWhatTheyAreAndNameNoMachine) {
  for (const char* name : {"python-stdlib", "debian-manpages", "debian-copyright"}) {
    const std::string path = std::string(DYNCP_SOURCE_DIR) + "/fixtures/lengths/" + name + ".txt";
    const std::string text = read_file(path);
    EXPECT_LT(text.size(), 200000U) << name;
    for (const char* said :
         {"# bytes of ", "# what: ", "# how: dyncp lengths --from ", "# where: Debian "}) {
      EXPECT_NE(text.find(said), std::string::npos) << name << " lacks " << said;
    }
    EXPECT_EQ(text.find("/tmp"), std::string::npos) << name;
    EXPECT_EQ(text.find("/home"), std::string::npos) << name;
    // The first comment counts the documents.
    const auto counted = std::stoull(text.substr(std::string("# bytes of ").size()));
    EXPECT_EQ(parse_lengths(text, name).size(), counted) << name;
  }
}

}  // namespace
}  // namespace dyncp
