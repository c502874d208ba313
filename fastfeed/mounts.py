r"""Mounted file systems: which kind of file system holds a path, told from the kernel's list of mounts.

Format of the list: proc(5), "/proc/[pid]/mountinfo": ``36 35 98:0 /root /point options tags... - type source super-options``,
where blanks, tabs, line feeds and backslashes inside a field are written as three octal digits (``\040``).
"""

import os
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Family = Literal["local", "network", "fuse", "host", "overlay", "memory", "unknown"]

_NETWORK = {
    "nfs": "NFS", "nfs4": "NFS", "lustre": "Lustre", "gpfs": "GPFS (Spectrum Scale)", "beegfs": "BeeGFS",
    "beegfs_nodev": "BeeGFS", "cifs": "SMB", "smb3": "SMB", "smbfs": "SMB", "ceph": "CephFS", "glusterfs": "GlusterFS",
    "afs": "AFS", "orangefs": "OrangeFS", "pvfs2": "PVFS", "panfs": "PanFS", "wekafs": "WekaFS", "ocfs2": "OCFS2",
    "gfs2": "GFS2", "quobyte": "Quobyte", "dvs": "Cray DVS",
}  # fmt: skip
_FUSE_NETWORK = {
    "sshfs": "SSHFS", "s3fs": "s3fs", "gcsfuse": "Cloud Storage FUSE", "goofys": "goofys", "mountpoint-s3": "Mountpoint for S3",
    "rclone": "rclone", "juicefs": "JuiceFS", "ceph": "CephFS", "ceph-fuse": "CephFS", "glusterfs": "GlusterFS",
    "blobfuse": "Azure blobfuse", "blobfuse2": "Azure blobfuse", "cvmfs2": "CernVM-FS", "moosefs": "MooseFS", "mfs": "MooseFS",
    "daos": "DAOS", "dfuse": "DAOS", "quobyte": "Quobyte", "davfs": "WebDAV", "seaweedfs": "SeaweedFS", "geesefs": "GeeseFS",
    "hf-mount": "Hugging Face Hub", "curlftpfs": "FTP", "httpdirfs": "HTTP", "alluxio-fuse": "Alluxio", "beegfs": "BeeGFS",
}  # fmt: skip
_HOST = {
    "9p": "9P",
    "virtiofs": "virtiofs",
    "vboxsf": "VirtualBox folder",
    "vmhgfs": "VMware folder",
    "prl_fs": "Parallels folder",
}
_OVERLAY = {"overlay", "overlayfs", "aufs", "fuse-overlayfs"}
_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_LOCAL = {
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "nilfs2", "ntfs", "ntfs3", "fuseblk",
    "exfat", "vfat", "hfsplus", "apfs", "squashfs", "erofs", "iso9660", "udf", "bind",
}  # fmt: skip
_KERNEL = {"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf"}
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo."""

    number: int
    parent: int
    root: str
    """The folder of the file system that is mounted here; of a cgroup file system, the group."""
    point: str
    type: str
    """As the kernel names it: ext4, nfs4, fuse.sshfs."""
    source: str
    options: str
    """Options of the file system itself, separated by commas."""
    device: int = -1
    """As os.stat() gives it for what is on it; -1 where it is not known."""


class FileSystem(NamedTuple):
    """What holds a path."""

    type: str
    """As the kernel names it (nfs4, fuse.gcsfuse); "" where it is not known."""
    family: Family
    """local: a disk of this machine; network: across a network; fuse: a program of unknown speed; host: a folder of the
    machine around this virtual one; overlay: layers of a container; memory: tmpfs."""
    point: str
    """Where it is mounted."""
    why: str
    """A sentence."""

    @property
    def slow_at_random(self) -> bool:
        """Whether each small read may cost a round trip: to a server, to a program, to the host."""
        return self.family in {"network", "fuse", "host"}


def mounts(root: str = "/") -> tuple[Mount, ...]:
    """The mounts that this process sees, in the kernel's order; none where the list cannot be read.

    Args:
        root: The folder that stands for / (tests lay out another machine in one).
    """
    try:
        with open(os.path.join(root, "proc/self/mountinfo"), "rb") as file:
            text = file.read()
    except OSError:
        return ()
    return tuple(mount for line in text.splitlines() if (mount := _parsed(line)) is not None)


def _parsed(line: bytes) -> Mount | None:
    """One line; None for what is none (a kernel that writes it differently tells nothing, which is an answer)."""
    head, dash, tail = line.partition(b" - ")
    before, after = head.split(b" "), tail.split(b" ")
    if not dash or len(before) < 6 or len(after) < 2 or not (before[0].isdigit() and before[1].isdigit()):  # noqa: PLR2004 - proc(5)
        return None
    name, source = _plain(after[0]), _plain(after[1])
    return Mount(
        number=int(before[0]),
        parent=int(before[1]),
        root=_plain(before[3]),
        point=_plain(before[4]),
        type=name,
        source=source,
        options=_plain(after[2]) if len(after) > 2 else "",  # noqa: PLR2004 - the third of three
        device=_device(before[2]),
    )


def _device(field: bytes) -> int:
    major, _, minor = field.partition(b":")
    return os.makedev(int(major), int(minor)) if major.isdigit() and minor.isdigit() else -1


def kernel_devices(root: str = "/") -> dict[int, str]:
    """Device numbers (os.stat) of mounted file systems whose files the kernel makes up as they are read, with their types.

    Args:
        root: As for :func:`mounts`.
    """
    return {mount.device: mount.type for mount in mounts(root) if mount.type in _KERNEL}


def _plain(field: bytes) -> str:
    """A field without its octal escapes, with the bytes of odd names kept as Python keeps them in paths."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field))


