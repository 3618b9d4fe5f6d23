//! Which container a process is in, from its cgroup paths and mounts.
//!
//! Rather null than wrong: an identifier counts only where a container runtime puts that of the
//! process's own container. Conmon's scope, a sandbox's (the pause container's) folder and the hex
//! strings of overlay layers look alike and are not it.

use crate::rule::cgroup_paths;

/// What runtimes write before the identifier in the name of a scope or folder.
const PREFIXES: [&[u8]; 6] = [b"docker-", b"cri-containerd-", b"crio-", b"libpod-", b"containerd-", b""];

/// The 64 hexadecimal digits of the container, from the text of `/proc/<pid>/cgroup`: the innermost
/// part of a path that is such an identifier.
pub fn from_cgroup(text: &[u8]) -> Option<&[u8]> {
    cgroup_paths(text).find_map(|path| path.rsplit(|c| *c == b'/').find_map(identifier))
}

fn identifier(part: &[u8]) -> Option<&[u8]> {
    let scope = part.strip_suffix(b".scope").unwrap_or(part);
    PREFIXES.iter().filter_map(|prefix| scope.strip_prefix(*prefix)).find(|id| is_identifier(id))
}

fn is_identifier(text: &[u8]) -> bool {
    text.len() == 64 && text.iter().all(|c| c.is_ascii_digit() || matches!(c, b'a'..=b'f'))
}

/// The same from one line of `/proc/<pid>/mountinfo`, for a process whose cgroup namespace shows only
/// `/`: Docker and Podman mount files of the container's own folder over `/etc/hostname` and the like.
/// Under Kubernetes these files are the sandbox's, so there it is no identifier of the container.
pub fn from_mount(line: &[u8]) -> Option<&[u8]> {
    let mut fields = line.split(|c| *c == b' ');
    let (root, place) = (fields.nth(3)?, fields.next()?);
    if !matches!(place, b"/etc/hostname" | b"/etc/hosts" | b"/etc/resolv.conf") {
        return None;
    }
    let mut parts = root.rsplit(|c| *c == b'/').skip(1);
    let (first, second, third) = (parts.next()?, parts.next()?, parts.next()?);
    let docker = second == b"containers" && third == b"docker";
    let podman = first == b"userdata" && third == b"overlay-containers";
    let id = if podman { second } else { first };
    ((docker || podman) && is_identifier(id)).then_some(id)
}

/// The UID of the Kubernetes pod, from the cgroup's text: `pod<uid>`, in which systemd's names have `_` for `-`.
pub fn pod(text: &[u8]) -> Option<[u8; 36]> {
    cgroup_paths(text).find_map(|path| path.split(|c| matches!(c, b'/' | b'.')).find_map(pod_part))
}

fn pod_part(part: &[u8]) -> Option<[u8; 36]> {
    let start = part.windows(3).rposition(|w| w == b"pod")?;
    let mut uid: [u8; 36] = *part.get(start.saturating_add(3)..)?.first_chunk()?;
    let complete = part.len() == start.saturating_add(39);
    uid.iter_mut().filter(|c| **c == b'_').for_each(|c| *c = b'-');
    (complete && crate::device::Uuid::parse(&uid).is_some()).then_some(uid)
}

/// The pod's UID from one line of `/proc/<pid>/mountinfo`: the kubelet mounts files of the pod's folder.
pub fn pod_from_mount(line: &[u8]) -> Option<[u8; 36]> {
    let root = line.split(|c| *c == b' ').nth(3)?;
    let mut parts = root.split(|c| *c == b'/').skip_while(|part| *part != b"pods");
    let uid: [u8; 36] = parts.nth(1)?.try_into().ok()?;
    (root.starts_with(b"/var/lib/kubelet/pods/") && crate::device::Uuid::parse(&uid).is_some()).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};

    const ID: &str = "3f4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566778f";

    fn id(cgroup: &str) -> Option<String> {
        from_cgroup(cgroup.replace("ID", ID).as_bytes()).map(|id| String::from_utf8_lossy(id).to_string())
    }

    #[test]
    fn each_runtime_puts_it_elsewhere() {
        for cgroup in [
            "0::/system.slice/docker-ID.scope\n",
            "12:memory:/docker/ID\n11:cpu:/docker/ID\n",
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-ID.scope\n",
            "4:devices:/kubepods/besteffort/pod0e7a/ID\n",
            "0::/kubepods.slice/crio-ID.scope/container\n",
            "0::/machine.slice/libpod-ID.scope/container\n",
            "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope\n",
            "0::/default/ID\n",
        ] {
            assert_eq!(id(cgroup).as_deref(), Some(ID), "{cgroup}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_null() {
        for cgroup in [
            "0::/\n",
            "0::/user.slice\n",
            "0::/machine.slice/libpod-conmon-ID.scope\n",
            "0::/crio-conmon-ID.scope\n",
            "0::/x/IDff\n",
            "0::/x/3f4a\n",
            "",
        ] {
            assert_eq!(id(cgroup), None, "{cgroup}");
        }
    }

    #[test]
    fn mounts_tell_it_where_the_cgroup_does_not() {
        let mount = |line: &str| from_mount(line.replace("ID", ID).as_bytes()).map(|id| String::from_utf8_lossy(id).to_string());
        assert_eq!(mount("600 580 8:1 /var/lib/docker/containers/ID/hostname /etc/hostname rw - ext4 /dev/sda1 rw").as_deref(), Some(ID));
        assert_eq!(
            mount("600 580 0:25 /containers/overlay-containers/ID/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw").as_deref(),
            Some(ID)
        );
        for line in [
            "600 580 8:1 /var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/ID/hostname /etc/hostname rw - ext4 /dev/sda1 rw",
            "1 2 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/ID/diff",
            "1 2 8:1 /var/lib/docker/containers/ID/hostname /mnt/other rw - ext4 x rw",
            "short",
        ] {
            assert_eq!(mount(line), None, "{line}");
        }
    }

    #[test]
    fn the_pod_is_found_in_either_writing() {
        let uid = "0e7a1b2c-1111-4222-8333-444455556666";
        for cgroup in [
            "0::/kubepods/burstable/pod0e7a1b2c-1111-4222-8333-444455556666/x\n",
            "0::/kubepods.slice/kubepods-burstable-pod0e7a1b2c_1111_4222_8333_444455556666.slice/cri-containerd-x.scope\n",
        ] {
            assert_eq!(pod(cgroup.as_bytes()).as_ref().map(<[u8; 36]>::as_slice), Some(uid.as_bytes()), "{cgroup}");
        }
        assert_eq!(pod(b"0::/tripod/podium\n"), None);
        let line = std::format!("9 8 8:1 /var/lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw - ext4 x rw");
        assert_eq!(pod_from_mount(line.as_bytes()).as_ref().map(<[u8; 36]>::as_slice), Some(uid.as_bytes()));
    }
}
