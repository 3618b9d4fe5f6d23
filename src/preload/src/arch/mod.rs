//! The few instructions that no Rust function can express, a file for each processor.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
pub use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
compile_error!("libcuvisor.so is written for x86-64 Linux with glibc only: its hooks need assembly that was tested there and nowhere else");
