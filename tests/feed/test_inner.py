import warnings

from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.feed.inner import HAS_IN_ORDER, InnerLoader, in_order_option


def test_it_is_torchs_loader_and_does_not_warn_of_too_many_workers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = InnerLoader(range(4), 2, num_workers=500)  # type: ignore[arg-type] # not one of them is started
    assert issubclass(InnerLoader, TorchDataLoader) and len(loader) == 2


def test_torch_asks_a_sampler_once_without_workers_and_twice_with_them():
    """What feed/tasks.py does as well in torch mode, so that a sampler that draws at once draws as often."""

    class Asked:
        times = 0

        def __iter__(self):
            self.times += 1
            return iter([0])

    for workers, times in ((0, 1), (1, 2)):
        asked = Asked()
        assert [int(i) for i in InnerLoader([0], None, sampler=asked, num_workers=workers)] == [0]  # type: ignore[arg-type]
        assert asked.times == times


def test_in_order_is_given_where_torch_has_it():
    option = in_order_option(in_order=False)
    assert option == ({"in_order": False} if HAS_IN_ORDER else {})
    assert getattr(InnerLoader(range(4), **option), "in_order", False) is False  # type: ignore[arg-type]
