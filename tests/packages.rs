//! The packages of scripts/package.sh, installed where their users would: a Debian of each age, a fresh virtual
//! environment, an unpacked tarball. scripts/test.sh builds them, and the Debian systems, before it runs the tests.

use crate::support::{Child, artefacts, python, root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The one package whose name ends so; none where packages have not been built.
fn package(end: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(root().join("target/package")).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with(end))
}

/// A driver and a command for glibc 2.17, beside the packages.
fn old_driver() -> Option<PathBuf> {
    let path = root().join("target/packaging/x86_64-unknown-linux-gnu/release/libfake_cuda.so");
    path.exists().then_some(path)
}

const ASK: &str = "import ctypes\nd = ctypes.CDLL('/tmp/libcuda.so.1')\nassert d.cuInit(0) == 0\nn = ctypes.c_int()\nd.cuDeviceGetCount(ctypes.byref(n))\n\
    u = ctypes.create_string_buffer(16)\nd.cuDeviceGetUuid(u, 0)\nprint(n.value, u.raw[:4].hex())\n";

/// From nothing to an enforced, audited program by two commands, and back to nothing by one.
const DEBIAN: &str = r#"
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
list() { find / -xdev -path /proc -prune -o -path /tmp -prune -o -path /var/lib/dpkg -prune -o -path /var/cache -prune -o -path /var/log/apt -prune \
    -o -path /var/lib/apt -prune -o -name __pycache__ -prune -o -print | grep -v '^/var/log/dpkg.log$\|^/var/log/alternatives.log$' | sort; }
list > /tmp/before
apt-get install -y --no-install-recommends /tmp/cuvisor.deb > /tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
sh -c 'echo "installed, nothing is on: [$CUDA_VISIBLE_DEVICES]"'
env -i FAKE_CUDA_GPUS=4 PATH=$PATH cuvisor run --devices 1 --trace -- python3 /tmp/ask.py 2>&1 | grep -o 'from .*'
cuvisor install --system --policy /tmp/policy.toml
env -i FAKE_CUDA_GPUS=4 /usr/bin/python3 /tmp/ask.py
env -i FAKE_CUDA_GPUS=4 CUDA_VISIBLE_DEVICES=3 CUVISOR_DISABLE=1 /usr/bin/python3 /tmp/ask.py
cuvisor report --csv | tail -n +2 | cut -d, -f1-4
man_pages=$(ls /usr/share/man/man1/cuvisor*.gz | wc -l); echo "manual pages: $man_pages"
bash -n /usr/share/bash-completion/completions/cuvisor
[ -x /tmp/m32 ] && /tmp/m32
apt-get purge -y cuvisor > /tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
/bin/true
sh -c 'echo "purged: [$CUDA_VISIBLE_DEVICES]"'
list > /tmp/after
diff /tmp/before /tmp/after && echo 'no file is left'
apt-get install -y --no-install-recommends /tmp/cuvisor.deb > /tmp/apt.log 2>&1
cuvisor install --system
apt-get remove -y cuvisor > /tmp/apt.log 2>&1
[ ! -e /etc/ld.so.preload ] && [ -e /etc/cuvisor/policy.toml ] && echo 'removed, the policy is kept'
"#;

