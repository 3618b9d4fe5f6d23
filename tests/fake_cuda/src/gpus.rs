//! The machine: how many GPUs, their names, and which of them this process sees.

use crate::{log, reading};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// What a successful cuInit has fixed for this process.
pub struct Visible {
    /// Physical numbers by ordinal.
    pub physical: Vec<usize>,
    /// All UUIDs by physical number.
    pub uuids: Vec<String>,
}

static VISIBLE: AtomicPtr<Visible> = AtomicPtr::new(std::ptr::null_mut());
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The devices, once cuInit has succeeded in this process.
pub fn visible() -> Option<&'static Visible> {
    let visible = VISIBLE.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of a leaked box that is never changed.
    unsafe { visible.as_ref() }
}

/// cuInit: the variable is read at each call until one succeeds; a child forked after that is refused.
pub fn init(flags: u32) -> i32 {
    if log::variable("FAKE_CUDA_HANG").is_some() {
        loop {
            std::thread::park();
        }
    }
    if let Some(code) = log::variable("FAKE_CUDA_INIT_RESULT").and_then(|text| text.parse().ok())
        && code != 0
    {
        return code;
    }
    if flags != 0 {
        return 1;
    }
    // SAFETY: getpid takes nothing.
    let process = unsafe { libc::getpid() };
    if visible().is_some() {
        return if OWNER.load(Ordering::Relaxed) == process { 0 } else { 3 };
    }
    let uuids = uuids();
    let order = log::variable("CUDA_DEVICE_ORDER");
    if !matches!(order.as_deref(), None | Some("PCI_BUS_ID" | "FASTEST_FIRST")) {
        return 101;
    }
    let reversed = log::variable("FAKE_CUDA_FASTEST_LAST").as_deref() == Some("1") && order.as_deref() != Some("PCI_BUS_ID");
    let numbers: Vec<usize> = if reversed { (0..uuids.len()).rev().collect() } else { (0..uuids.len()).collect() };
    let in_order: Vec<String> = numbers.iter().map(|k| uuids[*k].clone()).collect();
    let ignored = log::variable("FAKE_CUDA_IGNORE_CVD").as_deref() == Some("1");
    let value = if ignored { None } else { log::raw_variable("CUDA_VISIBLE_DEVICES") };
    match reading::visible(value.as_deref(), &in_order) {
        Ok(list) => {
            let physical = list.into_iter().map(|at| numbers[at]).collect();
            OWNER.store(process, Ordering::Relaxed);
            VISIBLE.store(Box::into_raw(Box::new(Visible { physical, uuids })), Ordering::Release);
            0
        }
        Err(code) => code,
    }
}

fn uuids() -> Vec<String> {
    if let Some(list) = log::variable("FAKE_CUDA_UUIDS") {
        return list.split(',').map(str::to_owned).collect();
    }
    let count = log::variable("FAKE_CUDA_GPUS").and_then(|n| n.parse::<usize>().ok()).unwrap_or(1).min(16);
    (0..count).map(|k| format!("GPU-{}-0000-4000-8000-00000000000{k:x}", format!("{k:x}").repeat(8))).collect()
}

/// The 16 bytes of a UUID.
pub fn uuid_bytes(uuid: &str) -> [u8; 16] {
    let digits: Vec<u8> = uuid[4..].chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    std::array::from_fn(|k| digits[2 * k] << 4 | digits[2 * k + 1])
}

/// The PCI bus id of a physical GPU.
pub fn pci(physical: usize) -> String {
    format!("0000:1{physical:x}:00.0")
}
