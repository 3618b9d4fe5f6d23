//! `cuvisor report` and `cuvisor tail`, over files that real children wrote and over files made for the purpose.

use crate::support::{Child, Output, artefacts, skip};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

fn cuvisor(arguments: &[&str], dir: &Path) -> Output {
    let child = Child::new(&artefacts().cuvisor).bare().args(arguments.iter().copied());
    let mut child = child;
    child.command().current_dir(dir);
    child.run()
}

/// A line of the audit file.
fn line(event: &str, time: &str, pid: u32, uid: u32, more: &str) -> String {
    format!(
        "{{\"schema\":\"cuvisor.audit/1\",\"time\":\"2026-11-01T{time}.000000Z\",\"event\":\"{event}\",\"outcome\":\"enforced\",\"pid\":{pid},\"ppid\":1,\
         \"start_time\":{pid},\"uid\":{uid},\"euid\":{uid},\"login_uid\":null,\"exe\":\"/usr/bin/python3.11\",\"argv\":[\"python3\",\"-u\",\"/x/train.py\"],\
         \"cwd\":\"/\",\"container\":null,\"cgroup\":\"/\",\"policy\":\"p\",\"rule\":null{more}}}\n"
    )
}

fn device(k: u32) -> String {
    format!(
        ",\"result\":0,\"result_name\":\"CUDA_SUCCESS\",\"call\":\"cuDeviceGet\",\"device\":{{\"ordinal\":0,\"uuid\":\"GPU-{k}\",\"pci\":null}}"
    )
}

/// Three processes: one on two GPUs to its end, one that is denied and killed, one that only calls cuInit.
fn sample() -> String {
    [
        line("init", "10:00:00", 1, 0, ",\"result\":0,\"request\":null,\"effective\":\"0,1\",\"devices\":[]"),
        line("device", "10:00:01", 1, 0, &device(0)),
        line("context", "10:00:02", 1, 0, &device(0)),
        line("context", "10:00:04", 1, 0, &device(1)),
        line("init", "10:00:05", 2, 1, ",\"result\":0,\"request\":\"7\",\"effective\":\"0\",\"devices\":[]"),
        line("context", "10:00:06", 2, 1, &device(0)),
        line("denied", "10:00:07", 2, 1, &device(1).replace("\"result\":0", "\"result\":46")),
        line("late_change", "10:00:08", 2, 1, ",\"old\":\"0\",\"new\":null,\"seconds\":3.0"),
        line("init", "10:00:09", 3, 1, ",\"result\":100,\"request\":\"\",\"effective\":\"\",\"devices\":[]"),
        line("exit", "10:00:10", 3, 1, ",\"seconds\":1.0"),
        line("exit", "10:00:12", 1, 0, ",\"seconds\":12.0,\"dropped\":2"),
    ]
    .concat()
}

fn folder(text: &str) -> tempfile::TempDir {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), text).unwrap();
    dir
}

#[test]
fn the_table_tells_gpu_program_and_user() {
    let dir = folder(&sample());
    let out = cuvisor(&["report", "a.jsonl"], dir.path());
    let expected = "\
GPU    program              user    processes  first use            last use             GPU-seconds  denied  late changes  no exit seen
-      python3.11 train.py  daemon          1  2026-11-01 10:00:09  2026-11-01 10:00:10          0.0       0             0             0
GPU-0  python3.11 train.py  root            1  2026-11-01 10:00:01  2026-11-01 10:00:12         10.0       0             0             0
GPU-0  python3.11 train.py  daemon          1  2026-11-01 10:00:06  2026-11-01 10:00:08          2.0       0             1             1
GPU-1  python3.11 train.py  root            1  2026-11-01 10:00:04  2026-11-01 10:00:12          8.0       0             0             0
GPU-1  python3.11 train.py  daemon          1  2026-11-01 10:00:07  2026-11-01 10:00:08          0.0       1             0             1
";
    assert_eq!(out.stdout, expected);
    assert_eq!(out.stderr, "cuvisor: 2 events could not be written when they happened, by the library's own count\n");
}

