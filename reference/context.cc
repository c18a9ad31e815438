#include "reference/context.h"

#include <string>
#include <utility>

#include "reference/error.h"
#include "reference/zigzag.h"

namespace dyncp {
namespace {

// Checks the contract and returns the context that the parameters describe.
CpContext context_of(int local_cp_size, const std::optional<CpGroup>& group, int global_rank,
                     Contract contract) {
  const std::string size_text = "local_cp_size " + std::to_string(local_cp_size);
  if (local_cp_size < 1) throw InvalidInput(size_text + " must be at least 1");
  if (contract == Contract::kV1 && local_cp_size == 1 && group.has_value()) {
    throw InvalidInput("R1: " + size_text + " carries a CP group (" + to_string(*group) +
                       "); contract v1 says size 1 has none");
  }
  if (!group.has_value()) {
    if (local_cp_size == 1 && contract == Contract::kV1) return CpContext();
    throw InvalidInput("R1: " + size_text + " has no CP group; contract " +
                       std::string(to_string(contract)) + " requires one");
  }
  if (group->size != local_cp_size) {
    throw InvalidInput("R1: " + size_text + " differs from its CP group, " + to_string(*group));
  }
  return CpContext(*group, global_rank);
}

}  // namespace

std::string_view to_string(Contract contract) { return contract == Contract::kV1 ? "v1" : "v2"; }

Contract parse_contract(std::string_view name) {
  if (name == "v1") return Contract::kV1;
  if (name == "v2") return Contract::kV2;
  throw InvalidInput("unknown contract '" + std::string(name) + "': expected v1 or v2");
}

CpContext::CpContext(const CpGroup& group, int global_rank) {
  if (group.size < 1 || group.first_rank < 0) {
    throw InvalidInput("CP group of size " + std::to_string(group.size) + " at rank " +
                       std::to_string(group.first_rank) + " is not a group");
  }
  if (!group.contains(global_rank)) {
    throw InvalidInput("rank " + std::to_string(global_rank) + " is not in its CP group, " +
                       to_string(group));
  }
  if (group.size == 1) return;
  size_ = group.size;
  rank_ = global_rank - group.first_rank;
  first_rank_ = group.first_rank;
}

PackedSeqParams::PackedSeqParams(Pack pack, int local_cp_size, std::optional<CpGroup> cp_group,
                                 int global_rank, Contract contract)
    : pack_(std::move(pack)),
      cp_group_(cp_group),
      contract_(contract),
      context_(context_of(local_cp_size, cp_group, global_rank, contract)) {
  require_divisible(pack_, context_.size());
}

}  // namespace dyncp
