//! The names that Cuvisor reads and writes in a process's environment, and its default paths.
//!
//! README's table of variables is tested against this list.

/// The driver's own list of devices, read once inside `cuInit` (driver-facts.md).
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// How the driver numbers devices; it reads this a little after the list.
pub const DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";
/// The order in which nvidia-smi numbers devices, and so the one that an index in a policy means.
pub const PCI_ORDER: &str = "PCI_BUS_ID";
/// The driver's order where the variable is unset.
pub const FASTEST_ORDER: &str = "FASTEST_FIRST";

/// Path of the policy file, before the default one.
pub const POLICY: &str = "CUVISOR_POLICY";
/// The device list for this process and its children, before the file's.
pub const DEVICES: &str = "CUVISOR_DEVICES";
/// The mode for this process and its children, before the file's.
pub const MODE: &str = "CUVISOR_MODE";
/// The audit file for this process and its children, before the file's.
pub const AUDIT: &str = "CUVISOR_AUDIT";
/// `1` or `require`: the kernel holds this process and its children to their devices, too; before the file's.
pub const SEAL: &str = "CUVISOR_SEAL";
/// Written by the library: the nodes that the process has been sealed off from.
pub const SEALED: &str = "CUVISOR_SEALED";
/// `1`: who called `cuInit`, and from where, is told on stderr and in the audit; `log`: in the audit only.
/// Also under a locked policy, which it does not change.
pub const TRACE: &str = "CUVISOR_TRACE";
/// `1` makes the library do nothing at all.
pub const DISABLE: &str = "CUVISOR_DISABLE";
/// Where `proc/driver/nvidia/gpus` and `dev/nvidia*` are looked for instead of `/`, for tests.
pub const PROC_ROOT: &str = "CUVISOR_PROC_ROOT";
/// Written by the library beside `CUDA_VISIBLE_DEVICES`: see [`crate::decide::Applied`].
pub const APPLIED: &str = "CUVISOR_APPLIED";

/// The variables beside [`POLICY`] that go before the file, and that a locked policy does not listen to.
pub const OVERRIDES: [&str; 6] = [DEVICES, MODE, AUDIT, SEAL, DISABLE, PROC_ROOT];

/// Every variable that Cuvisor reads, with what it is for: README's table and the command's help.
pub const VARIABLES: [(&str, &str); 10] = [
    (POLICY, "policy file to use instead of /etc/cuvisor/policy.toml"),
    (DEVICES, "device list, before the file's: 0,2 or GPU-... or all or none"),
    (MODE, "enforce, audit or off, before the file's"),
    (AUDIT, "audit file, before the file's"),
    (SEAL, "1 or require: the kernel seal, before the file's"),
    (TRACE, "1: tell on stderr who initialises CUDA, and when; log: only in the audit file"),
    (DISABLE, "1: the library does nothing"),
    (PROC_ROOT, "folder that stands for / where GPUs are listed (for tests)"),
    (APPLIED, "written by the library: what was asked for, and what it made of that"),
    (
        SEALED,
        "written by the library: the device nodes that the process is sealed off from, and a mark of the devices that it keeps; believed only where the kernel shows the seal",
    ),
];

/// The policy file of a machine or an image.
pub const SYSTEM_POLICY: &str = "/etc/cuvisor/policy.toml";
/// The largest policy file that is read, in bytes.
pub const POLICY_LIMIT: usize = 4 << 20;
