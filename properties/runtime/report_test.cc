// The runner and its reports, on drivers made for the test: ones that hold, fail, refuse, throw,
// hang and crash.
#include "runtime/report.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "reference/error.h"

namespace dyncp {
namespace {

const Driver kFirst{"first", "", {"lengths", "cp"}, nullptr, nullptr, nullptr};
const Driver kSecond{"second", "", {"lengths", "ranks"}, nullptr, nullptr, nullptr};

Case case_of(const Driver& driver, const std::string& name, std::function<CaseResult()> run,
             std::vector<std::int64_t> lengths = {7, 8}, int size = 4) {
  Problem problem;
  problem.driver = driver.name;
  problem.lengths = std::move(lengths);
  problem.cp = size;
  problem.ranks = size;
  return {&driver, problem, "dyncp check " + name, std::move(run)};
}

CaseResult passed(const std::string& check = "first.holds") {
  CaseResult result;
  result.expect(check, Kind::kSlice, true, [] { return ""; });
  return result;
}

CaseResult failed(const std::string& message = "rank 2 holds row 5, expected row 6") {
  CaseResult result = passed();
  result.expect("first.rows", Kind::kSlice, false, [&] { return message; });
  result.detail("a table");
  return result;
}

CaseResult mistrusted() {
  CaseResult result = passed();
  result.mistrust("no CP group is larger than 1");
  return result;
}

CaseResult skipped() {
  CaseResult result;
  result.skip("no GPU");
  return result;
}

Report run(std::vector<Case> cases, RunOptions options = {}) {
  Report report = run_cases(std::move(cases), options);
  report.title = "dyncp gate --tier smoke";
  report.version = "1.2.3";
  return report;
}

// One case in each status, in two drivers.
std::vector<Case> one_of_each() {
  std::vector<Case> cases;
  cases.push_back(case_of(
      kFirst, "passed", [] { return passed(); }, {7, 8, 0}, 4));
  cases.push_back(case_of(
      kFirst, "failed", [] { return failed(); }, {100}, 2));
  cases.push_back(case_of(kSecond, "mistrusted", [] { return mistrusted(); }));
  cases.push_back(case_of(kSecond, "skipped", [] { return skipped(); }));
  cases.push_back(
      case_of(kFirst, "invalid", []() -> CaseResult { throw InvalidInput("--padded is wrong"); }));
  return cases;
}

TEST(RunCases, CountsEachStatusAndEndsInTheSummaryLine) {
  const Report report = run(one_of_each());
  EXPECT_EQ(summary_line(report), "tests:5 passed:1 failed:1 mistrusted:1 skipped:1 invalid:1");
  EXPECT_EQ(exit_code(report), 1);
  EXPECT_FALSE(report.abandoned);
}

TEST(RunCases, ExitCodeFollowsTheStatuses) {
  const auto code = [](std::vector<std::function<CaseResult()>> runs, bool mistrusted_fails) {
    std::vector<Case> cases;
    for (auto& one : runs) cases.push_back(case_of(kFirst, "x", std::move(one)));
    Report report = run(std::move(cases));
    report.mistrusted_fails = mistrusted_fails;
    return exit_code(report);
  };
  const auto invalid = []() -> CaseResult { throw Infeasible("does not fit"); };
  const auto pass = [] { return passed(); };
  EXPECT_EQ(code({pass}, true), 0);
  EXPECT_EQ(code({pass, skipped}, true), 0);
  EXPECT_EQ(code({pass, mistrusted}, false), 0);
  EXPECT_EQ(code({pass, mistrusted}, true), 1);
  EXPECT_EQ(code({mistrusted}, false), 0);
  EXPECT_EQ(code({pass, invalid}, false), 1);
  EXPECT_EQ(code({pass, [] { return failed(); }}, false), 1);
  EXPECT_EQ(code({skipped}, false), 1);  // nothing was checked
  EXPECT_EQ(code({}, false), 1);
  EXPECT_EQ(code({[] { return CaseResult(); }}, true), 1);  // ran, but checked nothing
}

TEST(RunCases, WhatADriverThrowsDecidesTheStatus) {
  std::vector<Case> cases;
  cases.push_back(case_of(kFirst, "a", []() -> CaseResult { throw InvalidInput("bad"); }));
  cases.push_back(case_of(kFirst, "b", []() -> CaseResult { throw Infeasible("too long"); }));
  cases.push_back(case_of(kFirst, "c", []() -> CaseResult { throw Unavailable("no GPU"); }));
  cases.push_back(case_of(kFirst, "d", []() -> CaseResult { throw std::out_of_range("index"); }));
  cases.push_back(case_of(kFirst, "e", []() -> CaseResult { throw 7; }));
  const Report report = run(std::move(cases));
  const std::vector<Status> expected = {Status::kInvalid, Status::kInvalid, Status::kSkipped,
                                        Status::kFailed, Status::kFailed};
  const std::vector<Ending> endings = {Ending::kRefused, Ending::kRefused, Ending::kUnavailable,
                                       Ending::kThrew, Ending::kThrew};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(report.runs[i].result.status(), expected[i]) << i;
    EXPECT_EQ(report.runs[i].ending, endings[i]) << i;
  }
  EXPECT_EQ(report.runs[1].result.reason(), "too long");
  EXPECT_EQ(report.runs[3].result.findings()[0].check, "first.exception");
  EXPECT_NE(report.runs[3].result.reason().find("index"), std::string::npos);
}

TEST(RunCases, TheReportDoesNotDependOnTheNumberOfThreads) {
  const auto report_on = [](int threads) {
    std::vector<Case> cases;
    for (int i = 0; i < 200; ++i) {
      cases.push_back(case_of(kFirst, std::to_string(i), [i] {
        if (i % 7 == 0) std::this_thread::yield();
        return i % 13 == 5 ? failed("case " + std::to_string(i)) : passed();
      }));
    }
    RunOptions options;
    options.threads = threads;
    std::string order;
    options.on_done = [&](const CaseRun& one, std::size_t done, std::size_t total) {
      order += one.command + "/" + std::to_string(done) + "/" + std::to_string(total) + "\n";
    };
    const Report report = run(std::move(cases), options);
    return order + to_junit(report) + to_json_text(report) + to_html(report) + failed_list(report);
  };
  const std::string expected = report_on(1);
  EXPECT_EQ(report_on(2), expected);
  EXPECT_EQ(report_on(7), expected);
  EXPECT_EQ(report_on(500), expected);
}

TEST(RunCases, OneByOneTellsACaseBeforeItBegins) {
  for (const int threads : {1, 3}) {
    std::mutex mutex;
    std::string events;
    const auto note = [&](const std::string& event) {
      const std::lock_guard lock(mutex);
      events += event;
    };
    std::vector<Case> cases;
    for (int i = 0; i < 5; ++i) {
      cases.push_back(case_of(kFirst, std::to_string(i), [&note, i] {
        note("run" + std::to_string(i) + " ");
        return passed();
      }));
    }
    RunOptions options;
    options.threads = threads;
    options.one_by_one = true;
    options.on_start = [&](const Case& one) { note("start" + one.command.substr(12) + " "); };
    run(std::move(cases), options);
    EXPECT_EQ(events, "start0 run0 start1 run1 start2 run2 start3 run3 start4 run4 ");
  }
}

// Holds cases back until the test lets them go, so that no thread outlives its test.
class Gate {
 public:
  ~Gate() {
    open_ = true;
    while (inside_ > 0) std::this_thread::yield();
  }
  CaseResult wait() {
    ++inside_;
    while (!open_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside_;
    return passed();
  }

 private:
  std::atomic<bool> open_ = false;
  std::atomic<int> inside_ = 0;
};

TEST(Deadline, AHangingCaseFailsAndTheOthersStillRun) {
  Gate gate;
  std::vector<Case> cases;
  cases.push_back(case_of(kFirst, "a", [] { return passed(); }));
  cases.push_back(case_of(kFirst, "hangs", [&] { return gate.wait(); }));
  for (int i = 0; i < 20; ++i) cases.push_back(case_of(kFirst, "b", [] { return passed(); }));
  RunOptions options;
  options.deadline_seconds = 1.5;  // far above what the others take, whatever the load
  const Report report = run(std::move(cases), options);
  EXPECT_TRUE(report.abandoned);
  EXPECT_EQ(summary_line(report), "tests:22 passed:21 failed:1 mistrusted:0 skipped:0 invalid:0");
  EXPECT_EQ(report.runs[1].ending, Ending::kOverran);
  EXPECT_EQ(report.runs[1].result.findings()[0].check, "first.deadline");
  EXPECT_NE(report.runs[1].result.reason().find("1.5 s"), std::string::npos);
}

TEST(Deadline, AfterFourHangingCasesTheRestIsSkipped) {
  Gate gate;
  std::vector<Case> cases;
  for (int i = 0; i < 9; ++i) cases.push_back(case_of(kFirst, "h", [&] { return gate.wait(); }));
  RunOptions options;
  options.deadline_seconds = 0.02;
  const Report report = run(std::move(cases), options);
  EXPECT_TRUE(report.abandoned);
  EXPECT_EQ(summary_line(report), "tests:9 passed:0 failed:4 mistrusted:0 skipped:5 invalid:0");
}

TEST(Deadline, ACaseThatEndsAfterItsDeadlineChangesNothingAnyMore) {
  std::atomic<bool> told = false, ended = false;
  std::vector<Case> cases;
  cases.push_back(case_of(kFirst, "late", [&] {
    while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended = true;
    return passed();
  }));
  cases.push_back(case_of(kFirst, "waits", [&] {
    while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return passed();
  }));
  RunOptions options;
  options.deadline_seconds = 0.05;
  options.on_done = [&](const CaseRun&, std::size_t, std::size_t) { told = true; };
  const Report report = run(std::move(cases), options);
  EXPECT_EQ(report.runs[0].ending, Ending::kOverran);
  EXPECT_EQ(report.runs[0].result.status(), Status::kFailed);
  while (!ended) std::this_thread::yield();
}

TEST(CrashDeathTest, NamesTheCaseThatCrashed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto crash = [] {
    tell_case_on_crash();
    std::vector<Case> cases;
    cases.push_back(case_of(kFirst, "first --cp 2", [] { return passed(); }));
    cases.push_back(case_of(kFirst, "first --cp 4", []() -> CaseResult { std::abort(); }));
    run(std::move(cases));
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGABRT),
              "dyncp: crashed in: dyncp check first --cp 4");
}

TEST(MakeCase, RunsTheDriverOnTheProblem) {
  const Driver driver{"zigzag",
                      "",
                      {"lengths"},
                      [](const Problem& problem) {
                        CaseResult result;
                        result.expect("zigzag.length", Kind::kSlice, problem.lengths.at(0) == 5,
                                      [] { return "x"; });
                        return result;
                      },
                      nullptr,
                      nullptr};
  Problem problem;
  problem.driver = "zigzag";
  problem.lengths = {5};
  EXPECT_EQ(make_case(driver, problem).command, "dyncp check zigzag --lengths 5");
  EXPECT_EQ(make_case(driver, problem).run().status(), Status::kPassed);
  problem.lengths = {6};
  EXPECT_EQ(make_case(driver, problem).run().status(), Status::kFailed);
  Driver absent = driver;
  absent.run = nullptr;
  EXPECT_THROW(make_case(absent, problem).run(), Unavailable);
}

TEST(Text, CaseListsAndTable) {
  const Report report = run(one_of_each());
  EXPECT_EQ(case_text(report.runs[0]), "PASSED: first.holds\n");
  EXPECT_EQ(case_text(report.runs[1]),
            "  a table\nFAILED first.rows (slice): rank 2 holds row 5, expected row 6\n");
  EXPECT_EQ(case_text(report.runs[2]),
            "MISTRUSTED no CP group is larger than 1; checked: first.holds\n");
  EXPECT_EQ(case_text(report.runs[4]), "INVALID --padded is wrong\n");
  EXPECT_EQ(failed_list(report),
            "FAILED first.rows: rank 2 holds row 5, expected row 6\n  repeat: dyncp check failed\n"
            "INVALID: --padded is wrong\n  repeat: dyncp check invalid\n");
  EXPECT_EQ(not_checked_list(report),
            "MISTRUSTED no CP group is larger than 1 (1 case)\n  repeat: dyncp check mistrusted\n"
            "SKIPPED no GPU (1 case)\n  repeat: dyncp check skipped\n");
  const std::string table = coverage_table(report);
  EXPECT_NE(table.find("CP 2 4"), std::string::npos) << table;
  EXPECT_NE(table.find("of 4 ranks"), std::string::npos) << table;
  EXPECT_NE(table.find("0..100"), std::string::npos) << table;
}

TEST(Text, TheFailedListShowsTen) {
  std::vector<Case> cases;
  for (int i = 0; i < 12; ++i) {
    cases.push_back(case_of(kFirst, std::to_string(i), [] { return failed(); }));
  }
  const std::string list = failed_list(run(std::move(cases)));
  EXPECT_NE(list.find("dyncp check 9\n"), std::string::npos);
  EXPECT_EQ(list.find("dyncp check 10\n"), std::string::npos);
  EXPECT_NE(list.find("and 2 more"), std::string::npos);
}

TEST(Summary, AddsUpByDriver) {
  const std::vector<DriverSummary> summaries = summarize(run(one_of_each()));
  ASSERT_EQ(summaries.size(), 2U);
  const DriverSummary& first = summaries[0];
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.counts, (Counts{3, 1, 1, 0, 0, 1}));
  EXPECT_EQ(first.cp_sizes, (std::map<int, std::int64_t>{{2, 1}, {4, 2}}));
  EXPECT_TRUE(first.rank_domains.empty());
  EXPECT_EQ(first.checks,
            (std::map<std::string, std::int64_t>{{"first.holds", 2}, {"first.rows", 1}}));
  EXPECT_EQ(first.findings, (std::map<std::string, std::int64_t>{{"first.rows", 1}}));
  // 7, 8, 0 at size 4; 100 at size 2; 7, 8 at size 4: aligned are 8, 0, 100 and 8.
  EXPECT_EQ(first.sequences, 6);
  EXPECT_EQ(first.unaligned, 2);
  EXPECT_EQ(first.shortest, 0);
  EXPECT_EQ(first.longest, 100);
  const DriverSummary& second = summaries[1];
  EXPECT_TRUE(second.cp_sizes.empty());
  EXPECT_EQ(second.rank_domains, (std::map<int, std::int64_t>{{4, 2}}));
  ASSERT_EQ(second.not_checked.size(), 2U);
  EXPECT_EQ(second.not_checked.at("SKIPPED no GPU").command, "dyncp check skipped");
}

