// The table of a schedule, and one clear line for every malformed JSON.
#include "runtime/schedule_format.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"
#include "runtime/scheduler.h"

namespace dyncp {
namespace {

using nlohmann::json;

ScheduleProblem example() {
  ScheduleProblem problem;
  problem.ranks = 8;
  problem.max_tokens_per_rank = 1024;
  problem.lengths = {4096, 1024, 1024, 512, 512, 512, 256, 256};
  return problem;
}

TEST(ScheduleTable, ShowsTheGoldenSchedule) {
  const ScheduleProblem problem = example();
  const Schedule schedule = find_scheduler("megatron-packing-aware").schedule(problem);
  EXPECT_EQ(format_schedule_table(problem, schedule),
            "1 microbatch on 8 ranks, 1024 tokens a rank at most, pack execution, padding none\n"
            "microbatch  ranks  cp  tokens/rank  load/rank  sequences (id:length)\n"
            "0           0..3    4         1024    4194304  0:4096\n"
            "            4       1         1024    1048576  1:1024\n"
            "            5       1         1024    1048576  2:1024\n"
            "            6       1         1024     524288  3:512 4:512\n"
            "            7       1         1024     393216  5:512 6:256 7:256\n");
}

TEST(ScheduleTable, PadsByGroupAndShowsFractions) {
  ScheduleProblem problem;
  problem.ranks = 6;
  problem.max_tokens_per_rank = 100;
  problem.lengths = {0, 10, 7};
  problem.execution = Execution::kSerial;
  const Schedule schedule = {{{{{0, 2}, {1, 2}}}, {{{0, 6}, {2}}}}};
  // Serial: the longest sequence of the group.
  const std::string unpadded = format_schedule_table(problem, schedule);
  EXPECT_NE(unpadded.find("0..1    2            5         74"), std::string::npos) << unpadded;
  EXPECT_NE(unpadded.find("0..5    6         1.17"), std::string::npos) << unpadded;
  problem.padding = Padding::kGroup;
  problem.execution = Execution::kPack;
  const std::string padded = format_schedule_table(problem, schedule);
  EXPECT_NE(padded.find("0..1    2           10        104  1:10 2:7"), std::string::npos)
      << padded;  // 12 + 8 tokens on two ranks
  EXPECT_NE(padded.find("0..5    6            2         24  2:7"), std::string::npos) << padded;
}

TEST(ScheduleTable, PrintsBrokenSchedulesAndWrapsLongLines) {
  ScheduleProblem problem = example();
  Schedule broken = {{{{{-3, 0}, {0, 99, -1}}, {{2, 1}, {}}}, {}}};
  EXPECT_NE(format_schedule_table(problem, broken).find("0:4096 99:? -1:?"), std::string::npos);
  EXPECT_EQ(format_schedule_table(problem, {}).substr(0, 14), "0 microbatches");

  problem.lengths.assign(200, 123);
  Schedule wide;
  wide.microbatches.push_back({{{0, 8}, {}}});
  for (int id = 0; id < 200; ++id) wide.microbatches[0][0].sequences.push_back(id);
  const std::string table = format_schedule_table(problem, wide);
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < table.size(); ++lines) {
    const std::size_t end = table.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    EXPECT_LE(end - begin, 100U);
    EXPECT_NE(table[end - 1], ' ');
    begin = end + 1;
  }
  EXPECT_GT(lines, 10U);
  for (int id = 0; id < 200; ++id) {
    EXPECT_NE(table.find(" " + std::to_string(id) + ":123"), std::string::npos) << id;
  }
}

template <typename Function>
std::string refusal(const Function& function) {
  try {
    (void)function();
  } catch (const InvalidInput& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "accepted";
}

TEST(ScheduleJson, MalformedSchedulesGetOneClearLine) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"[]", "schedule: expected an object with \"microbatches\", got []"},
      {"{}", "schedule: \"microbatches\" is missing"},
      {R"({"microbatches":{}})", "microbatches: expected an array of microbatches, got {}"},
      {R"({"microbatches":[7]})", "microbatches[0]: expected an array of CP groups, got 7"},
      {R"({"microbatches":[[],[[]]]})",
       "microbatches[1][0]: expected an object with \"first_rank\", got []"},
      {R"({"microbatches":[[{"first_rank":0,"size":1}]]})",
       "microbatches[0][0]: \"sequences\" is missing"},
      {R"({"microbatches":[[{"first_rank":"0","size":1,"sequences":[]}]]})",
       "microbatches[0][0].first_rank: expected an integer in -65536..65536, got \"0\""},
      {R"({"microbatches":[[{"first_rank":0,"size":1.5,"sequences":[]}]]})",
       "microbatches[0][0].size: expected an integer in 0..65536, got 1.5"},
      {R"({"microbatches":[[{"first_rank":0,"size":18446744073709551615,"sequences":[]}]]})",
       "microbatches[0][0].size: expected an integer in 0..65536, got 18446744073709551615"},
      {R"({"microbatches":[[{"first_rank":0,"size":-1,"sequences":[]}]]})",
       "microbatches[0][0].size: expected an integer in 0..65536, got -1"},
      {R"({"microbatches":[[{"first_rank":0,"size":1,"sequences":[0,null]}]]})",
       "microbatches[0][0].sequences[1]: expected an integer in -2147483648..2147483647, got null"},
      {R"({"microbatches":[[{"first_rank":0,"size":1,"sequences":[],"cp":2}]]})",
       "microbatches[0][0]: unknown field \"cp\": expected first_rank, size and sequences"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(refusal([&, json_text = text] { return schedule_from_json(json::parse(json_text)); }),
              expected);
  }
}