#[test]
fn rows_are_grouped_and_filtered_as_asked() {
    let dir = folder(&sample());
    let json = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let out = cuvisor(&[&["report", "--json", "a.jsonl"], arguments].concat(), dir.path());
        assert_eq!(out.code, Some(0), "{out:?}");
        serde_json::from_str(&out.stdout).unwrap()
    };
    let pairs = |rows: &[serde_json::Value], key: &str| {
        rows.iter().map(|r| format!("{} {}", r[key].as_str().unwrap_or("-"), r["processes"])).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&json(&["--by", "gpu"]), "gpu"), ["- 1", "GPU-0 2", "GPU-1 2"]);
    assert_eq!(pairs(&json(&["--by", "user"]), "user"), ["root 2", "daemon 3"]);
    assert_eq!(pairs(&json(&["--by", "exe"]), "program"), ["python3.11 train.py 5"]);
    assert_eq!(json(&["--by", "container"])[0]["container"], serde_json::Value::Null);
    assert_eq!(json(&["--by", "process"]).len(), 5);
    assert_eq!(pairs(&json(&["--by", "gpu", "--gpu", "GPU-1"]), "gpu"), ["GPU-1 2"]);
    assert_eq!(pairs(&json(&["--by", "user", "--user", "daemon"]), "user"), ["daemon 3"]);
    assert_eq!(pairs(&json(&["--by", "user", "--user", "1"]), "user"), ["daemon 3"]);
    assert_eq!(pairs(&json(&["--by", "gpu", "--denied"]), "gpu"), ["GPU-1 2"]);
    assert_eq!(pairs(&json(&["--by", "gpu", "--since", "2026-11-01T10:00:08Z"]), "gpu"), ["- 3"]);
    assert_eq!(pairs(&json(&["--by", "gpu", "--until", "2026-11-01T10:00:02Z"]), "gpu"), ["GPU-0 1"]);
    assert_eq!(json(&["--since", "2h"]).len(), usize::from(false));
    let out = cuvisor(&["report", "--csv", "--by", "gpu", "a.jsonl"], dir.path());
    assert_eq!(out.stdout.lines().nth(2), Some("GPU-0,,,,,2,2026-11-01 10:00:01,2026-11-01 10:00:12,12.0,0,1,1"));
}

#[test]
fn a_program_is_named_though_its_file_was_replaced_or_is_not_known() {
    let exe = |event: &str, exe: &str| line(event, "10:00:00", 1, 0, &device(0)).replace("\"/usr/bin/python3.11\"", exe);
    let names = ["\"/usr/bin/python3.11\"", "\"/usr/bin/python3.11 (deleted)\"", "null", "\"\""];
    let text: String =
        names.iter().zip(1..).map(|(name, pid)| exe("device", name).replace("\"pid\":1", &format!("\"pid\":{pid}"))).collect();
    let dir = folder(&text);
    let out = cuvisor(&["report", "--by", "exe", "--csv", "a.jsonl"], dir.path());
    let rows: Vec<_> = out.told().lines().skip(1).map(|row| row.split(',').take(6).collect::<Vec<_>>().join(",")).collect();
    assert_eq!(rows, [",python3 (exe unknown),,,,2", ",python3.11 train.py,,,,2"]);
    let tail = cuvisor(&["tail", "a.jsonl"], dir.path());
    let programs: Vec<_> = tail.told().lines().map(|line| line.contains("python3.11 train.py")).collect();
    assert_eq!(programs, [true, true, false, false], "{tail:?}");
}

#[test]
fn lines_come_from_the_standard_input_where_a_dash_stands() {
    let (head, tail) = {
        let text = sample();
        let at = text.len() / 2;
        (text[..at].to_owned(), text[at..].to_owned())
    };
    let dir = folder(&sample());
    let named = cuvisor(&["report", "--csv", "a.jsonl"], dir.path());
    let mut command = std::process::Command::new(&artefacts().cuvisor);
    command.args(["report", "--csv", "-"]).env_clear().env("TZ", "UTC").current_dir(dir.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // In two writes that cut a line.
    input.write_all(head.as_bytes()).unwrap();
    input.write_all(tail.as_bytes()).unwrap();
    input.write_all(b"no event\n").unwrap();
    drop(input);
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), named.stdout);
    let place = format!("-:{}: ", sample().lines().count() + 1);
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(told.starts_with(&format!("cuvisor: 1 lines are no events and were left out; the first: {place}")), "{told}");
}

