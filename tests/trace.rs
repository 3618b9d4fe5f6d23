//! The trace: who initialised CUDA, from which line of Python, and when.

use crate::support::{Child, Output, artefacts, python, pythons, skip};
use std::path::Path;

/// A program whose import initialises CUDA, and which sets the variable afterwards.
fn project(dir: &Path) {
    let package = dir.join("site-packages/flash_attn");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(
        package.join("__init__.py"),
        "import ctypes\n\
         driver = ctypes.CDLL('libcuda.so.1')\n\
         locked = ctypes.PyDLL('libcuda.so.1')\n\
         def init():\n    driver.cuInit(0)\n\
         init()\n",
    )
    .unwrap();
    let train = "import os, sys, ctypes\n\
         sys.path.insert(0, 'site-packages')\n\
         import flash_attn\n\
         os.environ['CUDA_VISIBLE_DEVICES'] = '3'\n\
         flash_attn.locked.cuInit(0)\n\
         flash_attn.driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)\n";
    std::fs::write(dir.join("train.py"), train).unwrap();
}

/// A trace with process ids and times left out.
fn plain(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("cuvisor[") {
        Some(rest) => {
            let (pid, rest) = rest.split_once("] ").unwrap();
            let (seconds, rest) = rest.split_once(" s ").unwrap();
            assert!(pid.parse::<u32>().is_ok() && seconds.parse::<f64>().is_ok_and(|s| s < 60.0), "{line}");
            format!("{rest}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn traced(interpreter: &str) -> Output {
    let child = Child::new(interpreter).arg("train.py").env("PYTHONDONTWRITEBYTECODE", "1");
    project(child.dir.path());
    child.devices("1").env("CUDA_VISIBLE_DEVICES", "0").env("CUVISOR_TRACE", "1").run()
}

/// The library that ctypes calls through: libffi, or _ctypes where that has it inside.
fn without_caller(text: &str) -> String {
    let line = |line: &str| match line.split_once(" by ") {
        Some((before, after)) => {
            let (caller, rest) = after.split_once(' ').unwrap_or((after, ""));
            assert!(caller.starts_with("libffi.so") || caller.starts_with("_ctypes"), "{line}");
            format!("{before} by ctypes {rest}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn the_line_names_the_import_that_did_it_under_every_python_with_and_without_its_lock() {
    let expected = "CUDA_VISIBLE_DEVICES: at the start \"0\", the program's own now \"0\", in force \"1\"\n\
        cuInit -> 0 (1 GPU) by ctypes from flash_attn/__init__.py:5 from flash_attn/__init__.py:6 from train.py:3\n\
        CUDA_VISIBLE_DEVICES was changed from \"1\" to \"3\" after cuInit, without effect; noticed now from train.py:5\n\
        CUDA_VISIBLE_DEVICES: at the start \"0\", the program's own now \"3\", in force \"1\"\n\
        cuInit -> 0 (1 GPU) by ctypes from train.py:5\n\
        cuDevicePrimaryCtxRetain GPU 0 (GPU-11111111-0000-4000-8000-000000000001) -> 0 by ctypes from train.py:6\n";
    let all = pythons();
    for interpreter in all {
        let out = traced(interpreter);
        assert_eq!(out.code, Some(0), "{interpreter}: {out:?}");
        assert_eq!(without_caller(&plain(&out.stderr)), expected, "{interpreter}");
    }
    if all.len() == 1 {
        skip(
            "the_line_names_the_import_that_did_it_under_every_python_with_and_without_its_lock",
            "only one Python is installed; that one passed",
        );
    }
}

#[test]
fn the_log_has_the_stack_with_the_innermost_frame_last() {
    let out = traced(python());
    let inits: Vec<_> = out.events.iter().filter(|event| event["event"] == "init").collect();
    let frames = ["train.py:3", "flash_attn/__init__.py:6", "flash_attn/__init__.py:5"];
    assert_eq!(inits[0]["stack"], serde_json::json!(frames));
    assert!(inits[0]["process_seconds"].as_f64().is_some_and(|s| s < 60.0));
    let late = out.event("late_change");
    assert_eq!(late["stack"], serde_json::json!(["train.py:5"]));
    assert!(out.event("exit").get("stack").is_none());
}

#[test]
fn the_policy_can_ask_for_the_stack_in_the_log_and_stderr_stays_empty() {
    let child = Child::new(python()).arg("train.py").policy("[audit]\nfile = \"AUDIT\"\nstack = true\n[default]\ndevices = [1]\n");
    project(child.dir.path());
    let out = child.run();
    out.told();
    assert_eq!(out.events[0]["stack"][0], "train.py:3");
    let out = Child::prog("handle", ["init"]).policy("[audit]\nfile = \"AUDIT\"\nstack = true\n").run();
    assert!(out.event("init").get("stack").is_none() && out.event("init")["process_seconds"].is_number());
}

#[test]
fn without_a_trace_nothing_is_told() {
    let child = Child::new(python()).arg("train.py").devices("1").env("CUVISOR_TRACE", "yes");
    project(child.dir.path());
    let out = child.run();
    out.told();
    assert!(out.event("late_change").get("stack").is_none() && out.event("late_change").get("process_seconds").is_none());
}

#[test]
fn every_cuinit_is_told_and_a_program_that_is_not_python_has_no_stack() {
    let out = Child::prog("handle", ["init", "init", "set:CUDA_VISIBLE_DEVICES=9", "get:0", "retain:0", "find:no_such"])
        .env("CUVISOR_TRACE", "1")
        .run();
    let expected = "cuInit -> 0 (4 GPUs) by prog\n\
        cuInit -> 0 (4 GPUs) by prog\n\
        CUDA_VISIBLE_DEVICES was changed from unset to \"9\" after cuInit, without effect; noticed now\n\
        cuDevicePrimaryCtxRetain GPU 0 (GPU-00000000-0000-4000-8000-000000000000) -> 0 by prog\n";
    assert_eq!(plain(&out.stderr), expected);
    assert!(out.stdout.contains("no_such"), "dlerror is the program's own: {}", out.stdout);
}

#[test]
fn a_denied_call_and_a_failed_one_are_told() {
    let out =
        Child::prog("handle", ["behind", "retain:0", "retain:7"]).devices("1").env("CUDA_VISIBLE_DEVICES", "").env("CUVISOR_TRACE", "1");
    let out = out.env("FAKE_CUDA_IGNORE_CVD", "1").run();
    assert!(plain(&out.stderr).starts_with("denied: cuDevicePrimaryCtxRetain GPU 0 (GPU-00000000-0000-4000-8000-000000000000) -> 46 CUDA_ERROR_DEVICE_UNAVAILABLE by prog\n"), "{out:?}");
}

#[test]
fn a_thread_that_runs_no_python_is_told_as_such() {
    let script = "import ctypes\n\
        driver = ctypes.CDLL('libcuda.so.1')\n\
        libc = ctypes.CDLL(None)\n\
        thread = ctypes.c_ulong()\n\
        libc.pthread_create(ctypes.byref(thread), None, driver.cuInit, None)\n\
        libc.pthread_join(thread, None)\n";
    let out = Child::new(python()).args(["-c", script]).env("CUVISOR_TRACE", "1").run();
    assert_eq!(plain(&out.stderr), "cuInit -> 0 (4 GPUs) by libc.so.6 (no Python stack: this thread runs no Python)\n");
}

#[test]
fn a_deep_stack_keeps_its_ends() {
    let script = "import ctypes\n\
        def f(n):\n    return f(n - 1) if n else ctypes.CDLL('libcuda.so.1').cuInit(0)\n\
        f(40)\n";
    let out = Child::new(python()).args(["-c", script]).devices("1").env("CUVISOR_TRACE", "1").run();
    let inner = " from <string>:3".repeat(12);
    let outer = format!("{} from <string>:4\n", " from <string>:3".repeat(5));
    assert!(
        without_caller(&plain(&out.stderr)).ends_with(&format!("by ctypes from <string>:3{} from ...{outer}", &inner[16..])),
        "{}",
        out.stderr
    );
    let stack = out.event("init")["stack"].as_array().unwrap().clone();
    assert_eq!((stack.len(), &stack[0], &stack[6]), (19, &"<string>:4".into(), &"...".into()));
}

#[test]
fn a_locked_or_switched_off_policy_does_not_keep_a_trace_away() {
    let policy = "locked = true\n[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [1]\n";
    let out = Child::prog("handle", ["init", "count"]).policy(policy).env("CUVISOR_TRACE", "1").run();
    assert_eq!(
        plain(&out.stderr),
        "CUDA_VISIBLE_DEVICES: at the start unset, the program's own now unset, in force \"1\"\ncuInit -> 0 (1 GPU) by prog\n"
    );
    let out = Child::prog("handle", ["init"]).policy("mode = \"off\"\n[audit]\nfile = \"AUDIT\"\n").env("CUVISOR_TRACE", "1").run();
    assert_eq!((plain(&out.stderr).as_str(), out.events.len()), ("cuInit -> 0 (4 GPUs) by prog\n", 0));
}

#[test]
fn text_of_the_program_cannot_move_the_cursor() {
    let out = Child::prog("handle", ["set:CUDA_VISIBLE_DEVICES=\u{1b}[2J\n0", "init"]).env("CUVISOR_TRACE", "1").run();
    let expected = "CUDA_VISIBLE_DEVICES: at the start unset, the program's own now \"?[2J?0\", in force \"?[2J?0\"\n\
        cuInit -> 100 CUDA_ERROR_NO_DEVICE by prog\n";
    assert_eq!(plain(&out.stderr), expected);
}

fn run(arguments: &[&str]) -> Output {
    let child = Child::new(&artefacts().cuvisor).bare().arg("run").args(arguments.iter().copied());
    project(child.dir.path());
    child.env("TMPDIR", "").env("PYTHONDONTWRITEBYTECODE", "1").run()
}

#[test]
fn run_traces_without_a_policy() {
    let out = run(&["--trace", "-d", "2", "--", python(), "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]);
    let text = without_caller(&plain(&out.stderr));
    assert!(text.ends_with("cuInit -> 0 (1 GPU) by ctypes from <string>:1\n"), "{out:?}");
}

#[test]
fn run_expects_no_cuda() {
    let out = run(&["--expect-no-cuda", "--", python(), "train.py"]);
    assert_eq!(out.code, Some(3), "{out:?}");
    let line = out.stderr.strip_prefix("cuvisor: CUDA was not expected: python3.").unwrap();
    assert!(line.contains(" train.py (pid ") && line.contains(" s cuInit -> 100 CUDA_ERROR_NO_DEVICE by "), "{line}");
    assert!(
        line.ends_with(" from flash_attn/__init__.py:5 from flash_attn/__init__.py:6 from train.py:3\n") && line.lines().count() == 1,
        "{line}"
    );
    let grandchild = format!("{} train.py; exit 5", python());
    let out = run(&["--expect-no-cuda", "sh", "-c", &format!("sh -c '{grandchild}'; exit 6")]);
    assert_eq!(out.code, Some(3), "children are covered: {out:?}");
    for (script, code) in [("exit 5", 5), ("kill -9 $$", 137), ("exit 0", 0)] {
        let out = run(&["--expect-no-cuda", "sh", "-c", script]);
        assert_eq!((out.code, out.stderr.as_str()), (Some(code), ""), "{script}");
    }
    let out = run(&["--expect-no-cuda", "no-such-program"]);
    assert_eq!((out.code, out.stderr.as_str()), (Some(127), "cuvisor: no-such-program: No such file or directory (os error 2)\n"));
    let out = run(&["--expect-no-cuda", "--devices", "1", "true"]);
    assert_eq!(out.code, Some(2), "{out:?}");
}