TEST(ScheduleJson, MalformedRankListsGetOneClearLine) {
  const auto read = [](const char* text) {
    return refusal([&] { return rank_lists_from_json(json::parse(text)); });
  };
  EXPECT_EQ(read("3"), "schedule: expected an object with \"sample_id_groups\", got 3");
  EXPECT_EQ(read(R"({"microbatches":[]})"), "schedule: \"sample_id_groups\" is missing");
  EXPECT_EQ(read(R"({"sample_id_groups":[0]})"),
            "sample_id_groups[0]: expected an array of ranks, got 0");
  EXPECT_EQ(read(R"({"sample_id_groups":[[[0],1]]})"),
            "sample_id_groups[0][1]: expected an array of sequence ids, got 1");
  EXPECT_EQ(read(R"({"sample_id_groups":[[[0],[4294967296]]]})"),
            "sample_id_groups[0][1][0]: expected an integer in -2147483648..2147483647, got "
            "4294967296");
  EXPECT_EQ(read(R"({"sample_id_groups":[[[18446744073709551615]]]})"),
            "sample_id_groups[0][0][0]: expected an integer in -2147483648..2147483647, got "
            "18446744073709551615");
}

TEST(ScheduleJson, MalformedProblemsGetOneClearLine) {
  const auto read = [](const char* change) {
    json object = problem_to_json(example());
    object.merge_patch(json::parse(change));
    return refusal([&] { return problem_from_json(object); });
  };
  EXPECT_EQ(read("{}"), "accepted");
  EXPECT_EQ(read(R"({"version":1,"id":7,"microbatches":[]})"), "accepted");
  EXPECT_EQ(read(R"({"ranks":null})"), "problem: \"ranks\" is missing");
  EXPECT_EQ(read(R"({"min_pc":2})"), "problem: unknown field \"min_pc\"");
  EXPECT_EQ(read(R"({"ranks":0})"), "ranks: expected an integer in 1..65536, got 0");
  EXPECT_EQ(read(R"({"real":[1,-2]})"), "real[1]: expected an integer in 0..1099511627776, got -2");
  EXPECT_EQ(read(R"({"real":"1,2"})"), "real: expected an array of lengths, got \"1,2\"");
  EXPECT_EQ(read(R"({"execution":"both"})"), "unknown execution 'both': expected pack or serial");
  EXPECT_EQ(read(R"({"padding":1})"), "padding: expected a string, got 1");
  EXPECT_EQ(read(R"({"min_cp":9})"), "min_cp 9 is outside 1..8 (the number of ranks)");
  EXPECT_EQ(read(R"({"max_sequences":0})"),
            "max_sequences: expected an integer in 1..2147483647, got 0");
  EXPECT_EQ(read(R"({"padding":"global","tensor_parallel":3})"),
            "padded: does not agree with \"real\" under padding \"global\" on 8 ranks");
  EXPECT_EQ(read(R"({"padding":"group"})"),
            "padded: does not agree with \"real\" under padding \"group\" on 8 ranks");
}

TEST(ScheduleJson, TextThatIsNoJsonSaysWhere) {
  EXPECT_EQ(refusal([] { return parse_json("{\"microbatches\":[[", "plan.json"); }),
            "plan.json: JSON ends too early, after 18 bytes");
  EXPECT_EQ(refusal([] { return parse_json("", "plan.json"); }),
            "plan.json: JSON ends too early, after 0 bytes");
  EXPECT_EQ(refusal([] { return parse_json("[1 2]", "plan.json"); }),
            "plan.json: not valid JSON at byte 4 of 5");
  EXPECT_EQ(parse_json("[1]", "plan.json"), json::array({1}));
}

TEST(ScheduleJson, LongWrongValuesAreCutOff) {
  const std::string long_text(10000, 'x');
  const std::string line = refusal([&] {
    return schedule_from_json({{"microbatches", long_text}});
  });
  EXPECT_LT(line.size(), 200U);
}

}  // namespace
}  // namespace dyncp