def mount_of(path: str, known: Sequence[Mount]) -> Mount | None:
    """The mount that holds an absolute path without links: walked as the kernel does, from the outermost mount inwards.

    That is the longest mount point that is a prefix, except where a later mount further out hides it.
    """
    numbers = {mount.number for mount in known}
    tops = [mount.number for mount in known if mount.point == "/" and mount.parent not in numbers - {mount.number}]
    inside: dict[int | None, list[Mount]] = {}
    for mount in known:  # a parent that this process cannot see: the root takes its place, or nothing (chroot)
        unseen = mount.parent not in numbers or mount.parent == mount.number
        outer = mount.parent if not unseen else tops[-1] if tops and mount.number not in tops else None
        inside.setdefault(outer, []).append(mount)
    found: Mount | None = None
    while True:
        below = [mount for mount in inside.pop(found.number if found else None, ()) if _holds(mount.point, path)]
        if not below:
            return found
        nearest = min(len(mount.point) for mount in below)
        found = [mount for mount in below if len(mount.point) == nearest][-1]


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def file_system(path: str, root: str = "/") -> FileSystem:
    """Which kind of file system holds a path (of a file that need not exist yet).

    Args:
        path: Absolute, or relative to the working folder; links are followed.
        root: The folder that stands for / where the list of mounts is read.
    """
    real = os.path.realpath(path)
    mount = mount_of(real, mounts(root))
    if mount is None:
        return FileSystem("", "unknown", "/", "the file system is not known: /proc/self/mountinfo does not tell it")
    family, name = _family(mount.type)
    return FileSystem(mount.type, family, mount.point, f"{mount.point} is {name}")


def _family(type_: str) -> tuple[Family, str]:
    """The family of a kernel's file system type, and words for it."""
    if type_ in _NETWORK:
        return "network", f"{_NETWORK[type_]}, a network file system"
    if type_ in _HOST:
        return "host", f"{_HOST[type_]}, a folder of the machine around this one"
    for names, family, words in (
        (_OVERLAY, "overlay", "the layers of a container"),
        (_MEMORY, "memory", "memory"),
        (_LOCAL, "local", "a disk of this machine"),
    ):
        if type_.removeprefix("fuse.") in names:
            return family, f"{type_}, {words}"  # type: ignore[return-value]
    if type_ == "fuse" or type_.startswith("fuse."):
        subtype = type_.partition(".")[2]
        if subtype in _FUSE_NETWORK:
            return "network", f"{_FUSE_NETWORK[subtype]} ({type_}), a network file system"
        return "fuse", f"{type_}, served by a program (FUSE)"
    return "unknown", f"{type_}, which is not known here"
