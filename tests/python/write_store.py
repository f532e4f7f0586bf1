"""Write an LMDB file as a script might, with py-lmdb's defaults: random order, values replaced, keys deleted.

    write_store.py FOLDER RECORDS

In the end key i (decimal text) holds (i * 7919) % 20000 bytes, the k-th of which is (31 * i + k) % 256. Prints how many
records were replaced and deleted on the way.
"""

import json
import random
import sys

import lmdb


def value(index: int) -> bytes:
    return bytes((31 * index + k) % 256 for k in range(index * 7919 % 20000))


def main() -> None:
    folder, count = sys.argv[1], int(sys.argv[2])
    chance = random.Random(3)
    env = lmdb.open(folder, map_size=1 << 30, sync=False)
    order = list(range(count))
    chance.shuffle(order)
    overwritten = deleted = 0
    for start in range(0, count, 50):
        with env.begin(write=True) as txn:
            for index in order[start : start + 50]:
                txn.put(str(index).encode(), value(chance.randrange(count)))
    chance.shuffle(order)
    with env.begin(write=True) as txn:
        for index in order[: count // 3]:
            deleted += txn.delete(str(index).encode())
            txn.put(f"temporary {index}".encode(), b"x" * chance.randrange(9000))
    chance.shuffle(order)
    for start in range(0, count, 50):
        with env.begin(write=True) as txn:
            for index in order[start : start + 50]:
                overwritten += txn.replace(str(index).encode(), value(index)) is not None
    with env.begin(write=True) as txn:
        for key in [key for key, _ in txn.cursor() if key.startswith(b"temporary")]:
            deleted += txn.delete(key)
    env.close()
    print(json.dumps({"overwritten": overwritten, "deleted": deleted}))


if __name__ == "__main__":
    main()