TEST(JUnit, HasASuiteForEachDriverAndCountsAsTheGateDoes) {
  Report report = run(one_of_each());
  const std::string lenient = to_junit(report);
  EXPECT_NE(lenient.find("<testsuites name=\"dyncp gate --tier smoke\" tests=\"5\" failures=\"1\" "
                         "errors=\"1\">"),
            std::string::npos)
      << lenient;
  EXPECT_NE(lenient.find("<testsuite name=\"dyncp.second\" tests=\"2\" failures=\"0\" errors=\"0\" "
                         "skipped=\"2\">"),
            std::string::npos)
      << lenient;
  EXPECT_NE(lenient.find("<testcase classname=\"dyncp.first\" name=\"dyncp check passed\"/>"),
            std::string::npos);
  EXPECT_NE(lenient.find("repeat: dyncp check failed"), std::string::npos);
  report.mistrusted_fails = true;
  const std::string strict = to_junit(report);
  EXPECT_NE(strict.find("<testsuite name=\"dyncp.second\" tests=\"2\" failures=\"1\" errors=\"0\" "
                        "skipped=\"1\">"),
            std::string::npos)
      << strict;
}

TEST(Json, HoldsSummaryDriversLengthsAndCases) {
  Report report = run(one_of_each());
  report.length_sets = {{"five", {5, 1, 4, 2, 3}}};
  report.left_out = {{"GPU", "none here"}};
  const nlohmann::json json = nlohmann::json::parse(to_json_text(report));
  EXPECT_EQ(json.at("dyncp"), "1.2.3");
  EXPECT_EQ(json.at("title"), "dyncp gate --tier smoke");
  EXPECT_EQ(json.at("exit_code"), 1);
  EXPECT_EQ(json.at("summary").at("tests"), 5);
  EXPECT_EQ(json.at("summary").at("invalid"), 1);
  EXPECT_EQ(json.at("drivers").size(), 2U);
  EXPECT_EQ(json.at("drivers")[0].at("cp_sizes").at("4"), 2);
  EXPECT_EQ(json.at("drivers")[0].at("checks").at("first.rows").at("findings"), 1);
  EXPECT_EQ(json.at("length_sets")[0].at("median"), 3);
  EXPECT_EQ(json.at("length_sets")[0].at("total"), 15);
  EXPECT_EQ(json.at("left_out")[0].at("why"), "none here");
  EXPECT_EQ(json.at("cases").size(), 5U);
  const nlohmann::json& bad = json.at("cases")[1];
  EXPECT_EQ(bad.at("status"), "FAILED");
  EXPECT_EQ(bad.at("findings")[0].at("kind"), "slice");
  EXPECT_EQ(bad.at("details")[0], "a table");
}

