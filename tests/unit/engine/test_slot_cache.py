import numpy as np
import pytest
import torch

from gumption.rollouts.cache import SlotCache


def simulate(ordered, seed, steps=150, bound=12):
    """Random admissions, decode steps and removals; a list per row says what its cache must hold."""
    rng = np.random.default_rng(seed)
    cache = SlotCache(torch.device("cpu"), torch.float32, mask_heads=2, ordered=ordered)
    cache.add_buffer(2, 2, 1)
    rows, stamp, wraps = [], 0, 0
    for _ in range(steps):
        fresh = []
        if len(rows) < 5 and rng.random() < 0.5:
            fresh = [int(rng.integers(1, 8)) for _ in range(rng.integers(1, 4))]
        if not rows and not fresh:
            continue
        active, longest = len(rows), max(fresh, default=0)
        cache.prepare(active, len(fresh), longest, bound)
        cache.place(active, np.array(fresh, np.int64))
        cache.open_column(active)
        buffer = cache.buffers[0]
        for r in range(active):
            stamp += 1
            rows[r].append(stamp)
            buffer[:, r, :, cache.here()] = stamp
        if fresh:
            block = np.zeros((len(fresh), longest))
            for i, length in enumerate(fresh):
                tokens = [stamp + 1 + t for t in range(length)]
                stamp += length
                block[i, longest - length :] = tokens
                rows.append(tokens)
            for part, span in cache.pieces(longest):
                buffer[:, active:, :, span][:, : len(fresh)] = torch.from_numpy(
                    block[None, :, None, part, None]
                ).float()
        live = cache.live(len(rows))
        wraps += live == slice(0, cache.columns) and cache.left(len(rows)) % cache.columns != 0
        for r, want in enumerate(rows):
            shown = cache.mask[r, :, live] == 0
            assert torch.equal(shown[0], shown[1])
            got = buffer[:, r, :, live][:, :, shown[0]]
            assert (got == got[:1, :1]).all()
            values = got[0, 0, :, 0].tolist()
            assert (values if ordered else sorted(values)) == want
            assert cache.column - cache.starts_S[r] + 1 == len(want)
        cache.column += 1
        gone = [r for r, tokens in enumerate(rows) if len(tokens) >= bound or rng.random() < 0.1]
        keep = len(rows) - len(gone)
        to = np.array([r for r in gone if r < keep], np.int64)
        source = np.array([r for r in range(keep, len(rows)) if r not in gone], np.int64)
        cache.move(to, source, len(rows))
        for t, s in zip(to.tolist(), source.tolist(), strict=True):
            rows[t] = rows[s]
        del rows[keep:]
    return cache, wraps


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ordered", [False, True])
def test_every_row_sees_its_own_tokens_and_no_others(ordered, seed):
    _, wraps = simulate(ordered, seed)
    assert (wraps > 0) != ordered, "the ring closes, except for models that need order"


def test_the_ring_is_no_larger_than_the_longest_rollout():
    cache, _ = simulate(False, 0)
    assert cache.columns == 12


def test_short_rollouts_under_a_large_bound_do_not_allocate_it():
    cache, _ = simulate(True, 1, bound=12)
    cache = SlotCache(torch.device("cpu"), torch.float32)
    cache.prepare(0, 2, 5, 100_000)
    assert cache.columns < 200


def test_erase_zeroes_rows():
    cache = SlotCache(torch.device("cpu"), torch.float32)
    cache.add_buffer(1, 1, 2)
    cache.prepare(0, 3, 4, 8)
    cache.buffers[0].fill_(torch.nan)
    cache.erase(np.array([1]))
    assert torch.isfinite(cache.buffers[0][:, 1]).all() and torch.isnan(cache.buffers[0][:, 0]).all()
