//! The example that ships the audit file: its configuration is sound, and ClickHouse takes real lines into its table.

use crate::support::{Child, root, skip};
use std::process::Command;

fn python(modules: &str, name: &str) -> Option<std::path::PathBuf> {
    let python = root().join("target/venv/bin/python3");
    let found = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    if found.is_ok_and(|out| out.status.success()) {
        return Some(python);
    }
    skip(name, &format!("{modules} is not in target/venv; scripts/test.sh installs it from PyPI"));
    None
}

#[test]
fn the_configuration_is_yaml_and_reads_the_documented_place() {
    let Some(python) = python("yaml", "the_configuration_is_yaml_and_reads_the_documented_place") else { return };
    let script = "import sys, yaml; c = yaml.safe_load(open(sys.argv[1])); i, o = c['pipeline']['inputs'][0], c['pipeline']['outputs'][0]; \
                  print(i['path'], i['parser'] == c['parsers'][0]['name'], o['match'] == i['tag'], 'cuvisor.events' in o['uri'])";
    let out = Command::new(python).args(["-c", script]).arg(root().join("scripts/shipping/fluent-bit.yaml")).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "/var/log/cuvisor/*.jsonl True True True\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn clickhouse_takes_real_lines() {
    let Some(python) = python("chdb", "clickhouse_takes_real_lines") else { return };
    let child = Child::prog("v2", ["init", "get:0", "retain:0", "set:CUDA_VISIBLE_DEVICES=7", "retain:0"]).devices("1,2");
    let dir = child.dir.path().to_owned();
    let mut child = child;
    child.start().wait_with_output().unwrap();
    let script = "import sys\nfrom chdb import session\ns = session.Session(sys.argv[3])\n\
        for statement in open(sys.argv[1]).read().split(';'):\n    text = '\\n'.join(l for l in statement.splitlines() if not l.startswith('--'))\n    if text.strip():\n        s.query(text)\n\
        s.query(\"INSERT INTO cuvisor.events SETTINGS input_format_skip_unknown_fields=1, date_time_input_format='best_effort' FORMAT JSONEachRow \" + open(sys.argv[2]).read())\n\
        print(s.query('SELECT event, device.uuid, length(devices), effective FROM cuvisor.events ORDER BY time', 'TSV'), end='')";
    let out = Command::new(python)
        .args(["-c", script])
        .arg(root().join("scripts/shipping/clickhouse.sql"))
        .arg(dir.join("audit.jsonl"))
        .arg(dir.join("clickhouse"))
        .output()
        .unwrap();
    let expected = "init\t\\N\t2\t1,2\ndevice\tGPU-11111111-0000-4000-8000-000000000001\t0\t\\N\ncontext\tGPU-11111111-0000-4000-8000-000000000001\t0\t\\N\n\
                    late_change\t\\N\t0\t\\N\nexit\t\\N\t0\t\\N\n";
    assert_eq!(String::from_utf8_lossy(&out.stdout), expected, "{}", String::from_utf8_lossy(&out.stderr));
}