#[test]
fn b06_b13_b25_debian_of_each_age_is_held_by_two_commands_and_free_after_one() {
    const NAME: &str = "b06_b13_b25_debian_of_each_age_is_held_by_two_commands_and_free_after_one";
    let (Some(deb), Some(driver)) = (package("_amd64.deb"), old_driver()) else {
        return skip(NAME, "scripts/package.sh has not been run");
    };
    for suite in ["bullseye", "sid"] {
        let system = root().join("target/roots").join(suite);
        if !system.join("usr/bin/python3").exists() {
            skip(NAME, &format!("target/roots/{suite} is not there: debootstrap could not make it"));
            continue;
        }
        let files = tempfile::TempDir::new().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(files.path().join(name), bytes).unwrap();
        put("policy.toml", b"locked = true\n[audit]\nfile = \"/var/log/cuvisor/{uid}.jsonl\"\n[default]\ndevices = [2]\n");
        put("ask.py", ASK.as_bytes());
        put("steps.sh", DEBIAN.as_bytes());
        std::fs::copy(&deb, files.path().join("cuvisor.deb")).unwrap();
        std::fs::copy(&driver, files.path().join("libcuda.so.1")).unwrap();
        let work = files.path().display().to_string();
        // The system itself stays as it is: what is written goes into memory.
        let script = format!(
            "set -e\nmount -t tmpfs none /mnt\nmkdir /mnt/up /mnt/work /mnt/root\nmount -t overlay overlay -o lowerdir={},upperdir=/mnt/up,workdir=/mnt/work /mnt/root\n\
             cp {work}/* /mnt/root/tmp/\nmount -t proc proc /mnt/root/proc\nexec /usr/sbin/chroot /mnt/root bash /tmp/steps.sh",
            system.display()
        );
        let out = Child::new("unshare").bare().args(["-m", "-p", "-f", "bash", "-c", &script]).run();
        let expected = "installed, nothing is on: []\nfrom /tmp/ask.py:3\n\
            unchanged /usr/lib/x86_64-linux-gnu/cuvisor/libcuvisor.so\nreplaced /etc/cuvisor/policy.toml\nmade /var/log/cuvisor with mode 1733\n\
            added to /etc/ld.so.preload: /usr/$LIB/cuvisor/libcuvisor.so\n1 22222222\n1 22222222\n";
        assert!(out.stdout.starts_with(expected), "{suite}: {out:?}");
        let rest = &out.stdout[expected.len()..];
        assert!(rest.contains("python3") && rest.contains("manual pages: 10\n"), "{suite}: {out:?}");
        let end = "purged: []\nno file is left\n";
        assert!(rest.contains(end), "{suite}: {out:?}");
        assert!(rest.ends_with("removed, the policy is kept\n"), "{suite}: {out:?}");
        assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{suite}");
    }
}

#[test]
fn the_wheel_works_in_a_fresh_environment_with_a_fresh_home() {
    const NAME: &str = "the_wheel_works_in_a_fresh_environment_with_a_fresh_home";
    let Some(wheel) = package(".whl") else { return skip(NAME, "scripts/package.sh has not been run") };
    assert!(wheel.to_string_lossy().ends_with("-py3-none-manylinux_2_17_x86_64.whl"));
    let child = Child::new("sh").bare();
    let venv = child.path("venv");
    let made = Command::new(python()).args(["-m", "venv"]).arg(&venv).output().unwrap();
    if !made.status.success() {
        return skip(NAME, "this Python makes no virtual environment");
    }
    let script = format!(
        "set -e\n. {venv}/bin/activate\npip install --quiet --disable-pip-version-check --no-index {wheel}\n\
         cuvisor --version\npython -m cuvisor run --devices 2 -- printenv CUDA_VISIBLE_DEVICES\n\
         cuvisor run --devices 1 -- python -c 'import ctypes; d = ctypes.CDLL(\"libcuda.so.1\"); d.cuInit(0); n = ctypes.c_int(); d.cuDeviceGetCount(ctypes.byref(n)); print(n.value)'\n\
         python - <<'END'\nimport os, subprocess, sys, cuvisor\n\
         show = [sys.executable, '-c', 'import os; print(os.environ[\"CUDA_VISIBLE_DEVICES\"])']\n\
         print(subprocess.run(show, env=cuvisor.environ(devices=[3, 1]), capture_output=True, text=True).stdout, end='')\n\
         print(subprocess.run(show, env=cuvisor.environ(devices=[]), capture_output=True, text=True).stdout, end='')\n\
         print(os.path.basename(cuvisor.library_path()), 'LD_PRELOAD' in os.environ)\n\
         print(cuvisor.environ(base={{'LD_PRELOAD': '/x.so:/y/libasan.so.8'}})['LD_PRELOAD'] == '/y/libasan.so.8:' + cuvisor.library_path() + ':/x.so')\n\
         try:\n    cuvisor.environ(mode='strict')\nexcept ValueError as error:\n    print(error)\nEND\n\
         cuvisor install --jupyter gpu2 --devices 2 > kernel.txt\n\
         python -c 'import json; k = json.load(open(\".local/share/jupyter/kernels/gpu2/kernel.json\")); print(k[\"display_name\"], k[\"argv\"][1:5])'\n\
         cuvisor doctor --json > doctor.json || true\npython -c 'import json; print([f[\"level\"] for f in json.load(open(\"doctor.json\")) if f[\"check\"] in (\"library\", \"versions\")])'\n",
        venv = venv.display(),
        wheel = wheel.display()
    );
    let home = child.dir.path().to_owned();
    // Temporary folders are their owner's alone; doctor would rightly say that others cannot reach the library.
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let out = child.args(["-c", &script]).env("HOME", &home).run();
    let version = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = version.lines().find_map(|line| line.strip_prefix("version = \"")).unwrap().trim_end_matches('"');
    let expected = format!(
        "cuvisor {version}\n2\n1\n3,1\n\nlibcuvisor.so False\nTrue\nmode 'strict': write 'enforce', 'audit' or 'off'\ngpu2 (GPU 2) ['run', '--devices', '2', '--']\n['ok', 'ok']\n"
    );
    assert_eq!(out.told(), expected);
}

