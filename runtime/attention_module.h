// The attention of the model on real ranks: built with a static CP size, and honouring the CP group
// of each microbatch (rules R1-R4). In a training step:
//
//   AttentionModule<float> attention(transport, groups, /*static_cp_size=*/1);
//   for (microbatch) {
//     CpBinding binding(attention, params.context());
//     ... attention.forward(params, ...); ... attention.backward(params, ...);
//   }                                        // the build-time group is back
//
// One module may serve all layers of a model, or each layer may own one.
#pragma once

#include <memory>

#include "runtime/attention_operator.h"
#include "runtime/auxiliary_worker.h"
#include "runtime/cp_binding.h"
#include "runtime/group_collection.h"
#include "runtime/transport.h"

namespace dyncp {

struct AttentionModuleOptions {
  double softmax_scale = 0;      // 0 stands for 1/sqrt(dim)
  bool auxiliary_worker = true;  // exchange K/V on a worker thread while computing
};

/// Causal ring attention over the CP group of each microbatch. T is float or double.
template <typename T>
class AttentionModule final : public AttentionOperator<T>, public CpModule {
 public:
  /// The build-time group is this rank's group of `static_cp_size` in `groups`. Throws InvalidInput
  /// when there is none, or when `groups` and `transport` differ in rank or number of ranks.
  /// REQUIRES: the transport outlives the module.
  AttentionModule(Transport& transport, const GroupCollection& groups, int static_cp_size,
                  const AttentionModuleOptions& options = {});

  /// Shapes as in AttentionOperator. `params` must describe the context the module is bound to
  /// (without a CpBinding: the build-time one). Throws InvalidInput, before anything is sent, when
  /// it does not, when its group is none of this collection's or seen from another rank, or when a
  /// tensor does not fit; TransportError when a rank of the group does not do its part.
  AttentionOutput<T> forward(const PackedSeqParams& params, const Tensor<T>& q, const Tensor<T>& k,
                             const Tensor<T>& v, int microbatch, int layer) override;

  /// Throws like forward.
  AttentionGradients<T> backward(const PackedSeqParams& params, const Tensor<T>& q,
                                 const Tensor<T>& k, const Tensor<T>& v,
                                 const AttentionOutput<T>& output, const Tensor<T>& d_o,
                                 int microbatch, int layer) override;

  /// How often the auxiliary worker has been created: 0 until the first microbatch with size > 1,
  /// then 1 for good (rule R4). Always 0 when the option is off.
  int auxiliary_workers_created() const { return auxiliary_workers_created_; }

 private:
  void require_fits(const PackedSeqParams& params, const Tensor<T>& q, const Tensor<T>& k,
                    const Tensor<T>& v) const;
  /// The worker for a microbatch on `context`; null where there is nothing to exchange.
  AuxiliaryWorker* worker_for(const CpContext& context);

  Transport& transport_;
  GroupCollection groups_;
  AttentionModuleOptions options_;
  std::unique_ptr<AuxiliaryWorker> worker_;
  int auxiliary_workers_created_ = 0;
};

extern template class AttentionModule<float>;
extern template class AttentionModule<double>;

}  // namespace dyncp
