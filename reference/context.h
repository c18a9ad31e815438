// What one microbatch knows about its CP group, on one rank.
// CpContext is the single immutable value that feeds slicing, RoPE, attention and loss (rule R2);
// PackedSeqParams is the metadata a framework hands to its layers and can only be built valid.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "reference/group.h"
#include "reference/pack.h"

namespace dyncp {

/// What local_cp_size == 1 means (rule R1); both are in use in the field.
///   kV1  size 1 if and only if there is no CP group (the default)
///   kV2  size 1 carries a real singleton group as metadata and consumers treat it as CP-off
enum class Contract { kV1, kV2 };

/// "v1" or "v2".
std::string_view to_string(Contract contract);

/// Inverse of to_string. Throws InvalidInput that lists the accepted names.
Contract parse_contract(std::string_view name);

/// The CP group bound for one microbatch, seen from one rank. Immutable.
class CpContext {
 public:
  /// CP off: size 1, rank 0, and no group.
  CpContext() = default;

  /// The context of `global_rank` inside `group`; a size-1 group gives CP off.
  /// Throws InvalidInput when the group does not contain the rank or its size is below 1.
  CpContext(const CpGroup& group, int global_rank);

  int size() const { return size_; }
  /// Rank inside the group, 0..size-1.
  int rank() const { return rank_; }
  /// Whether attention must run the ring.
  bool cp_on() const { return size_ > 1; }
  /// Global rank of group member `rank`. REQUIRES: cp_on() and 0 <= rank < size.
  int global_rank(int rank) const { return first_rank_ + rank; }

  bool operator==(const CpContext&) const = default;

 private:
  int size_ = 1;
  int rank_ = 0;
  int first_rank_ = 0;
};

/// Metadata of a packed microbatch on one rank. `pack` is global (never divided by the CP size);
/// only total_tokens() is local.
class PackedSeqParams {
 public:
  /// Throws InvalidInput with the violated rule when
  ///   local_cp_size < 1,
  ///   (v1) local_cp_size == 1 comes with a group, or local_cp_size > 1 without one,
  ///   (v2) there is no group,
  ///   the group's size differs from local_cp_size or the group does not contain `global_rank`,
  ///   local_cp_size > 1 and a padded length is no multiple of 2 * local_cp_size.
  PackedSeqParams(Pack pack, int local_cp_size, std::optional<CpGroup> cp_group, int global_rank,
                  Contract contract = Contract::kV1);

  const Pack& pack() const { return pack_; }
  int local_cp_size() const { return context_.size(); }
  const std::optional<CpGroup>& cp_group() const { return cp_group_; }
  Contract contract() const { return contract_; }
  const CpContext& context() const { return context_; }
  /// Longest padded length of the pack, in global tokens.
  std::int64_t max_seqlen() const { return pack_.max_padded_length(); }
  /// Rows this rank holds: padded tokens / size.
  std::int64_t total_tokens() const { return pack_.padded_tokens() / context_.size(); }

 private:
  Pack pack_;
  std::optional<CpGroup> cp_group_;
  Contract contract_;
  CpContext context_;
};

}  // namespace dyncp
