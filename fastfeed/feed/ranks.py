"""Which of the order's slots are this process's: rank and world, found when they are needed."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from fastfeed.environment import launched_processes
from fastfeed.errors import UsageError

Distributed: TypeAlias = "bool | Literal['exact'] | tuple[int, int] | dist.ProcessGroup | None"


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process among those that share a dataset.

    Raises:
        UsageError: A rank outside of [0, world).
    """

    rank: int
    world: int
    why: str
    """Where the two come from."""

    def __post_init__(self) -> None:
        if self.world < 1:
            msg = f"a world has at least one rank: got {self.world}"
            raise UsageError(msg)
        if not 0 <= self.rank < self.world:
            msg = f"Invalid rank {self.rank}, rank should be in the interval [0, {self.world - 1}]"  # torch's words
            raise UsageError(msg)


def checked(distributed: object) -> Distributed:
    """The argument if it is one that ranks_of() takes; a pair is proven now, since nothing else has to be asked.

    Raises:
        UsageError: It is not.
    """
    if distributed is None or isinstance(distributed, bool) or distributed == "exact":
        return cast("Distributed", distributed)
    if isinstance(distributed, Sequence) and not isinstance(distributed, str) and len(distributed) == 2:  # noqa: PLR2004
        ranks = Ranks(operator.index(distributed[0]), operator.index(distributed[1]), "")
        return ranks.rank, ranks.world
    if dist.is_available() and isinstance(distributed, dist.ProcessGroup):
        return distributed
    if dist.is_available() and distributed == dist.GroupMember.NON_GROUP_MEMBER:  # what new_group() gives to the others
        raise _outside()
    msg = "distributed is True, False, None, 'exact', a process group or (rank, world)"
    raise UsageError(msg, got=repr(distributed), hint="Of a DeviceMesh, give mesh.get_group().")


def ranks_of(distributed: Distributed) -> Ranks:
    """Rank and world as they are now.

    Args:
        distributed: None or False: one rank. True or "exact": of torch.distributed's default group; without one, a single
            process is one rank. A process group: of this one. (rank, world): these.

    Raises:
        UsageError: This process is not in the group; or there is no group, and a launcher started several processes:
            each would read everything.
    """
    if isinstance(distributed, tuple):
        return Ranks(*distributed, why=f"distributed={distributed}")
    if not distributed:
        return Ranks(0, 1, f"distributed={distributed}: every process draws every sample")
    if distributed is True or distributed == "exact":
        if not (dist.is_available() and dist.is_initialized()):
            return _alone()
        return Ranks(dist.get_rank(), dist.get_world_size(), "of torch.distributed's default process group")
    assert not isinstance(distributed, str)
    rank = dist.get_rank(distributed)
    if rank < 0:
        raise _outside()
    return Ranks(rank, dist.get_world_size(distributed), "of the process group that was given")


def _outside() -> UsageError:
    msg = "this process is not in the process group that was given as distributed"
    return UsageError(msg, hint="Give each process the group that it is in.")


def _alone() -> Ranks:
    found = launched_processes()
    if found is not None and found[1] > 1:
        msg = f"torch.distributed has no process group yet, but {found[0]}={found[1]} says that there are several processes"
        raise UsageError(
            msg,
            hint="Call torch.distributed.init_process_group before the loader is used, or give distributed=(rank, world).",
        )
    return Ranks(0, 1, "no process group, and no launcher that started several processes: one rank")


def unsharded_ranks() -> int:
    """How many processes torch.distributed knows, for those that do not share: each of them draws every sample."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One rank's part of one epoch, or of the rest of one.

    The epoch's order has a slot for each sample, and slots go to the ranks in turn: from ``start`` on, rank r has slots
    start + r, start + r + world, ... So when each rank has handed out n samples, whatever their batches, all together
    have handed out exactly the slots [start, start + n * world): the position in the epoch is that one number, and any
    other world can go on from there.

    With ``run``, a rank takes so many slots in a row before it is the next one's turn, and what is left at the end is cut
    into equally long runs. With the batch size as run, the batches that all ranks draw in a step, one after the other,
    are the order itself, with its padding at the end. The position then means what it says where each rank has handed
    out whole runs, or everything.

    Slots of ``size`` and more are padding, which keeps the ranks equal: slot s stands for the sample of slot s mod size,
    so the epoch's first samples come again, as in torch's DistributedSampler. All ranks together have fewer than there
    are ranks; without ``run``, a rank has at most one, its last.
    """

    size: int
    """Samples in the epoch."""
    epoch: int
    start: int
    """Slots that were handed out before."""
    ranks: Ranks
    drop_last: bool
    """Leave out the last slots that do not go round, instead of padding."""
    run: int = 1
    """Slots that a rank takes in a row."""

    @property
    def rest(self) -> int:
        """Samples that were not handed out before."""
        return max(self.size - self.start, 0)

    @property
    def length(self) -> int:
        """Samples that this rank draws; the same on each."""
        world = self.ranks.world
        return self.rest // world if self.drop_last else -(-self.rest // world)

    @property
    def padding(self) -> int:
        """Samples, over all ranks, that are drawn a second time so that each rank has as many."""
        return max(self.length * self.ranks.world - self.rest, 0)

    def slots(self, start: int, stop: int) -> NDArray[np.int64]:
        """Slots of this rank's samples [start, stop), below size; int64."""
        found = self._numbers(start, stop)
        return found % self.size if found.size and int(found[-1]) >= self.size else found

    def valid(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether this rank's samples [start, stop) are no padding; bool, shape (stop - start,) at most."""
        return self._numbers(start, stop) < self.size

    def _numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Slots of this rank's samples [start, stop), those of padding from size on; ascending."""
        rank, world = self.ranks.rank, self.ranks.world
        if self.run == 1:
            first = self.start + rank
            return np.arange(first + start * world, first + min(stop, self.length) * world, world, dtype=np.int64)
        samples = np.arange(start, min(stop, self.length), dtype=np.int64)
        turns, at = np.divmod(samples, self.run)
        left = self.length % self.run  # of each rank, in the last and shorter runs
        run = np.where(samples < self.length - left, self.run, left)
        found: NDArray[np.int64] = self.start + turns * self.run * world + rank * run + at
        return found

    def consumed(self, handed_out: int) -> int:
        """Slots handed out by all ranks, if each has handed out this many samples of its share; ``size`` when it was all."""
        return self.size if handed_out >= self.length else self.start + handed_out * self.ranks.world
