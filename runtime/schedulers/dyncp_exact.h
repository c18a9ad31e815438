// Few items, exactly: the best way to run a set of items on a subtree with a given number of packs
// on every path, by dynamic programming over sets. Time grows like 3^items, memory like 2^items.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/schedulers/dyncp_local_search.h"

namespace dyncp::nested {

/// A set of items: bit i = the i-th of the items that ExactTables was made for.
using ItemSet = std::uint32_t;

class ExactTables {
 public:
  /// For these items on subtrees of `tree`. Paths of `limit` or more are not distinguished from
  /// impossible ones. Work is charged to `budget` but never cut short.
  ExactTables(const Instance& instance, const Tree& tree, std::vector<int> items, double limit,
              Budget& budget);

  ItemSet all() const { return all_; }

  /// Least heaviest path below v (v included), by set, when exactly `packs` packs lie on each path
  /// and exactly the items of the set run there; infinity when that cannot be.
  const std::vector<double>& least_paths(int v, int packs);

  /// Appends the packs of a way that attains it to `packing`.
  /// REQUIRES: least_paths(v, packs)[set] is finite.
  void extract(int v, int packs, ItemSet set, Packing& packing);

  std::vector<int> members(ItemSet set) const;

 private:
  using Table = std::vector<double>;                 // by set
  using Tables = std::vector<std::map<int, Table>>;  // [level or shape][packs]; empty: not made

  static Table& entry(Tables& tables, int row, int packs);
  const Table& pack_table(int level, int packs);
  const Table& below_table(int v, int packs);
  Table best_split(const Table& first, const Table& second, bool same) const;
  void charge(double tables);

  const Instance& instance_;
  const Tree& tree_;
  std::vector<int> items_;
  double limit_;
  Budget& budget_;
  ItemSet all_;
  Tables packs_;  // by level: least total time of that many packs
  Tables paths_;  // by shape: least heaviest path
  Tables below_;  // by shape: the same with no pack on the root of the subtree
};

/// The best plan on the whole tree, over all admissible numbers of microbatches.
/// False when there is none. REQUIRES: few items (at most 8 or so).
bool solve_exactly(Plan& plan, Budget& budget);

}  // namespace dyncp::nested
