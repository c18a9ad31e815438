#include "runtime/global_gradients.h"

#include <array>
#include <optional>
#include <utility>

#include "reference/loss.h"
#include "runtime/gradients.h"

namespace dyncp {

template <typename T>
GradientSum sum_gradients(const GptParameters<T>& parameters, const RankBatch& batch,
                          AttentionOperator<T>& attention, CpModule* module) {
  GptParameters<T> gradients(parameters.config());
  LossSum total;
  for (std::size_t m = 0; m < batch.microbatches.size(); ++m) {
    const PackedMicrobatch& microbatch = batch.microbatches[m];
    std::optional<CpBinding> binding;
    if (module != nullptr) binding.emplace(*module, microbatch.params.context());
    total = combine(
        {total, forward_backward(parameters, microbatch, attention, batch.indices[m], gradients)});
  }
  return {total.sum, total.tokens, converted<double>(gradients)};
}

template GradientSum sum_gradients<float>(const GptParameters<float>&, const RankBatch&,
                                          AttentionOperator<float>&, CpModule*);
template GradientSum sum_gradients<double>(const GptParameters<double>&, const RankBatch&,
                                           AttentionOperator<double>&, CpModule*);

void add_over_ranks(Transport& transport, GradientSum& sum) {
  // A count below 2^53 is exact in double.
  std::array<double, 2> loss = {sum.loss, static_cast<double>(sum.tokens)};
  transport.all_reduce_sum(loss, {.what = "loss sum"});
  sum.loss = loss[0];
  sum.tokens = static_cast<std::int64_t>(loss[1]);
  transport.all_reduce_sum(sum.gradients.values(), {.what = "gradient sum"});
}

MeanGradients mean_of(GradientSum sum) {
  MeanGradients mean{.loss = reported_loss({sum.loss, sum.tokens}),
                     .tokens = sum.tokens,
                     .gradients = std::move(sum.gradients)};
  divide_by_tokens(mean.gradients, mean.tokens);
  mean.norm = gradient_norm(mean.gradients);
  return mean;
}

}  // namespace dyncp
