//! Clients of the driver API that nobody here wrote.

use crate::support::{Child, root, skip};

#[test]
fn the_cudarc_crate_sees_what_the_policy_gives() {
    // Cargo builds the example beside the tests.
    let example = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/cudarc_client");
    let out = Child::new(&example).devices("2").run();
    assert_eq!(out.told(), "count Ok(1)\nuuid 22222222\n");
    assert_eq!(out.names(), ["init", "device", "context", "exit"]);
    let out = Child::new(&example).devices("none").run();
    assert_eq!(out.told(), "count Err(100)\nerror 100\n");
}

#[test]
fn cuda_bindings_sees_what_the_policy_gives() {
    let python = root().join("target/venv/bin/python3");
    let script = root().join("tests/callers/bindings_client.py").display().to_string();
    let installed = std::process::Command::new(&python).args(["-c", "import cuda.bindings.driver"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return skip(
            "cuda_bindings_sees_what_the_policy_gives",
            "cuda-bindings is not in target/venv; scripts/test.sh installs it from PyPI",
        );
    }
    let out = Child::new(&python).arg(&script).devices("3").run();
    assert_eq!(out.told(), "init 0\ncount 0 1\nuuid 33333333\ncontext 0\n");
    assert_eq!(out.names(), ["init", "device", "context", "exit"]);
    assert_eq!(out.event("context")["device"]["pci"], "0000:13:00.0");
    let out = Child::new(&python).arg(&script).devices("none").run();
    assert_eq!(out.told(), "init 100\ncount 3 None\n");
}
