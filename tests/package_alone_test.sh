#!/usr/bin/env bash
# Checks that libquire-state needs only src/base, the standard library and xxhash. It looks at every include, and builds
# the library in a folder that has nothing else of the tree. Compiler and flags come from the environment (ctest).
# usage: tests/package_alone_test.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
source_dir=${1:?usage: tests/package_alone_test.sh SOURCE_DIR}
cmake=${CMAKE:-cmake}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files of the library, without tests, benchmarks, fuzzers and their helpers.
library_files() {
  find "$source_dir/src/$1" \( -name '*.h' -o -name '*.cpp' \) | grep -vE '_(test|bench|fuzz)\.cpp$|_testing\.h$' | sort
}

# A header of the standard library has no dot in its name. <sys/mman.h> is for the memory of large pools. base may use more
# of the operating system than that.
strangers_in() {  # MODULE ALLOWED
  library_files "$1" | xargs grep -HnE '^[[:space:]]*#[[:space:]]*include' |
    grep -vE "include (<[a-z_0-9]+>|$2)[[:space:]]*(//.*)?\$" || true
}
strangers=$(strangers_in base '"quire/base/[^"]*"|<(sys/|linux/)?(mman|futex|syscall|sched|pthread|unistd)\.h>'
            strangers_in state '"quire/(base|state)/[^"]*"|<xxhash\.h>|<sys/mman\.h>')
if [ -n "$strangers" ]; then
  echo "FAILED: includes that are not allowed:" >&2
  echo "$strangers" >&2
  exit 1
fi

mkdir "$work/tree" "$work/tree/src"
cp -r "$source_dir/CMakeLists.txt" "$source_dir/cmake" "$source_dir/LICENSE" "$source_dir/README.md" "$work/tree"
cp -r "$source_dir/src/base" "$source_dir/src/state" "$work/tree/src"
{
  "$cmake" -S "$work/tree" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DQUIRE_STATE_ONLY=ON -DQUIRE_TESTS=OFF \
    -DQUIRE_BENCHMARKS=OFF &&
    "$cmake" --build "$work/build" --target quire-state
} >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  echo "FAILED: the library does not build alone" >&2
  exit 1
}
ls "$work"/build/src/state/libquire-state.a "$work"/build/src/base/libquire-base.a
echo "$(library_files state | wc -l) files of the state library have only allowed includes"
