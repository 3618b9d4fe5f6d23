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
