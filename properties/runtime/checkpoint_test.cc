// Checkpoints: back bit for bit, replaced whole or not at all, and one clear line for every file
// that is not the one asked for.
#include "runtime/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "properties/gpt_cases.h"
#include "properties/runtime/scratch_folder.h"
#include "reference/error.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

using gpt_cases::tiny_config;

template <typename T>
Checkpoint<T> some_checkpoint() {
  Checkpoint<T> checkpoint(tiny_config());
  checkpoint.parameters = initialise<T>(tiny_config(), 1);
  checkpoint.moments.first = initialise<T>(tiny_config(), 2);
  checkpoint.moments.second = initialise<T>(tiny_config(), 3);
  checkpoint.moments.steps = 17;
  checkpoint.seed = std::numeric_limits<std::uint64_t>::max();
  checkpoint.data_position = 123'456'789'012;
  checkpoint.run = {{"scheduler", "dyncp"}, {"text", "two\nlines \"quoted\" \xc3\xa4"}};
  // Values that a detour over text or over a narrower type would lose.
  checkpoint.parameters.values()[0] = std::numeric_limits<T>::denorm_min();
  checkpoint.parameters.values()[1] = -T(0);
  checkpoint.parameters.values()[2] = std::numeric_limits<T>::infinity();
  checkpoint.parameters.values()[3] = std::numeric_limits<T>::max();
  checkpoint.parameters.values()[4] = T(1) / T(3);
  return checkpoint;
}

template <typename T>
void expect_same_bits(const GptParameters<T>& a, const GptParameters<T>& b) {
  ASSERT_EQ(a.values().size(), b.values().size());
  EXPECT_EQ(std::memcmp(a.values().data(), b.values().data(), a.values().size_bytes()), 0);
}

template <typename T>
void expect_round_trip() {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/run.safetensors";
  const Checkpoint<T> checkpoint = some_checkpoint<T>();
  write_checkpoint(path, checkpoint);
  const auto back = read_checkpoint<T>(path, tiny_config());
  EXPECT_EQ(back, checkpoint);
  expect_same_bits(back.parameters, checkpoint.parameters);
  expect_same_bits(back.moments.first, checkpoint.moments.first);
  expect_same_bits(back.moments.second, checkpoint.moments.second);
}

TEST(CheckpointFile, ComesBackBitForBit) {
  expect_round_trip<float>();
  expect_round_trip<double>();
}

/// The message of the InvalidInput that `body` throws; "" when nothing is thrown.
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const std::function<void(Safetensors&)>& change,
                       const GptConfig& expected = tiny_config()) {
  Safetensors file = checkpoint_file(some_checkpoint<float>());
  change(file);
  return refusal([&] { parse_checkpoint<float>(file, expected); });
}

TEST(CheckpointFile, RefusesAnotherModelByNamingTheFirstDifference) {
  const auto nothing = [](Safetensors&) {};
  EXPECT_EQ(refusal_of(nothing), "");
  GptConfig other = tiny_config();
  other.ffn = 15;
  other.vocabulary = 12;
  EXPECT_EQ(refusal_of(nothing, other), "checkpoint of another model: ffn is 14, expected 15");
  other = tiny_config();
  other.rope_base = 10000;
  EXPECT_EQ(refusal_of(nothing, other),
            "checkpoint of another model: rope_base is 100.0, expected 10000.0");
  EXPECT_EQ(refusal_of([](Safetensors& file) { file.metadata["config"] = "{}"; }),
            "checkpoint of another model: layers is missing, expected 2");
  EXPECT_EQ(refusal_of([](Safetensors& file) { file.metadata["config"] = "[1"; }),
            "checkpoint metadata 'config' is '[1', expected a JSON object");
  EXPECT_EQ(
      refusal_of([](Safetensors& file) { file.metadata["config"].insert(1, "\"biases\":true,"); }),
      "checkpoint of another model: its config has 10 values, expected 9");
}

