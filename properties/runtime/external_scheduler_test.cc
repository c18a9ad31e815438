// Schedulers that are other programs: what the protocol carries, and that each way of going wrong
// is told in one sentence and does not end the conversation.
#include "runtime/external_scheduler.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/schedule_check.h"
#include "runtime/scheduler_protocol.h"

namespace dyncp {
namespace {

using std::chrono::milliseconds;
using Kind = SchedulerFailure::Kind;

const std::string kAdapters = std::string(DYNCP_SOURCE_DIR) + "/fixtures/adapters/";

ScheduleProblem small_problem() {
  ScheduleProblem problem;
  problem.lengths = {700, 0, 3, 1500};
  problem.ranks = 4;
  problem.max_tokens_per_rank = 512;
  return problem;
}

SchedulerFailure failure_of(const std::string& command, milliseconds deadline) {
  ExternalScheduler scheduler(command, deadline);
  const ScheduleAnswer answer = scheduler.ask(small_problem());
  const auto* failure = std::get_if<SchedulerFailure>(&answer);
  if (failure == nullptr) {
    ADD_FAILURE() << command << " answered";
    return {Kind::kCrash, ""};
  }
  EXPECT_EQ(failure->sentence.find('\n'), std::string::npos) << failure->sentence;
  return *failure;
}

TEST(ExternalScheduler, ThePythonAdapterAnswersValidSchedules) {
  ExternalScheduler scheduler("python3 " + kAdapters + "one_by_one.py", milliseconds(5000));
  for (int i = 0; i < 5; ++i) {
    ScheduleProblem problem = small_problem();
    problem.lengths.push_back(i);
    const ScheduleAnswer answer = scheduler.ask(problem);
    ASSERT_TRUE(std::holds_alternative<Schedule>(answer));
    EXPECT_TRUE(check_schedule(problem, std::get<Schedule>(answer)).empty());
  }
  ScheduleProblem too_long = small_problem();
  too_long.lengths.push_back(5000);
  EXPECT_TRUE(std::holds_alternative<Refusal>(scheduler.ask(too_long)));
  EXPECT_EQ(scheduler.restarts(), 0);
}

TEST(ExternalScheduler, EachMisbehaviourIsNamed) {
  const std::string command = "exec python3 " + kAdapters + "misbehaving.py ";
  EXPECT_EQ(failure_of(command + "garbage", milliseconds(5000)).kind, Kind::kMalformed);
  EXPECT_EQ(failure_of(command + "stale", milliseconds(5000)).kind, Kind::kWrongId);
  const SchedulerFailure crash = failure_of(command + "crash", milliseconds(5000));
  EXPECT_EQ(crash.kind, Kind::kCrash);
  EXPECT_NE(crash.sentence.find("exit code 3"), std::string::npos) << crash.sentence;
  EXPECT_NE(crash.sentence.find("list index out of range"), std::string::npos) << crash.sentence;
  EXPECT_EQ(failure_of("kill -9 $$", milliseconds(5000)).kind, Kind::kCrash);
  EXPECT_EQ(failure_of("/no/such/program", milliseconds(5000)).kind, Kind::kCrash);
  // The first answer has ten deadlines; a hang is given up after twenty.
  EXPECT_EQ(failure_of(command + "hang", milliseconds(30)).kind, Kind::kHang);
  // Late is between ten and twenty deadlines: wide enough for a busy machine.
  const std::string late = "read line; sleep 4; echo '{\"error\":\"no\"}'; sleep 60";
  EXPECT_EQ(failure_of(late, milliseconds(300)).kind, Kind::kLate);
}

TEST(ExternalScheduler, ALostSequenceIsTheCheckersToFind) {
  ExternalScheduler scheduler("python3 " + kAdapters + "misbehaving.py lost", milliseconds(5000));
  const ScheduleAnswer answer = scheduler.ask(small_problem());
  ASSERT_TRUE(std::holds_alternative<Schedule>(answer));
  const auto violations = check_schedule(small_problem(), std::get<Schedule>(answer));
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations.front().rule, ScheduleRule::kExactlyOnce);
  EXPECT_EQ(violations.front().sequence, 3);
}

TEST(ExternalScheduler, TheConversationGoesOnAfterACrash) {
  // Answers one request and dies at the next.
  const std::string command =
      "read line; echo '{\"microbatches\":[]}'; read line; echo gone >&2; exit 4";
  ExternalScheduler scheduler(command, milliseconds(5000));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::holds_alternative<Schedule>(scheduler.ask(small_problem())));
    EXPECT_TRUE(std::holds_alternative<SchedulerFailure>(scheduler.ask(small_problem())));
  }
  EXPECT_EQ(scheduler.restarts(), 2);
}

TEST(ExternalScheduler, AnUnaskedLineIsNotTakenForAnAnswer) {
  const std::string one = "read line; printf '{\"error\":\"no\"}\\n{\"error\":\"more\"}\\n'; ";
  ExternalScheduler scheduler(one + "read line; sleep 9", milliseconds(5000));
  EXPECT_TRUE(std::holds_alternative<Refusal>(scheduler.ask(small_problem())));
  const ScheduleAnswer answer = scheduler.ask(small_problem());
  ASSERT_TRUE(std::holds_alternative<SchedulerFailure>(answer));
  EXPECT_EQ(std::get<SchedulerFailure>(answer).kind, Kind::kMalformed);
}

