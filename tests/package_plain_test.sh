#!/usr/bin/env bash
# Tests examples/plain_state, which uses the parts of the state library one by one. Installs the library into a temporary
# prefix, builds the example outside the tree against the installed package alone, runs it, and checks what it prints.
# Compiler and flags come from the environment (ctest).
# usage: tests/package_plain_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=${1:?usage: tests/package_plain_test.sh SOURCE_DIR BUILD_DIR}
build_dir=${2:?usage: tests/package_plain_test.sh SOURCE_DIR BUILD_DIR}
cmake=${CMAKE:-cmake}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

cp -r "$source_dir/examples/plain_state" "$work/example"
{
  "$cmake" --install "$build_dir" --component state --prefix "$work/prefix" &&
    "$cmake" -S "$work/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
      -DCMAKE_BUILD_TYPE="${CMAKE_BUILD_TYPE:-Release}" &&
    "$cmake" --build "$work/build"
} >"$work/log" 2>&1 || {
  cat "$work/log"
  fail "the example does not build"
}
grep -q "^quire_DIR:PATH=$work/prefix/" "$work/build/CMakeCache.txt" || fail "another quire package was found"
"$work/build/plain_state" >"$work/output" || {
  cat "$work/output"
  fail "the example ends with an error"
}
cat "$work/output"

says() {
  grep -qE -- "$1" "$work/output" || fail "the example does not say: $1"
}
says 'contiguous: 10 of 16 positions, paged: 10 of 12 in 3 pages; the same bytes'
says 'K of head 1 at position 7 begins with 612, in page'
says 'to write without room +refused: position 1 was not reserved'
says 'to read what nobody wrote +refused: position 10 was not written'
says 'the view of a sequence that ended +refused: .* is stale'
says 'request 42 stands at position 5'
says 'a page given back twice +refused: .* is stale'
says 'the old name of a slot +refused: .* is stale'
says 'every page and state accounted for: yes'
says '192 bytes at position 9, in another slot'
says 'a snapshot of another shape +refused: a snapshot of another shape: 192 expected, 128 given'
says '6 tokens and 704 bytes came over'
says 'by a pool of another model +refused: what was saved has another model than this pool'
says 'with one bit that has changed +refused: what was saved is damaged: checksum'
says 'a cache whose sequence is gone +refused: .* is stale'
