// Sources of documents: contents, order, limits and refusals.
#include "runtime/document_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"

namespace dyncp {
namespace {

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::string text_of(const Document& document) {
  std::string text;
  for (const std::int64_t token : document.tokens) text += static_cast<char>(token);
  return text;
}

TEST(GlobalBatch, EveryPassGoesThroughAllDocumentsInAnotherOrder) {
  for (const std::int64_t documents : {1, 2, 3, 7, 64, 100}) {
    std::set<std::vector<std::int64_t>> orders;
    for (std::int64_t pass = 0; pass < 5; ++pass) {
      std::vector<std::int64_t> order = global_batch(documents, 11, pass, documents);
      orders.insert(order);
      std::sort(order.begin(), order.end());
      std::vector<std::int64_t> all(static_cast<std::size_t>(documents));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(order, all);
    }
    if (documents >= 7) {
      EXPECT_EQ(orders.size(), 5U) << documents;
    }
  }
}

TEST(GlobalBatch, BatchesOfEverySizeCutTheSameList) {
  std::vector<std::int64_t> by_three, by_four;
  for (std::int64_t n = 0; n < 8; ++n) {
    for (const std::int64_t index : global_batch(10, 5, n, 3)) by_three.push_back(index);
  }
  for (std::int64_t n = 0; n < 6; ++n) {
    for (const std::int64_t index : global_batch(10, 5, n, 4)) by_four.push_back(index);
  }
  EXPECT_EQ(by_three, by_four);
}

TEST(GlobalBatch, DependsOnTheSeed) {
  EXPECT_NE(global_batch(100, 1, 0, 100), global_batch(100, 2, 0, 100));
}

TEST(GlobalBatch, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(refusal([] { global_batch(0, 1, 0, 1); }),
            "a global batch needs a source with documents");
  EXPECT_EQ(refusal([] { global_batch(1, 1, -1, 1); }), "there is no global batch -1");
  EXPECT_EQ(refusal([] { global_batch(1, 1, 0, 0); }),
            "the global batch has 0 documents, expected 1..2^20");
  EXPECT_EQ(refusal([] { global_batch(1, 1, std::int64_t{1} << 60, 4); }),
            "there is no global batch 1152921504606846976");
}

TEST(SyntheticSource, ContentsComeFromSeedAndDocumentAlone) {
  const auto source = synthetic_source({5, 9, 0, 1}, {.seed = 3});
  const auto longer = synthetic_source({5, 30}, {.seed = 3});
  EXPECT_EQ(source->documents(), 4);
  EXPECT_EQ(source->document(0).tokens, longer->document(0).tokens);
  const auto tokens = longer->document(1).tokens;
  EXPECT_EQ(source->document(1).tokens,
            std::vector<std::int64_t>(tokens.begin(), tokens.begin() + 9));
  EXPECT_TRUE(source->document(2).tokens.empty());
  EXPECT_NE(synthetic_source({30}, {.seed = 4})->document(0).tokens,
            synthetic_source({30}, {.seed = 3})->document(0).tokens);
  EXPECT_NE(source->fingerprint(), longer->fingerprint());
}

TEST(SyntheticSource, StepsThroughTheVocabulary) {
  const Document document = synthetic_source({1000}, {.seed = 1, .vocabulary = 50})->document(0);
  std::vector<int> steps(5, 0);
  for (std::size_t i = 1; i < document.tokens.size(); ++i) {
    ASSERT_GE(document.tokens[i], 0);
    ASSERT_LT(document.tokens[i], 50);
    const std::int64_t step = (document.tokens[i] - document.tokens[i - 1] + 50) % 50;
    ASSERT_GE(step, 1);
    ASSERT_LE(step, 4);
    ++steps[static_cast<std::size_t>(step)];
  }
  for (int step = 1; step <= 4; ++step) EXPECT_GT(steps[static_cast<std::size_t>(step)], 200);
}

TEST(SyntheticSource, MasksPrompts) {
  const auto source = synthetic_source(std::vector<std::int64_t>(50, 40), {.masked_prompts = true});
  std::set<std::int64_t> prompts;
  for (std::int64_t i = 0; i < source->documents(); ++i) {
    const Document document = source->document(i);
    ASSERT_EQ(document.loss_mask.size(), 40U);
    const auto first = std::find(document.loss_mask.begin(), document.loss_mask.end(), 1);
    EXPECT_TRUE(std::all_of(first, document.loss_mask.end(), [](auto m) { return m == 1; }));
    prompts.insert(first - document.loss_mask.begin());
  }
  EXPECT_GT(prompts.size(), 10U);
  EXPECT_LE(*prompts.rbegin(), 30);
}

TEST(SyntheticSource, RefusesBadInput) {
  EXPECT_EQ(refusal([] { synthetic_source({}, {}); }),
            "synthetic documents: no lengths were given");
  EXPECT_EQ(refusal([] { synthetic_source({1}, {.vocabulary = 0}); }),
            "synthetic documents: vocabulary is 0, expected 1..2^31");
  refusal([] { synthetic_source({1, -1}, {}); });
}

TEST(CorpusSource, TakesTextFilesInOrderOfPath) {
  const ScratchFolder folder;
  folder.file("b.txt", "second");
  folder.file("a/z.txt", "first");
  folder.file("c/d/e", "third");
  folder.file("binary", std::string_view("no\0text", 7));
  folder.file("empty", "");
  folder.file(".hidden", "hidden");
  folder.file(".git/config", "hidden");
  folder.file("build/out.txt", "built");
  folder.file("long.txt", std::string(101, 'x'));
  std::filesystem::create_symlink(folder.path() + "/b.txt", folder.path() + "/link");
  const auto source = corpus_source(folder.path(), {}, {.longest_file = 100});
  ASSERT_EQ(source->documents(), 3);
  EXPECT_EQ(text_of(source->document(0)), "first");
  EXPECT_EQ(text_of(source->document(1)), "second");
  EXPECT_EQ(text_of(source->document(2)), "third");
  EXPECT_EQ(source->length(1), 6);
  EXPECT_EQ(source->description(), "3 documents of 5..6 bytes from 3 text files (16 bytes)");
}

TEST(CorpusSource, CutsTheTextByLengths) {
  const ScratchFolder folder;
  folder.file("a", "abcdef");
  folder.file("b", "gh\xff");
  const auto source = corpus_source(folder.path(), {4, 0, 7, 12});
  EXPECT_EQ(text_of(source->document(0)), "abcd");
  EXPECT_EQ(text_of(source->document(1)), "");
  EXPECT_EQ(text_of(source->document(2)),
            "efgh\xff"
            "ab");
  EXPECT_EQ(text_of(source->document(3)),
            "cdefgh\xff"
            "abcde");
  EXPECT_EQ(source->document(2).tokens[4], 255);
}

TEST(CorpusSource, FingerprintFollowsTheText) {
  const ScratchFolder folder;
  folder.file("a", "abcdef");
  const std::uint64_t before = corpus_source(folder.path())->fingerprint();
  EXPECT_EQ(corpus_source(folder.path())->fingerprint(), before);
  EXPECT_NE(corpus_source(folder.path(), {3})->fingerprint(), before);
  folder.file("a", "abcdeg");
  EXPECT_NE(corpus_source(folder.path())->fingerprint(), before);
}

TEST(CorpusSource, RefusesBadInput) {
  const ScratchFolder folder;
  EXPECT_EQ(refusal([&] { corpus_source(folder.path()); }), folder.path() + ": holds no text file");
  EXPECT_EQ(refusal([&] { corpus_source(folder.path() + "/none"); }),
            folder.path() + "/none: is no directory with text files");
  folder.file("a", "abcdef");
  folder.file("b", "abcdef");
  EXPECT_EQ(refusal([&] { corpus_source(folder.path(), {}, {.total = 11}); }),
            folder.path() + ": holds more than 11 bytes of text");
  EXPECT_EQ(refusal([&] { corpus_source(folder.path(), {}, {.files = 1}); }),
            folder.path() + ": holds more than 1 files");
  refusal([&] { corpus_source(folder.path(), {-3}); });
}

TEST(CorpusSource, TheDefaultIsThisRepository) {
  const auto source = corpus_source(default_corpus_directory());
  EXPECT_GT(source->documents(), 100);
}

}  // namespace
}  // namespace dyncp