TEST(Clock, ReadingsEnterTheTimingsAlone) {
  Report report = run(one_of_each());
  for (CaseRun& one : report.runs) one.seconds = 123.456;
  Report other = report;
  for (CaseRun& one : other.runs) one.seconds = 0.001;
  EXPECT_EQ(to_junit(report), to_junit(other));
  EXPECT_EQ(to_json_text(report), to_json_text(other));
  EXPECT_EQ(to_html(report), to_html(other));
  const nlohmann::json json = nlohmann::json::parse(timings_text(report));
  EXPECT_EQ(json.at("cases").size(), 5U);
  EXPECT_DOUBLE_EQ(json.at("drivers").at("first").get<double>(), 3 * 123.456);
}

TEST(Html, TellsEverythingAndLoadsNothing) {
  Report report = run(one_of_each());
  report.length_sets = {{"python-stdlib", {5, 1}}};
  report.left_out = {{"CUDA kernels", "no GPU here"}};
  const std::string page = to_html(report);
  for (const char* part : {"Not everything held. Exit code 1.", "tests:5 passed:1",
                           "rank 2 holds row 5, expected row 6", "dyncp check failed",
                           "no CP group is larger than 1", "CUDA kernels", "no GPU here",
                           "python-stdlib", "first.holds", "CP 2 4", "dyncp gate --tier smoke"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  for (const char* part : {"http:", "https:", "src=", "href=", "@import", "url(", "<script"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
}

TEST(Html, TheVerdictFollowsTheExitCode) {
  const auto verdict = [](std::function<CaseResult()> one, bool mistrusted_fails) {
    std::vector<Case> cases;
    cases.push_back(case_of(kFirst, "x", std::move(one)));
    Report report = run(std::move(cases));
    report.mistrusted_fails = mistrusted_fails;
    const std::string page = to_html(report);
    const std::size_t begin = page.find("<p class=\"verdict ") + 18;
    return page.substr(begin, page.find("<br>", begin) - begin);
  };
  EXPECT_EQ(verdict([] { return passed(); }, true), "good\">Every check held. Exit code 0.");
  EXPECT_EQ(verdict([] { return failed(); }, true), "bad\">Not everything held. Exit code 1.");
  EXPECT_EQ(verdict(mistrusted, true),
            "warn\">All held, but some cases could not have failed. Exit code 1.");
  EXPECT_EQ(verdict(mistrusted, false),
            "warn\">All held, but some cases could not have failed. Exit code 0.");
  EXPECT_EQ(verdict(skipped, true), "warn\">Nothing was checked. Exit code 1.");
}

TEST(Markup, EscapesWhatMarkupReadsAndReplacesWhatXmlForbids) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(escape_markup("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c'");
  EXPECT_EQ(escape_markup("tab\tline\n"), "tab\tline\n");
  EXPECT_EQ(escape_markup(std::string("\x00\x1b\x0c", 3)), replacement + replacement + replacement);
  EXPECT_EQ(escape_markup("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x99\x82"),
            "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x99\x82");
  EXPECT_EQ(escape_markup("\xC3"), replacement);                                      // cut short
  EXPECT_EQ(escape_markup("\xC0\xAF"), replacement + replacement);                    // overlong
  EXPECT_EQ(escape_markup("\xED\xA0\x80"), replacement + replacement + replacement);  // surrogate
  EXPECT_EQ(escape_markup("\xEF\xBF\xBF"), replacement + replacement + replacement);  // U+FFFF
}

TEST(Markup, HostileTextStaysTextInEveryReport) {
  std::vector<Case> cases;
  const std::string hostile = "</code><script>alert(1)</script>\x01\xff\"";
  cases.push_back(case_of(kFirst, hostile, [&] { return failed(hostile); }));
  Report report = run(std::move(cases));
  EXPECT_EQ(to_html(report).find("<script"), std::string::npos);
  EXPECT_EQ(to_junit(report).find("<script"), std::string::npos);
  EXPECT_EQ(to_junit(report).find('\x01'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(to_json_text(report));
  EXPECT_EQ(json.at("cases").size(), 1U);
}

}  // namespace
}  // namespace dyncp
