#!/usr/bin/env bash
# The Python peers of this benchmark: the environment `arrays` of benches/peers. Sets it up, then prints the interpreter.
exec "$(dirname "$0")/../peers/setup.sh" --python annbatch