#[test]
fn the_tarball_runs_where_it_is_unpacked_and_its_sums_are_right() {
    const NAME: &str = "the_tarball_runs_where_it_is_unpacked_and_its_sums_are_right";
    let Some(tarball) = package(".tar.gz") else { return skip(NAME, "scripts/package.sh has not been run") };
    let sums =
        Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(tarball.parent().unwrap()).output().unwrap();
    assert!(sums.status.success(), "{sums:?}");
    let child = Child::new("sh").bare();
    assert!(
        Command::new("tar")
            .args(["--strip-components=1", "-xzf"])
            .arg(&tarball)
            .arg("-C")
            .arg(child.dir.path())
            .status()
            .unwrap()
            .success()
    );
    let out = child.args(["-c", "bin/cuvisor run --devices 1 -- printenv CUDA_VISIBLE_DEVICES && ls && ls man | wc -l && bin/cuvisor check examples/policy.toml && grep -c . LICENCES-of-dependencies.txt > /dev/null"]).run();
    assert!(
        out.told().starts_with("1\nCHANGELOG.md\nLICENCES-of-dependencies.txt\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nSECURITY.md\nbin\n"),
        "{out:?}"
    );
}

/// The file of a package, unpacked from the wheel, which holds all of them.
fn unpacked(file: &str, at: &Path) -> Option<PathBuf> {
    let wheel = package(".whl")?;
    let code = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])";
    assert!(Command::new(python()).args(["-c", code]).arg(wheel).arg(file).arg(at).status().unwrap().success());
    Some(at.join(file))
}

#[test]
fn b06_a_program_of_32_bits_finds_the_empty_library_and_one_of_musl_starts() {
    const NAME: &str = "b06_a_program_of_32_bits_finds_the_empty_library_and_one_of_musl_starts";
    let dir = tempfile::TempDir::new().unwrap();
    let source = dir.path().join("hello.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 3; }\n").unwrap();
    let build = |compiler: &[&str]| {
        let target = dir.path().join(compiler.concat().replace('/', "_"));
        let built = Command::new(compiler[0]).args(&compiler[1..]).arg("-o").arg(&target).arg(&source).output();
        built.is_ok_and(|out| out.status.success()).then_some(target)
    };
    match build(&["musl-gcc"]) {
        None => skip(NAME, "musl-gcc is not installed (package musl-tools)"),
        Some(program) => {
            let out = Child::new(program).devices("1").run();
            assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (Some(3), "hello\n", ""), "under musl");
        }
    }
    let (Some(program), Some(stub)) = (build(&["cc", "-m32"]), unpacked("cuvisor/libcuvisor32.so", dir.path())) else {
        return skip(NAME, "no 32-bit program can be built (package gcc-multilib), or scripts/package.sh has not been run");
    };
    let out = Child::new(&program).preload(&[&stub]).run();
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (Some(3), "hello\n", ""), "with the empty library");
    let out = Child::new(&program).run();
    assert!(out.stderr.contains("wrong ELF class"), "without it the loader complains, as README says: {out:?}");
}

