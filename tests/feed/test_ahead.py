import os
import resource

from fastfeed.feed.ahead import AHEAD_BYTES, MOST_AHEAD, Ahead, Room

MIB = 1 << 20
PLENTY = Room(100 << 30, 1 << 20)


def most(in_flight: int, size_bytes: int, tensors: int = 2, room: Room = PLENTY) -> int:
    ahead = Ahead(in_flight, room)
    ahead.seen(size_bytes, tensors)
    return ahead.most


def test_before_a_batch_is_known_twice_what_workers_were_given():
    assert Ahead(8, PLENTY).most == 16


def test_small_batches_are_bounded_by_number():
    assert most(8, 100) == 8 + MOST_AHEAD
    assert most(8, 0) == 8 + MOST_AHEAD


def test_middling_ones_by_bytes():
    assert most(8, 4 * MIB) == 8 + AHEAD_BYTES // (4 * MIB)


def test_of_large_ones_as_many_as_workers_were_given():
    assert most(8, 150 * MIB) == 16


def test_descriptors():
    assert most(8, 100, tensors=2, room=Room(100 << 30, 1024)) == 8 + 1024 // 4 // 2
    assert most(8, 100, tensors=0, room=Room(100 << 30, 1024)) == 8 + 256


def test_a_small_shared_memory():
    assert most(4, 4 * MIB, room=Room(64 * MIB, 1 << 20)) == 4 + 2  # 57.6 MiB less 16, a quarter of that
    assert most(8, 40 * MIB, room=Room(64 * MIB, 1 << 20)) == 8
    assert most(8, 100, room=Room(0, 1 << 20)) == 8


def test_the_largest_batch_counts():
    ahead = Ahead(8, PLENTY)
    for size in (MIB, 64 * MIB, MIB):
        ahead.seen(size, 1)
    assert ahead.most == 8 + 8
    ahead.seen(100, 1 << 20)  # of descriptors the most that were seen
    assert ahead.most == 8


def test_the_room_of_this_machine():
    room = Room.now()
    free = os.statvfs("/dev/shm")
    assert 0 <= room.shared_bytes <= free.f_blocks * free.f_frsize
    assert room.descriptors == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
