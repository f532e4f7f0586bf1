//! `Autocast` is a scope for mixed precision (bfloat16) on this thread.
//! Invariant: dropping it restores the setting that was there before, also where an error or a panic ends the scope.

use std::marker::PhantomData;

use tch::Device;

use crate::ffi::bridge;

/// A region of this thread in which libtorch's autocast is on, or off; it ends when the value is dropped.
///
/// On, matrix products take their arguments as bfloat16, and operations that need the range or the digits (sums, softmax, losses) stay
/// float32; parameters are converted once, and the copies are freed when the outermost region ends. Regions nest: drop them in reverse order,
/// as scopes do by themselves. Run a backward pass behind the region: it follows the dtypes of the forward pass by itself.
///
/// Source: `torch.autocast` of PyTorch, `torch/amp/autocast_mode.py`.
#[derive(Debug)]
pub struct Autocast {
    cuda: bool,
    before: bool,
    /// Not `Send`: the setting belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Autocast {
    /// To bfloat16, for operations on `device`.
    pub fn bf16(device: Device) -> Self {
        Self::set(device, true)
    }

    /// Off, for operations on `device` that have no bfloat16 kernel, or need more digits than bfloat16 has.
    pub fn paused(device: Device) -> Self {
        Self::set(device, false)
    }

    fn set(device: Device, enabled: bool) -> Self {
        let cuda = device.is_cuda();
        bridge::enter_autocast();
        Self { cuda, before: bridge::set_autocast(cuda, enabled), thread: PhantomData }
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        bridge::set_autocast(self.cuda, self.before);
        bridge::leave_autocast();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    #[test]
    fn regions_nest_and_end() {
        let product = || {
            let a = Tensor::ones([3, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
            a.matmul(&a).kind()
        };
        assert_eq!(product(), Kind::Float);
        {
            let _on = Autocast::bf16(Device::Cpu);
            assert_eq!(product(), Kind::BFloat16);
            {
                let _off = Autocast::paused(Device::Cpu);
                assert_eq!(product(), Kind::Float);
            }
            assert_eq!(product(), Kind::BFloat16);
        }
        assert_eq!(product(), Kind::Float);
    }

    #[test]
    fn parameters_are_read_anew_in_each_region() {
        let parameter = Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let one = Tensor::ones([2, 2], (Kind::Float, Device::Cpu));
        let value = || {
            let _on = Autocast::bf16(Device::Cpu);
            one.matmul(&parameter).double_value(&[0, 0])
        };
        assert_eq!(value(), 2.0);
        let _ = tch::no_grad(|| parameter.shallow_clone().fill_(3.0));
        assert_eq!(value(), 6.0);
    }
}
