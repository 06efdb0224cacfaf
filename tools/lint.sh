#!/usr/bin/env bash
# clang-tidy over the tracked sources, with the compile commands of the given build folder.
# usage: tools/lint.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files 'src/*.cpp' | grep -vE '_(test|bench|fuzz)\.cpp$' |
  xargs -P "$(nproc)" -n 4 clang-tidy-16 -p "$1" --quiet --extra-arg=-D__cpp_concepts=202002L \
    --extra-arg=-Wno-macro-redefined --extra-arg=-Wno-builtin-macro-redefined
echo "lint: clean"
