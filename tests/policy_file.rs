//! The policy file: what is refused, in which words, and what the process then gets.

use crate::support::Child;

/// File, then place, message, text and remedy as the program sees them.
const BAD: [(&str, &str); 37] = [
    ("devices = [0]", "1:1: unknown key: `devices`; before the first table a policy has the keys mode and locked"),
    ("mode = enforce", "1:8: unknown mode: `enforce`; write \"enforce\", \"audit\" or \"off\""),
    ("mode = \"strict\"", "1:9: unknown mode: `strict`; write \"enforce\", \"audit\" or \"off\""),
    ("mode = \"audit\"\nmode = \"audit\"", "2:1: this key stands twice in its table: `mode`; remove one of the two"),
    ("mode", "1:1: this is neither [table] nor key = value: `mode`; write key = value, or begin the line with # for a comment"),
    ("mode =", "1:1: a key without a value: `mode`; write a value after the = sign"),
    ("mode = \"audit\" x", "1:16: unexpected text at the end of the line: `x`; put it on a line of its own, or # before a comment"),
    ("mode = \"audit", "1:8: a string without its closing quote: `\"audit`; close it on the same line"),
    (
        "mode = \"au\\u0064it\"",
        "1:9: a backslash in a string with double quotes: `au\\u0064it`; use single quotes: they take a backslash as it is",
    ),
    (
        "audit.file = \"/a\"",
        "1:1: a key with quotes or dots: `audit.file = \"/a\"`; write the plain key below its table: [audit], then file = \"...\"",
    ),
    (
        "audit = { file = \"/a\" }",
        "1:9: a table in braces: `{ file = \"/a\" }`; write the table's name in brackets on a line of its own, and its keys below",
    ),
    ("locked = \"yes\"", "1:11: this must be true or false: `yes`; write true or false without quotes"),
    ("[defaults]", "1:2: unknown table: `defaults`; a policy has the tables [audit], [default] and [[rule]]"),
    ("[default]\n[default]", "2:2: this table stands twice: `default`; join the two"),
    ("[rule]", "1:2: a rule is one of many: `rule`; write [[rule]]"),
    ("[[audit]]", "1:3: this table stands only once in a policy: `audit`; write it in single brackets"),
    ("[default", "1:1: this is neither [table] nor key = value: `[default`; write key = value, or begin the line with # for a comment"),
    ("[default]\nvisible_device = \"0\"", "2:1: unknown key: `visible_device`; [default] has the keys devices, request, emit and seal"),
    (
        "[default]\ndevices = [0, 1, 0]",
        "2:18: names the same device as an earlier element (the driver would fail with error 101): `0`; remove one of the two",
    ),
    (
        "[default]\ndevices = [\"GPU-11\", 1]",
        "2:22: a second kind of name in one list (the driver reads only the first kind): `1`; write all devices in one way, or let Cuvisor translate with emit = \"uuid\"",
    ),
    ("[default]\ndevices = [\"all\"]", "2:13: \"all\" inside a list: `all`; write devices = \"all\" alone, or leave it out"),
    ("[default]\ndevices = [\"'0'\"]", "2:13: quotation marks inside a device name: `'0'`; write only the index or UUID"),
    ("[default]\ndevices = [\"[0]\"]", "2:13: brackets inside a device name: `[0]`; write only the index or UUID"),
    ("[default]\ndevices = [\"0-2\"]", "2:13: a range of devices: `0-2`; write each index: 0, 1, 2"),
    ("[default]\ndevices = [0-2]", "2:12: a range of devices: `0-2`; write each index: 0, 1, 2"),
    ("[default]\ndevices = [-1]", "2:12: a negative index: `-1`; write devices = \"none\" for no device"),
    ("[default]\ndevices = [0x1]", "2:12: an index in hexadecimal (the driver would read 0): `0x1`; write the index in decimal"),
    ("[default]\ndevices = [GPU-11]", "2:12: a word without quotes: `GPU-11`; write it in quotes"),
    ("[default]\ndevices = \"0,1\"", "2:12: a device list in one string: `0,1`; write an array: devices = [0, 1]"),
    ("[default]\ndevices = 0", "2:11: a device list in one string: `0`; write an array: devices = [0, 1]"),
    ("[default]\ndevices = []", "2:12: an empty device list; write devices = \"none\" for no device"),
    ("[default]\ndevices = [0 1]", "2:14: elements must be separated by one comma: `1`; write [a, b]"),
    ("[default]\ndevices = [0,\n\n[audit]\nfile = \"/a\"", "4:1: a list inside a list: `[`; write the elements in one list"),
    (
        "[default]\ndevices = [\"0000:3b:00.0\"]",
        "2:13: the driver does not read PCI bus ids: `0000:3b:00.0`; let Cuvisor translate with emit = \"uuid\" or emit = \"index\"",
    ),
    ("[audit]\nfile = \"audit.jsonl\"", "2:9: the audit file must be an absolute path: `audit.jsonl`; begin it with /"),
    ("[audit]\nfile = \"/var/{user}\"", "2:9: unknown placeholder in a file name: `/var/{user}`; only {uid} and {pid} are replaced"),
    ("[[rule]]\nuser = [\"a\"]", "1:3: this rule does not say which devices: `rule`; add devices = [...], \"all\" or \"none\""),
];

