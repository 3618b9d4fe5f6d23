//! The library as a file: what it needs, what it exports, what it costs in system calls.

use crate::support::{Child, artefacts, python, skip};
use std::process::Command;

fn readelf(flag: &str) -> String {
    let out = Command::new("readelf").args([flag, "-W"]).arg(&artefacts().library).output().expect("readelf of binutils");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn b25_it_needs_libc_alone_and_has_sound_segments() {
    let dynamic = readelf("-d");
    let needed: Vec<_> = dynamic.lines().filter(|l| l.contains("NEEDED")).map(|l| l.split(['[', ']']).nth(1).unwrap()).collect();
    assert_eq!(needed, ["libc.so.6"]);
    assert!(
        !dynamic.contains("TEXTREL") && !dynamic.contains("RUNPATH") && !dynamic.contains("RPATH") && !dynamic.contains("INITFIRST"),
        "{dynamic}"
    );
    assert!(dynamic.contains("BIND_NOW"));
    let segments = readelf("-l");
    assert!(!segments.contains(" TLS "), "{segments}");
    let stack = segments.lines().find(|l| l.contains("GNU_STACK")).unwrap();
    assert!(stack.contains(" RW ") && !stack.contains("RWE"), "{stack}");
    assert!(segments.contains("GNU_RELRO"));
}

#[test]
fn b06_the_highest_glibc_version_is_the_documented_one() {
    let versions = readelf("-V");
    let highest = versions.split("GLIBC_").skip(1).filter_map(|t| {
        let digits: String = t.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let mut parts = digits.split('.').filter_map(|p| p.parse::<u32>().ok());
        Some((parts.next()?, parts.next()?))
    });
    assert!(highest.max().unwrap() <= (2, 17), "{versions}");
}

#[test]
fn b25_the_exports_are_the_table_and_nothing_else() {
    let out = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(&artefacts().library)
        .output()
        .expect("nm of binutils");
    let exported: Vec<_> = String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect();
    let table = std::fs::read_to_string(crate::support::root().join("src/preload/src/table.rs")).unwrap();
    let mut expected: Vec<String> =
        table.split("c\"").skip(1).filter_map(|t| Some(t.split_once('"')?.0.to_owned())).filter(|t| !t.is_empty()).collect();
    expected.extend(["dlsym".into(), "cuvisor_marker".into()]);
    expected.sort();
    assert_eq!(exported, expected);
    // The assembly of `dlsym` leaves names with other beginnings to the C library.
    let known = |name: &&String| ["cuIn", "cuDe", "cuCt", "cuGe", "dlsym", "cuvisor_marker"].iter().any(|start| name.starts_with(start));
    assert_eq!(exported.iter().filter(known).count(), exported.len());
    assert_eq!(exported.len(), 13);
}

#[test]
fn it_works_with_immediate_binding() {
    let out = Child::prog("linked", ["init", "get:0"]).env("LD_BIND_NOW", "1").devices("1").run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\n");
}

/// How many system calls a command makes with a library preloaded.
fn calls(command: &[&str], library: &std::path::Path, prepare: impl FnOnce(Child) -> Child) -> Option<usize> {
    let child = Child::new("strace").args(["-f", "-o", "trace", "-E"]).arg(format!("LD_PRELOAD={}", library.display()));
    let mut child = prepare(child.bare().args(command.iter().copied()));
    let trace = child.path("trace");
    child.start().wait_with_output().ok()?.status.success().then_some(())?;
    let text = std::fs::read_to_string(trace).ok()?;
    Some(text.lines().filter(|line| line.contains('(')).count())
}

#[test]
fn a_start_makes_few_system_calls_more_than_with_an_empty_library() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("a_start_makes_few_system_calls_more_than_with_an_empty_library", "strace is not installed");
    }
    let empty = artefacts().callers.join("libempty.so");
    for (command, most) in [(&[python(), "-S", "-c", "pass"][..], 12), (&["/bin/true"], 9)] {
        let policy = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [1]\n";
        let base = calls(command, &empty, |c| c.policy(policy).env("CUDA_VISIBLE_DEVICES", "0")).unwrap();
        let ours = calls(command, &artefacts().library, |c| c.policy(policy).env("CUDA_VISIBLE_DEVICES", "0")).unwrap();
        assert!(ours <= base + most, "{command:?}: {ours} against {base}");
    }
}

#[test]
fn a_process_without_cuda_loads_nothing_and_opens_no_device() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("a_process_without_cuda_loads_nothing_and_opens_no_device", "strace is not installed");
    }
    let library = format!("LD_PRELOAD={}", artefacts().library.display());
    let child = Child::new("strace").args([
        "-f",
        "-o",
        "trace",
        "-e",
        "trace=openat,open,clone,clone3,write",
        "-E",
        &library,
        python(),
        "-c",
        "pass",
    ]);
    let mut child = child.bare().devices("1");
    child.start().wait_with_output().unwrap();
    let text = std::fs::read_to_string(child.path("trace")).unwrap();
    assert!(text.contains("libcuvisor.so"));
    for word in ["libcuda", "nvidia", "clone(", "clone3(", "write("] {
        assert!(!text.contains(word), "{word}: {text}");
    }
}
