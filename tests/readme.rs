//! The README's tables against the code.

use cuvisor_policy::names::VARIABLES;

#[test]
fn the_table_of_variables_is_that_of_the_code() {
    let readme = std::fs::read_to_string(crate::support::root().join("README.md")).unwrap();
    let section = readme.split("## Variables").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<_> = VARIABLES.iter().map(|(name, meaning)| format!("| `{name}` | {meaning} |")).collect();
    assert_eq!(rows, expected);
}

#[test]
fn the_policy_that_it_shows_is_sound() {
    let readme = std::fs::read_to_string(crate::support::root().join("README.md")).unwrap();
    let policy = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let child = crate::support::Child::new(&crate::support::artefacts().cuvisor).bare().args(["check", "policy.toml"]).policy(policy);
    let out = child.run();
    assert_eq!(out.code, Some(0), "{}", out.stdout);
    assert!(out.stdout.contains("policy.toml: 1 rule, 0 errors, "), "{}", out.stdout);
}

#[test]
fn every_command_is_in_it() {
    let readme = std::fs::read_to_string(crate::support::root().join("README.md")).unwrap();
    for command in ["run", "check", "explain", "report", "tail", "ps", "doctor"] {
        assert!(readme.contains(&format!("cuvisor {command}")), "{command}");
    }
}
