"""fastfeed/mounts.py: the file system under a path, from lists of mounts as clusters show them."""

import os

import machines
import pytest
from machines import lay_out

from fastfeed.mounts import file_system, kernel_devices, mount_of, mounts

CLUSTER = (
    machines.ROOT
    + "60 27 0:50 / /lustre/fs1 rw,relatime shared:60 - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/fs1 rw,flock,lazystatfs\n"
    + "61 27 0:51 / /home rw,relatime shared:61 - nfs4 nas01:/export/home rw,vers=4.2,rsize=1048576,hard,proto=tcp\n"
    + "62 61 0:52 / /home/ann/scratch rw,relatime shared:62 - xfs /dev/nvme1n1 rw,attr2,inode64,noquota\n"
    + "63 27 0:53 / /gpfs rw,relatime shared:63 - gpfs gpfs0 rw,mtime,relatime\n"
    + "64 27 0:54 / /mnt/beegfs rw,relatime shared:64 - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf\n"
    + "65 27 0:55 / /mnt/models ro,nosuid,nodev,relatime shared:65 - fuse.gcsfuse bucket ro,user_id=2001,group_id=2001\n"
    + "66 27 0:56 / /mnt/remote rw,nosuid,nodev,relatime shared:66 - fuse.sshfs ann@far:/data rw,user_id=1000\n"
    + "67 27 0:57 / /mnt/odd rw,relatime - fuse.myfs myfs rw\n"
    + "68 27 0:58 / /mnt/ntfs rw,relatime - fuseblk /dev/sda1 rw,user_id=0\n"
    + "69 27 0:59 / /mnt/c rw,noatime - 9p C:\\134 rw,dirsync,aname=drvfs\n"
    + r"70 27 0:60 / /mnt/my\040photos\011and\012more rw,relatime - btrfs /dev/sdb1 rw,space_cache=v2,subvol=/@" + "\n"
    + machines.SHM
    + "71 27 0:61 / /mnt/new rw - somethingfs none rw\n"
    + "72 27 0:62 / /mnt/opt rw shared:1 master:2 propagate_from:3 - zfs tank/opt rw,xattr\n"
)  # fmt: skip
KINDS = [
    ("/lustre/fs1/train", "lustre", "network", "/lustre/fs1 is Lustre, a network file system"),
    ("/lustre/fs10/train", "ext4", "local", "/ is ext4, a disk of this machine"),
    ("/home/ann/data", "nfs4", "network", "/home is NFS, a network file system"),
    ("/home/ann/scratch/x", "xfs", "local", "/home/ann/scratch is xfs, a disk of this machine"),
    ("/gpfs", "gpfs", "network", "/gpfs is GPFS (Spectrum Scale), a network file system"),
    ("/mnt/beegfs/a", "beegfs", "network", "/mnt/beegfs is BeeGFS, a network file system"),
    ("/mnt/models/a", "fuse.gcsfuse", "network", "/mnt/models is Cloud Storage FUSE (fuse.gcsfuse), a network file system"),
    ("/mnt/remote/a", "fuse.sshfs", "network", "/mnt/remote is SSHFS (fuse.sshfs), a network file system"),
    ("/mnt/odd/a", "fuse.myfs", "fuse", "/mnt/odd is fuse.myfs, served by a program (FUSE)"),
    ("/mnt/ntfs/a", "fuseblk", "local", "/mnt/ntfs is fuseblk, a disk of this machine"),
    ("/mnt/c/Users", "9p", "host", "/mnt/c is 9P, a folder of the machine around this one"),
    ("/mnt/my photos\tand\nmore/1.jpg", "btrfs", "local", "/mnt/my photos\tand\nmore is btrfs, a disk of this machine"),
    ("/dev/shm/x", "tmpfs", "memory", "/dev/shm is tmpfs, memory"),
    ("/mnt/new/x", "somethingfs", "unknown", "/mnt/new is somethingfs, which is not known here"),
    ("/mnt/opt/x", "zfs", "local", "/mnt/opt is zfs, a disk of this machine"),
]


@pytest.mark.parametrize(("path", "kind", "family", "why"), KINDS, ids=lambda value: value if "/" in value else None)
def test_kind_of_a_path(tmp_path, path, kind, family, why):
    found = file_system(path, lay_out(tmp_path, {"proc/self/mountinfo": CLUSTER}))
    assert (found.type, found.family, found.why) == (kind, family, why)
    assert found.slow_at_random == (family in {"network", "fuse", "host"})


def test_container_layers(tmp_path):
    found = file_system("/data", lay_out(tmp_path, machines.docker_v2()))
    assert (found.type, found.family) == ("overlay", "overlay")


def test_the_upper_of_two_mounts_at_one_point_counts(tmp_path):
    lines = machines.ROOT + "40 27 0:1 / /data rw - nfs a:/x rw\n41 40 0:2 / /data rw - xfs /dev/sdb rw\n"
    assert file_system("/data/x", lay_out(tmp_path, {"proc/self/mountinfo": lines})).type == "xfs"


def test_a_later_mount_further_out_hides_an_earlier_one(tmp_path):
    lines = machines.ROOT + "40 27 0:1 / /data/set rw - nfs a:/x rw\n41 27 0:2 / /data rw - xfs /dev/sdb rw\n"
    assert file_system("/data/set/x", lay_out(tmp_path, {"proc/self/mountinfo": lines})).type == "xfs"


def test_bytes_that_are_no_utf8_stay(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_bytes(b"40 1 0:1 / /d\xff\\040x rw - xfs /dev/sdb rw\n")
    (found,) = mounts(str(tmp_path))
    assert found.point == "/d\udcff x"


def test_file_systems_of_the_kernel_are_known_by_their_device(tmp_path):
    lines = (
        machines.ROOT
        + "22 27 0:21 / /proc rw - proc proc rw\n23 27 0:22 / /sys rw - sysfs sysfs rw\n24 27 x / /odd rw - ext4 x\n"
    )
    root = lay_out(tmp_path, {"proc/self/mountinfo": lines})
    assert kernel_devices(root) == {os.makedev(0, 21): "proc", os.makedev(0, 22): "sysfs"}
    assert [mount.device for mount in mounts(root)] == [os.makedev(259, 2), os.makedev(0, 21), os.makedev(0, 22), -1]
    assert kernel_devices()[os.stat("/proc").st_dev] == "proc"


def test_lines_that_are_none_are_left_out(tmp_path):
    text = "garbage\n1 2 3\na b 0:1 / / rw - ext4 x rw\n40 1 0:1 / / rw - ext4\n40 1 0:1 / / rw - ext4 dev\n"
    (found,) = mounts(lay_out(tmp_path, {"proc/self/mountinfo": text}))
    assert (found.type, found.source, found.options) == ("ext4", "dev", "")


def test_without_a_list_nothing_is_known(tmp_path):
    found = file_system("/data", str(tmp_path))
    assert (found.family, found.slow_at_random) == ("unknown", False)
    assert "/proc/self/mountinfo" in found.why
    assert mount_of("/data", ()) is None


def test_on_this_machine():
    assert file_system("/proc").type == "proc"
    assert file_system("/").point == "/"
