"""Print progress bars as training prints them: tqdm's own, driven the way Lightning's TQDMProgressBar drives them.

    progress_bars.py fast|slow|plain        bars on stderr, what was done as JSON on stdout
"""
import json
import sys
import time

from tqdm import tqdm

# As in lightning/pytorch/callbacks/progress/tqdm_progress.py: the rate is never inverted.
LIGHTNING = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


def bar(name, total, bar_format=LIGHTNING, **more):
    return tqdm(desc=name, total=total, file=sys.stderr, bar_format=bar_format, ncols=120, smoothing=0, **more)


def advance(bar, n, postfix=None):
    """Lightning sets n and refreshes, so that the rate is the mean since the bar began."""
    bar.n = n
    if postfix:
        bar.set_postfix(postfix, refresh=False)
    bar.refresh()


def epoch(number, steps, seconds, validation, bar_format):
    train = bar(f"Epoch {number}", steps, bar_format, leave=True)
    for step in range(1, steps + 1):
        time.sleep(seconds)
        advance(train, step, {"v_num": 3, "train_loss": 1.0 / step})
    done = time.time() - train.start_t
    check = bar("Validation DataLoader 0", validation, bar_format, leave=False, position=1)
    for step in range(1, validation + 1):
        time.sleep(0.02)
        advance(check, step)
    check.close()
    time.sleep(0.6)
    advance(train, steps, {"v_num": 3, "val_loss": 0.5})
    train.close()
    return steps, done


def main(kind):
    if kind == "plain":
        # tqdm's own form, which writes rates below 1 as s/it; another unit, scaled; no known end.
        start = time.time()
        for _ in tqdm(range(3), desc="Training", file=sys.stderr, mininterval=0, smoothing=0):
            time.sleep(1.1)
        took = time.time() - start
        for _ in tqdm(range(4), desc="shards", unit="shard", file=sys.stderr, mininterval=0):
            time.sleep(0.01)
        for _ in tqdm(iter(range(3)), desc="rows", file=sys.stderr, mininterval=0):
            time.sleep(0.01)
        bars = [(3, took)]
    else:
        check = bar("Sanity Checking DataLoader 0", 2, leave=False)
        for step in (1, 2):
            advance(check, step)
        check.close()
        steps, seconds = (12, 0.15) if kind == "fast" else (3, 1.2)
        bars = [epoch(number, steps, seconds, 17 if kind == "fast" else 1, LIGHTNING) for number in (0, 1)]
    print(json.dumps({"steps": sum(n for n, _ in bars), "seconds": sum(s for _, s in bars)}))


if __name__ == "__main__":
    main(sys.argv[1])