/// Runs a program under a broken file and compares all that it sees and leaves.
#[track_caller]
fn denied(file: &str, message: &str) {
    let child = Child::prog("handle", ["env:CUDA_VISIBLE_DEVICES", "init", "init", "count"]).policy(file);
    let audit = child.path("audit.jsonl");
    let policy = child.path("policy.toml").display().to_string();
    let out = child.env("CUVISOR_AUDIT", audit).run();
    assert_eq!(out.stdout, "CUDA_VISIBLE_DEVICES=\ninit 100\ninit 100\ncount 3 untouched\n", "{file}");
    assert_eq!(out.stderr, format!("cuvisor: no GPU for this process: {policy}:{message}\n"), "{file}");
    assert_eq!(out.event("policy_error")["reason"], format!("{policy}:{message}"), "{file}");
    assert_eq!(out.event("policy_error")["outcome"], "denied");
}

#[test]
fn what_a_policy_does_not_have_denies_the_gpus_and_is_told_with_its_place() {
    for (file, message) in BAD {
        denied(file, message);
    }
}

#[test]
fn a06_an_element_that_the_driver_would_stop_at_is_refused_with_its_place() {
    let list = |list: &str| format!("[default]\ndevices = {list}\n");
    denied(&list("[0, 2, -1, 1]"), "2:18: a negative index: `-1`; write devices = \"none\" for no device");
    denied(
        &list("[0, \"one\", 1]"),
        "2:16: no index, UUID or PCI bus id: `one`; write an index, GPU-..., MIG-... or a PCI bus id such as 0000:3b:00.0",
    );
}

#[test]
fn a07_what_the_driver_would_only_tolerate_is_refused() {
    let list = |element: &str| format!("[default]\ndevices = ['{element}']\n");
    let number = "write the number alone, and a comma between two devices";
    denied(&list("1gpu2"), &format!("2:13: something after the number (the driver would ignore it): `1gpu2`; {number}"));
    denied(&list("0;1"), &format!("2:13: something after the number (the driver would ignore it): `0;1`; {number}"));
    denied(&list(" 0"), "2:13: a blank inside a device name: ` 0`; write one device for each element, without blanks");
    denied(&list("+0"), "2:13: a sign before an index: `+0`; write the plain number");
    // Blanks and a line's end around the elements of a variable do not matter.
    let out = Child::prog("handle", ["init", "get:0", "get:1"]).devices(" 0, 1\n").run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-00000000\nget 1 0 GPU-11111111\n");
}

#[test]
fn a17_a_mistyped_key_or_a_table_twice_is_not_overlooked() {
    denied(
        "[default]\nvisible_device = \"0\"\n",
        "2:1: unknown key: `visible_device`; [default] has the keys devices, request, emit and seal",
    );
    denied("[audit]\n[default]\n[audit]\n", "3:2: this table stands twice: `audit`; join the two");
}

#[test]
fn a_policy_that_is_named_and_cannot_be_read_denies_too() {
    for path in ["/nowhere/policy.toml", "", "/etc"] {
        let out = Child::prog("handle", ["init"]).env("CUVISOR_POLICY", path).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(0), "init 100\n"), "{path}");
        assert!(out.stderr.starts_with("cuvisor: no GPU for this process: ") && out.stderr.lines().count() == 1, "{}", out.stderr);
    }
    for (name, value) in [("CUVISOR_MODE", "strict"), ("CUVISOR_DEVICES", "0,,1"), ("CUVISOR_DEVICES", ""), ("CUVISOR_AUDIT", "relative")] {
        let out = Child::prog("handle", ["init"]).env("CUVISOR_DEVICES", "1").env(name, value).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(0), "init 100\n"), "{name}={value}");
        assert!(out.stderr.starts_with(&format!("cuvisor: no GPU for this process: {name}: ")), "{}", out.stderr);
    }
}

#[test]
fn every_key_is_optional_and_a_sound_policy_is_read_in_full() {
    for file in ["", "# nothing\n", "\u{feff}mode = 'enforce'\r\n"] {
        let out = Child::prog("handle", ["init", "count"]).policy(file).run();
        assert_eq!(out.told(), "init 0\ncount 0 4\n", "{file}");
    }
    let file =
        "mode = \"enforce\" # a comment\n\n[default]\ndevices = [\n  3, # one\n  \"1\",\n]\n[audit]\ncalls = \"first\"\nfile = 'AUDIT'\n";
    let out = Child::prog("handle", ["init", "get:0", "get:1"]).policy(file).run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-33333333\nget 1 0 GPU-11111111\n");
    let out = Child::prog("handle", ["init", "count"]).policy("mode = \"off\"\n[default]\ndevices = \"none\"\n").run();
    assert_eq!(out.told(), "init 0\ncount 0 4\n");
}

#[test]
fn variables_go_before_the_file() {
    let file = "mode = \"enforce\"\n[audit]\nfile = \"DIR/from_file\"\n[default]\ndevices = [3]\n";
    let child = Child::prog("handle", ["init", "get:0"]).policy(file);
    let audit = child.path("audit.jsonl");
    let out = child.env("CUVISOR_DEVICES", "2").env("CUVISOR_AUDIT", audit).run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-22222222\n");
    assert_eq!(out.names(), ["init", "device", "exit"]);
    let out = Child::prog("handle", ["init", "count"]).policy(file).env("CUVISOR_MODE", "off").run();
    assert_eq!(out.told(), "init 0\ncount 0 4\n");
}
