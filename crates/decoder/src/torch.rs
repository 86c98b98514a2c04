//! Bindings of `torch.cpp`, and the loading of libtorch's CUDA library.
//!
//! Foreign functions cannot be called without `unsafe`; this module is the only place, and its
//! functions are safe: pointers come from live references, C++ exceptions become errors.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use tch::{Device, Tensor};

use crate::DecoderError;

unsafe extern "C" {
    safe fn assay_torch_version() -> *const c_char;
    safe fn assay_torch_cpu_capability() -> *const c_char;
    fn assay_torch_exact(message: *mut c_char, size: usize) -> c_int;
    fn assay_torch_parallel(count: i64, body: extern "C" fn(*mut c_void), context: *mut c_void);
    fn assay_torch_linear(
        x: *const c_void,
        weight: *const c_void,
        out: *const c_void,
        accumulate: bool,
        message: *mut c_char,
        size: usize,
    ) -> c_int;
}

/// What happens to what the output of [`linear`] held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// It is overwritten.
    Replace,
    /// The product is added to it.
    Add,
}

/// `out = x @ weight^T`, or `out += x @ weight^T`.
///
/// Shapes: `x` `[rows, in]`, `weight` `[out, in]`, `out` `[rows, out]`; `x` and `out` may be
/// column ranges of wider matrices.
pub(crate) fn linear(
    x: &Tensor,
    weight: &Tensor,
    out: &mut Tensor,
    output: Output,
) -> Result<(), DecoderError> {
    // SAFETY: all three point to live `at::Tensor`s for the length of the call, of which `out` is
    // borrowed mutably; the message is written within its size and ended by a zero byte.
    guarded(|message, size| unsafe {
        assay_torch_linear(
            x.as_ptr().cast(),
            weight.as_ptr().cast(),
            out.as_ptr().cast(),
            output == Output::Add,
            message,
            size,
        )
    })
}

/// Turns off whatever trades exactness or reproducibility for speed, process-wide.
pub(crate) fn exact() -> Result<(), DecoderError> {
    // SAFETY: the message is written within its size and ended by a zero byte.
    guarded(|message, size| unsafe { assay_torch_exact(message, size) })
}

pub(crate) fn version() -> &'static str {
    static_text(assay_torch_version())
}

pub(crate) fn cpu_capability() -> &'static str {
    static_text(assay_torch_cpu_capability())
}

/// Numbers of the host on a device. Nothing waits for the copy to a GPU.
pub(crate) fn upload<T: tch::kind::Element>(
    numbers: &[T],
    device: Device,
) -> Result<Tensor, DecoderError> {
    let host = Tensor::f_from_slice(numbers)?;
    if !device.is_cuda() {
        return Ok(host);
    }
    // Pinned: from pageable memory a copy is waited for.
    let kind = host.f_kind()?;
    Ok(host
        .f_pin_memory(device)?
        .f_to_device_(device, kind, true, false)?)
}

/// Calls `body` `count` times, each on a thread of libtorch's own where there are as many.
///
/// `body` must not panic: the process would end.
pub(crate) fn parallel(count: usize, body: &(dyn Fn() + Sync)) {
    extern "C" fn call(context: *mut c_void) {
        // SAFETY: what `parallel` below hands over, which lives until all calls have ended.
        let body = unsafe { *context.cast::<&(dyn Fn() + Sync)>() };
        body();
    }
    let mut body = body;
    let context = std::ptr::from_mut(&mut body).cast();
    // SAFETY: `call` gets the reference that it expects; libtorch returns when all calls have.
    unsafe { assay_torch_parallel(crate::batch::signed(count), call, context) }
}

/// Loads a library whose symbols later libraries may use, for the rest of the process.
pub(crate) fn load_globally(library: &Path) -> Result<(), String> {
    load(library, libc::RTLD_NOW | libc::RTLD_GLOBAL)
}

/// Loads a library for the rest of the process.
pub(crate) fn load(library: &Path, flags: c_int) -> Result<(), String> {
    let name = CString::new(library.as_os_str().as_encoded_bytes())
        .map_err(|_| format!("{} contains a zero byte", library.display()))?;
    // SAFETY: `name` is a C string. Initialisers of the library run; callers name libtorch's own
    // and NCCL's. The handle is never closed. `dlerror` is per thread and read at once.
    unsafe {
        if libc::dlopen(name.as_ptr(), flags).is_null() {
            let error = libc::dlerror();
            let error = if error.is_null() {
                c"unknown error".as_ptr()
            } else {
                error
            };
            return Err(CStr::from_ptr(error).to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// Sets a variable of the environment. The caller makes sure that there is one thread only.
pub(crate) fn set_environment_alone((name, value): (&str, &str)) {
    // SAFETY: no other thread exists that could read the environment meanwhile.
    unsafe { std::env::set_var(name, value) };
}

fn guarded(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), DecoderError> {
    let mut message = [0_u8; 1024];
    if call(message.as_mut_ptr().cast(), message.len()) == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&message).unwrap_or(c"");
    Err(DecoderError::from_message(&text.to_string_lossy()))
}

fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: both functions return a C string that lives as long as the process.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .unwrap_or("unknown")
}
