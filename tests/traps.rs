//! README's guide "Why CUDA_VISIBLE_DEVICES is ignored": each row is a program of tests/traps, run on the fake
//! driver without Cuvisor and with it, and the table says what it printed.

use crate::support::{Child, artefacts, python, root, skip};

/// A Python that has the packages for the notebook row.
fn notebook_python() -> Option<String> {
    let venv = root().join("target/venv/bin/python3").display().to_string();
    let has = |python: &String| {
        let out = std::process::Command::new(python).args(["-c", "import ipykernel, jupyter_client"]).output();
        out.is_ok_and(|out| out.status.success())
    };
    [venv, python().to_owned()].into_iter().find(has)
}

/// What a program printed, in the table's words.
fn words(line: &str) -> &str {
    match line {
        "GPU-11111111" => "right",
        "GPU-00000000" => "**the wrong GPU**",
        other => other,
    }
}

fn run(interpreter: &str, name: &str, kind: &str, held: bool) -> String {
    let program = root().join(format!("tests/traps/{name}.py"));
    let child =
        if held { Child::new(&artefacts().cuvisor).args(["run", "--devices", "1", "--", interpreter]) } else { Child::new(interpreter) };
    let home = child.dir.path().to_owned();
    let child = child.bare().arg(program).env("HOME", home).env("PYTHONDONTWRITEBYTECODE", "1");
    let child = child.env("TRAP_RIGHT", "1").env("TRAP_OTHER", "0");
    let child = if kind == "shell" { child.env("CUDA_VISIBLE_DEVICES", "1") } else { child };
    let out = child.run();
    assert_eq!(out.code, Some(0), "{name}: {out:?}");
    out.stdout.lines().last().unwrap_or_else(|| panic!("{name}: {out:?}")).to_owned()
}

#[test]
fn the_guide_tells_what_happens() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let rows = std::fs::read_to_string(root().join("tests/traps/rows.tsv")).unwrap();
    let notebook = notebook_python();
    let mut expected = Vec::new();
    for row in rows.lines() {
        let [name, kind, text] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let interpreter = match name {
            "notebook" => notebook.as_deref(),
            _ => Some(python()),
        };
        let Some(interpreter) = interpreter else {
            skip("the notebook row of the guide", "ipykernel and jupyter_client are not installed");
            continue;
        };
        let (bare, held) = (run(interpreter, name, kind, false), run(interpreter, name, kind, true));
        assert!(held == "GPU-11111111" || name == "beyond", "{name}: {held}");
        expected.push(format!("| {text} | {} | {} |", words(&bare), words(&held)));
    }
    let missing: Vec<_> = expected.iter().filter(|line| !readme.contains(line.as_str())).collect();
    assert!(missing.is_empty(), "README's guide lacks these rows:\n{missing:#?}");
}