TEST(ExternalScheduler, AnEmptyCommandIsRefused) {
  EXPECT_THROW(ExternalScheduler("  ", milliseconds(1)), InvalidInput);
}

// The example plugins, compiled as their comments say, behind `dyncp serve`.
class Plugin : public testing::TestWithParam<const char*> {};

TEST_P(Plugin, AnswersLikeABuiltInScheduler) {
  const std::string source = std::string(DYNCP_SOURCE_DIR) + "/fixtures/plugins/" + GetParam();
  const std::string library = testing::TempDir() + GetParam() + ".so";
  const std::string compiler = source.ends_with(".c") ? "cc" : "c++ -std=c++20";
  ASSERT_EQ(std::system((compiler + " -shared -fPIC -I " + DYNCP_SOURCE_DIR +
                         "/runtime/plugin -o " + library + " " + source)
                            .c_str()),
            0);
  ExternalScheduler scheduler(std::string(DYNCP_COMMAND) + " serve --plugin " + library,
                              milliseconds(5000));
  for (const Padding padding : {Padding::kNone, Padding::kGlobal, Padding::kGroup}) {
    ScheduleProblem problem = small_problem();
    problem.padding = padding;
    const ScheduleAnswer answer = scheduler.ask(problem);
    ASSERT_TRUE(std::holds_alternative<Schedule>(answer));
    EXPECT_TRUE(check_schedule(problem, std::get<Schedule>(answer)).empty());
  }
  ScheduleProblem too_long = small_problem();
  too_long.lengths.push_back(5000);
  EXPECT_TRUE(std::holds_alternative<Refusal>(scheduler.ask(too_long)));
}

INSTANTIATE_TEST_SUITE_P(Examples, Plugin, testing::Values("one_by_one.c", "first_fit.cc"));

TEST(PluginLoader, AFileThatIsNoPluginIsTold) {
  ExternalScheduler scheduler(std::string(DYNCP_COMMAND) + " serve --plugin /no/such.so",
                              milliseconds(5000));
  const ScheduleAnswer answer = scheduler.ask(small_problem());
  ASSERT_TRUE(std::holds_alternative<SchedulerFailure>(answer));
  const std::string& sentence = std::get<SchedulerFailure>(answer).sentence;
  EXPECT_NE(sentence.find("cannot be loaded"), std::string::npos) << sentence;
}

// Parsing by itself.
TEST(SchedulerProtocol, RequestsComeBackAsTheyWere) {
  ScheduleProblem problem = small_problem();
  problem.min_cp = 2;
  problem.tensor_parallel = 3;
  problem.microbatch_multiple = 4;
  problem.max_sequences = 5;
  problem.execution = Execution::kSerial;
  problem.group_policy = GroupPolicy::kInterval;
  problem.padding = Padding::kGroup;
  const ScheduleRequest request = parse_request(request_line(problem, 9));
  EXPECT_EQ(request.id, 9);
  EXPECT_EQ(request.problem, problem);
}

TEST(SchedulerProtocol, AnswersComeBackAsTheyWere) {
  const Schedule schedule{{{{CpGroup{0, 2}, {1, 2}}, {CpGroup{2, 2}, {0}}}}};
  EXPECT_EQ(parse_answer(answer_line(schedule, 3), 3), ScheduleAnswer(schedule));
  const RankLists lists = {{{1}, {1}, {}, {0, 2}}};
  EXPECT_EQ(parse_answer(answer_line(lists, 3), 3), ScheduleAnswer(lists));
  const Refusal refusal{"does not fit"};
  EXPECT_EQ(parse_answer(answer_line(refusal, 3), 3), ScheduleAnswer(refusal));
}

TEST(SchedulerProtocol, MalformedAnswersAreValues) {
  for (const char* line :
       {"", "{", "[]", "7", "{}", R"({"microbatches":1})", R"({"microbatches":[1]})",
        R"({"microbatches":[[1]]})", R"({"microbatches":[[{"first_rank":0,"size":1}]]})",
        R"({"microbatches":[[{"first_rank":0.5,"size":1,"sequences":[]}]]})",
        R"({"microbatches":[[{"first_rank":0,"size":1,"sequences":["a"]}]]})",
        R"({"microbatches":[[{"first_rank":0,"size":99999999999,"sequences":[]}]]})",
        R"({"microbatches":[],"error":"x"})", R"({"error":7})", R"({"sample_id_groups":[[0]]})",
        R"({"sample_id_groups":[[[18446744073709551615]]]})"}) {
    const ScheduleAnswer answer = parse_answer(line, 1);
    ASSERT_TRUE(std::holds_alternative<SchedulerFailure>(answer)) << line;
    EXPECT_EQ(std::get<SchedulerFailure>(answer).kind, Kind::kMalformed) << line;
  }
}

TEST(SchedulerProtocol, MalformedRequestsNameTheField) {
  try {
    parse_request(R"({"version":1,"id":1,"real":[1,-2]})");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("\"real\""), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_request("{"), InvalidInput);
  EXPECT_THROW(parse_request(R"({"version":2})"), InvalidInput);
}

}  // namespace
}  // namespace dyncp