#[test]
fn what_is_packaged_has_no_path_of_the_machine_that_built_it() {
    const NAME: &str = "what_is_packaged_has_no_path_of_the_machine_that_built_it";
    let dir = tempfile::TempDir::new().unwrap();
    let version = package(".whl").map(|path| path.file_name().unwrap().to_string_lossy().split('-').nth(1).unwrap().to_owned());
    let Some(version) = version else { return skip(NAME, "scripts/package.sh has not been run") };
    for file in ["cuvisor/libcuvisor.so", &format!("cuvisor-{version}.data/scripts/cuvisor")] {
        let bytes = std::fs::read(unpacked(file, dir.path()).unwrap()).unwrap();
        for path in [root().display().to_string(), "/.cargo/registry".into(), "/rustup/toolchains".into()] {
            assert!(!bytes.windows(path.len()).any(|window| window == path.as_bytes()), "{file}: {path}");
        }
    }
    let library = unpacked("cuvisor/libcuvisor.so", dir.path()).unwrap();
    let dynamic = Command::new("readelf").args(["-dW"]).arg(&library).output().unwrap().stdout;
    let plain = Command::new("readelf").args(["-dW"]).arg(&artefacts().library).output().unwrap().stdout;
    let needed =
        |text: &[u8]| String::from_utf8_lossy(text).lines().filter(|line| line.contains("NEEDED")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(needed(&dynamic), needed(&plain), "what is shipped is what is tested");
}

#[test]
fn the_examples_are_read_by_their_own_readers() {
    let examples = root().join("scripts/examples");
    let out = Command::new(examples.join("slurm-task-prolog.sh")).env_clear().env("CUDA_VISIBLE_DEVICES", "2").output().unwrap();
    assert!(out.status.success() && out.stdout.is_empty(), "without the library it says nothing: {out:?}");
    let shell = |file: &str| Command::new("sh").arg("-n").arg(examples.join(file)).status().unwrap().success();
    assert!(shell("slurm-task-prolog.sh") && shell("../deb/prerm") && shell("../deb/postrm"));
    let venv = root().join("target/venv/bin/python3");
    let code = "import sys, yaml, dockerfile_parse, io, tomllib\n\
        folder = sys.argv[1]\n\
        kinds = [d['kind'] for name in ('pod', 'daemonset') for d in yaml.safe_load_all(open(f'{folder}/{name}.yaml'))]\n\
        assert kinds == ['ConfigMap', 'Pod', 'DaemonSet'], kinds\n\
        policy = next(yaml.safe_load_all(open(f'{folder}/pod.yaml')))['data']['policy.toml']\n\
        open('policy.toml', 'w').write(policy)\n\
        steps = dockerfile_parse.DockerfileParser(fileobj=io.BytesIO(open(f'{folder}/Dockerfile', 'rb').read())).structure\n\
        words = [(s['instruction'], s['value']) for s in steps if s['instruction'] != 'COMMENT']\n\
        assert words[0][0] == 'FROM' and words[-1] == ('RUN', 'cuvisor install --system'), words\n\
        import configparser\n\
        unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters='=')\n\
        unit.optionxform = str\n\
        unit.read(f'{folder}/gpu.service.d.conf')\n\
        assert unit.sections() == ['Service'], unit.sections()\n\
        print('read')\n";
    if !venv.exists() {
        return skip("the_examples_are_read_by_their_own_readers", "target/venv is not there");
    }
    let script = "\"$0\" -c \"$1\" \"$2\" && \"$3\" check policy.toml";
    let child = Child::new("sh").bare().args(["-c", script]).arg(&venv).arg(code).arg(&examples).arg(&artefacts().cuvisor);
    let out = child.run();
    if out.stderr.contains("ModuleNotFoundError") {
        return skip("the_examples_are_read_by_their_own_readers", out.stderr.lines().last().unwrap_or_default());
    }
    assert!(out.told().starts_with("read\n"), "{out:?}");
}
