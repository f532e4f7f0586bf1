#include "adamw.h"

#include "torch-dist/src/ffi.rs.h"

#include "group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adamw.h>

#include <optional>
#include <vector>

namespace torch_dist {

void fused_adamw(
    rust::Slice<const size_t> parameters,
    rust::Slice<const size_t> gradients,
    rust::Slice<const size_t> means,
    rust::Slice<const size_t> squares,
    rust::Slice<const size_t> steps,
    const AdamwSettings& settings,
    size_t overflow) {
  const at::NoGradGuard no_grad;
  auto counts = borrowed(steps);
  std::optional<at::Tensor> stays;
  if (overflow != 0) {
    stays = borrowed(overflow);
  }
  at::_foreach_add_(counts, 1);
  at::_fused_adamw_(
      borrowed(parameters),
      borrowed(gradients),
      borrowed(means),
      borrowed(squares),
      {},
      counts,
      settings.learning_rate,
      settings.beta1,
      settings.beta2,
      settings.weight_decay,
      settings.epsilon,
      /*amsgrad=*/false,
      /*maximize=*/false,
      /*grad_scale=*/std::nullopt,
      stays);
  if (stays) {
    // A step that was left out does not count, as torch.optim does it.
    at::_foreach_sub_(counts, std::vector<at::Tensor>(counts.size(), *stays));
  }
}

} // namespace torch_dist