#[test]
fn what_makes_no_sense_is_told() {
    let dir = folder("");
    let cases = [
        (
            &["report", "--since", "yesterday", "a.jsonl"][..],
            "--since yesterday: write 2h, 7d, 2026-12-01, 2026-12-01T08:00 or 2026-12-01T08:00:00Z",
        ),
        (&["report", "--user", "nobody-of-this-name", "a.jsonl"], "--user nobody-of-this-name: no such user in /etc/passwd; write the uid"),
        (&["report", "none.jsonl"], "none.jsonl: No such file or directory (os error 2)"),
    ];
    for (arguments, message) in cases {
        let out = cuvisor(arguments, dir.path());
        assert!(out.stderr.starts_with(&format!("cuvisor: {message}")), "{}", out.stderr);
        assert_eq!(out.code, Some(125));
    }
    assert_eq!(cuvisor(&["report", "a.jsonl"], dir.path()).stdout, "no event fits\n");
}

#[test]
fn lines_that_are_no_events_are_counted_and_shown_once() {
    let odd = ["not json\n", "{\"schema\":\"other/9\"}\n", "\n", "\u{0}\u{0}\n", "{\"schema\":\"cuvisor.audit/1\"}\n"];
    let dir = folder(&format!("{}{}{}", sample(), odd.concat(), &sample()[..100]));
    let out = cuvisor(&["report", "--by", "gpu", "a.jsonl"], dir.path());
    assert_eq!(out.code, Some(0));
    assert_eq!(out.stdout.lines().count(), 4);
    assert!(
        out.stderr.starts_with("cuvisor: 6 lines are no events and were left out; the first: a.jsonl:12: Invalid literal"),
        "{}",
        out.stderr
    );
}

#[test]
fn rotated_and_packed_files_are_read_without_being_named() {
    let dir = folder("");
    let all = sample();
    let (old, new) = all.split_at(all.match_indices('\n').nth(3).unwrap().0 + 1);
    let packed = std::fs::File::create(dir.path().join("a.jsonl.1.gz")).unwrap();
    let mut gzip = std::process::Command::new("gzip").arg("-c").stdin(std::process::Stdio::piped()).stdout(packed).spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(old.as_bytes()).unwrap();
    assert!(gzip.wait().unwrap().success());
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(dir.path().join("a.jsonl"), new).unwrap();
    std::fs::write(dir.path().join("policy.toml"), format!("[audit]\nfile = \"{}/a.jsonl\"\n", dir.path().display())).unwrap();
    let mut child = Child::new(&artefacts().cuvisor).bare().args(["report", "--by", "gpu", "--json"]);
    child.command().env("CUVISOR_POLICY", dir.path().join("policy.toml"));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&child.run().stdout).unwrap();
    assert_eq!(rows.iter().map(|r| r["gpu_seconds"].as_f64().unwrap()).collect::<Vec<_>>(), [0.0, 12.0, 8.0]);
}

#[test]
fn real_events_are_reported() {
    let child = Child::prog("v2", ["init", "get:0", "retain:0", "get:1"]).devices("1,2");
    let dir = child.dir.path().to_owned();
    let mut child = child;
    child.start().wait_with_output().unwrap();
    let out = cuvisor(&["report", "--json", "audit.jsonl"], &dir);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["gpu"], "GPU-11111111-0000-4000-8000-000000000001");
    assert_eq!((&rows[0]["program"], &rows[0]["no_exit_seen"]), (&"prog".into(), &0.into()));
    let out = cuvisor(&["tail", "-n", "2", "audit.jsonl"], &dir);
    let lines: Vec<_> = out.stdout.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].contains(" prog pid ") && lines[0].ends_with(": cuDeviceGet: CUDA_SUCCESS: GPU-22222222-0000-4000-8000-000000000002"),
        "{lines:?}"
    );
    assert!(lines[1].contains(": exit 0.") && lines[1].ends_with(" s after cuInit"), "{lines:?}");
}