TEST(CheckpointFile, RefusesMetadataThatIsMissingOrNoNumber) {
  EXPECT_EQ(refusal_of([](Safetensors& file) { file.metadata.erase("format"); }),
            "no checkpoint: metadata 'format' is missing, expected dyncp-checkpoint-1");
  EXPECT_EQ(refusal_of([](Safetensors& file) { file.metadata["format"] = "pt"; }),
            "no checkpoint: metadata 'format' is 'pt', expected dyncp-checkpoint-1");
  for (const std::string key : {"steps", "seed", "data_position"}) {
    EXPECT_EQ(refusal_of([&](Safetensors& file) { file.metadata.erase(key); }),
              "checkpoint without metadata '" + key + "'");
    for (const std::string text : {"", "-1", "1x", " 1", "1e3", "99999999999999999999"}) {
      EXPECT_EQ(
          refusal_of([&](Safetensors& file) { file.metadata[key] = text; }),
          "checkpoint metadata '" + key + "' is '" + text + "', expected a number of 0 or more");
    }
  }
}

TEST(CheckpointFile, RefusesTensorsThatAreNotThoseOfTheModel) {
  EXPECT_EQ(refusal_of([](Safetensors& file) { file.tensors.erase("second_moment.head.weight"); }),
            "checkpoint without tensor second_moment.head.weight");
  EXPECT_EQ(refusal_of([](Safetensors& file) {
              file.tensors["model.layers.1.mlp.up.weight"].dtype = "F64";
            }),
            "checkpoint tensor model.layers.1.mlp.up.weight has dtype F64, expected F32");
  EXPECT_EQ(refusal_of([](Safetensors& file) {
              file.tensors["model.head.weight"].shape = {10, 11};
            }),
            "checkpoint tensor model.head.weight has shape [10, 11], expected [11, 10]");
  EXPECT_EQ(refusal_of([](Safetensors& file) { file.tensors["model.bias"] = {}; }),
            "checkpoint with 64 tensors, expected 63");
  EXPECT_EQ(refusal([] {
              parse_checkpoint<double>(checkpoint_file(some_checkpoint<float>()), tiny_config());
            }),
            "checkpoint tensor model.embedding.weight has dtype F32, expected F64");
}

TEST(CheckpointFile, EveryTruncationIsRefusedInOneLineThatNamesTheFile) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/run.safetensors";
  write_checkpoint(path, some_checkpoint<float>());
  const std::string bytes = read_file(path);
  std::mt19937_64 random(4);
  for (int cut = 0; cut < 300; ++cut) {
    // Near the start, near the end, and anywhere.
    const auto size = static_cast<std::size_t>(
        cut < 20 ? cut
                 : (cut < 40 ? bytes.size() - static_cast<std::size_t>(cut - 19)
                             : random() % bytes.size()));
    folder.file("cut.safetensors", std::string_view(bytes).substr(0, size));
    const std::string cut_path = folder.path() + "/cut.safetensors";
    const std::string message = refusal([&] { read_checkpoint<float>(cut_path, tiny_config()); });
    ASSERT_NE(message.find(cut_path), std::string::npos) << size << " bytes: " << message;
    ASSERT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(CheckpointFile, AFlippedHeaderBitIsRefusedInOneLineOrHarmless) {
  const std::string bytes = serialize_safetensors(checkpoint_file(some_checkpoint<float>()));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::mt19937_64 random(5);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = bytes;
    damaged[random() % (8 + header)] ^= static_cast<char>(1 << (random() % 7));
    const std::string message =
        refusal([&] { parse_checkpoint<float>(parse_safetensors(damaged), tiny_config()); });
    refused += !message.empty();
    ASSERT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_GT(refused, 400);
}

TEST(CheckpointFile, AFailedWriteLeavesTheOldFile) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/run.safetensors";
  const auto checkpoint = some_checkpoint<float>();
  write_checkpoint(path, checkpoint);
  const std::string before = read_file(path);
  auto broken = checkpoint;
  broken.moments.steps = -1;
  EXPECT_EQ(refusal([&] { write_checkpoint(path, broken); }),
            "checkpoint of step -1 at data position 123456789012, expected 0 or more");
  broken = checkpoint;
  broken.run["text"] = "\xff";  // no UTF-8
  EXPECT_NE(refusal([&] { write_checkpoint(path, broken); }), "");
  EXPECT_EQ(read_file(path), before);
  // Nothing else was left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);

  const std::string nowhere = folder.path() + "/no/such/folder";
  EXPECT_NE(refusal([&] { write_checkpoint(nowhere, checkpoint); }).find(nowhere),
            std::string::npos);
  EXPECT_NE(refusal([&] { read_checkpoint<float>(nowhere, tiny_config()); }).find(nowhere),
            std::string::npos);
}

}  // namespace
}  // namespace dyncp