#[test]
fn tail_shows_every_kind_of_event_in_a_line() {
    let dir = folder(&sample());
    let out = cuvisor(&["tail", "-n", "99", "a.jsonl"], dir.path());
    let expected = "\
2026-11-01 10:00:00  root python3.11 train.py pid 1: cuInit by ?: 0, asked for unset, got 0,1: no GPU
2026-11-01 10:00:01  root python3.11 train.py pid 1: cuDeviceGet: CUDA_SUCCESS: GPU-0
2026-11-01 10:00:02  root python3.11 train.py pid 1: cuDeviceGet: CUDA_SUCCESS: GPU-0
2026-11-01 10:00:04  root python3.11 train.py pid 1: cuDeviceGet: CUDA_SUCCESS: GPU-1
2026-11-01 10:00:05  daemon python3.11 train.py pid 2: cuInit by ?: 0, asked for 7, got 0: no GPU
2026-11-01 10:00:06  daemon python3.11 train.py pid 2: cuDeviceGet: CUDA_SUCCESS: GPU-0
2026-11-01 10:00:07  daemon python3.11 train.py pid 2: cuDeviceGet denied with CUDA_SUCCESS: GPU-1: 
2026-11-01 10:00:08  daemon python3.11 train.py pid 2: CUDA_VISIBLE_DEVICES changed from 0 to unset 3.0 s after cuInit: the driver ignores it
2026-11-01 10:00:09  daemon python3.11 train.py pid 3: cuInit by ?: 100, asked for \"\", got \"\": no GPU
2026-11-01 10:00:10  daemon python3.11 train.py pid 3: exit 1.0 s after cuInit
2026-11-01 10:00:12  root python3.11 train.py pid 1: exit 12.0 s after cuInit
";
    assert_eq!(out.told(), expected);
}

#[test]
fn tail_follows_a_file_through_its_rotation() {
    let dir = folder(&line("exit", "10:00:00", 1, 0, ",\"seconds\":1.0"));
    let path = dir.path().join("a.jsonl");
    let mut child = Child::new(&artefacts().cuvisor).bare().args(["tail", "-f"]).arg(&path);
    let mut process = child.start();
    let mut reader = std::io::BufRead::lines(std::io::BufReader::new(process.stdout.take().unwrap()));
    assert!(reader.next().unwrap().unwrap().contains("pid 1: exit 1.0 s"));
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(line("exit", "10:00:01", 2, 0, ",\"seconds\":2.0").as_bytes())
        .unwrap();
    assert!(reader.next().unwrap().unwrap().contains("pid 2: exit 2.0 s"));
    std::fs::rename(&path, dir.path().join("a.jsonl.1")).unwrap();
    std::fs::write(&path, line("exit", "10:00:02", 3, 0, ",\"seconds\":3.0")).unwrap();
    assert!(reader.next().unwrap().unwrap().contains("pid 3: exit 3.0 s"));
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn the_page_draws_a_bar_for_each_process_in_a_real_browser() {
    let nasty = line("context", "10:00:20", 9, 0, &device(5)).replace("train.py", "</script><b>&");
    let dir = folder(&format!("{}{nasty}", sample()));
    let out = cuvisor(&["report", "--html", "page.html", "a.jsonl"], dir.path());
    assert_eq!(out.code, Some(0), "{out:?}");
    let page = dir.path().join("page.html");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(
        !text.contains("http://") || text.matches("http://").count() == text.matches("http://www.w3.org/2000/svg").count(),
        "no network"
    );
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|b| std::process::Command::new(b).arg("--version").output().is_ok())
    else {
        return skip("the_page_draws_a_bar_for_each_process_in_a_real_browser", "chromium is not installed");
    };
    let dump = |script: &str| {
        let path = dir.path().join("test.html");
        std::fs::write(&path, text.replace("draw();\n</script>", &format!("draw();\n{script}\n</script>"))).unwrap();
        let data = dir.path().join("browser");
        let out = std::process::Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--virtual-time-budget=2000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", data.display()))
            .arg(format!("file://{}", path.display()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let dom = dump("");
    assert_eq!(dom.matches("class=\"bar").count(), 6, "{dom}");
    assert_eq!(dom.matches("denied\" x=").count(), 1);
    assert_eq!(dom.matches("<h2>").count(), 4);
    assert!(dom.contains("6 of 6 processes on GPUs") && dom.contains("2026-11-01 10:00:20"));
    let dom = dump("$('filter').value = 'daemon denied'; draw();");
    assert_eq!((dom.matches("class=\"bar").count(), dom.contains("1 of 6 processes on GPUs")), (1, true));
    let dom = dump("document.querySelector('rect.denied').onmousemove({clientX: 5, clientY: 5});");
    assert!(dom.contains("1 calls denied") && dom.contains("no exit seen"), "{dom}");
}
