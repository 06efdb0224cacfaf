#!/usr/bin/env bash
# Installs the built library into a temporary prefix, copies the example out of the tree, builds it there against the
# installed package alone, runs it, and reads what it prints. Compiler and flags come from the environment (ctest).
# Nothing is written outside the temporary folder, except the list of installed files that cmake leaves in BUILD_DIR.
# usage: tests/package_example_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=${1:?usage: tests/package_example_test.sh SOURCE_DIR BUILD_DIR}
build_dir=${2:?usage: tests/package_example_test.sh SOURCE_DIR BUILD_DIR}
cmake=${CMAKE:-cmake}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

"$cmake" --install "$build_dir" --component state --prefix "$work/prefix" >"$work/install.log" || {
  cat "$work/install.log"
  fail "the library does not install"
}
for header in base/check.h state/sequence_pool.h state/views.h; do
  [ -f "$work/prefix/include/quire/$header" ] || fail "include/quire/$header is not installed"
done
private=$(find "$work/prefix/include" -name '*_testing.h' -o -name '*_internal.h')
[ -z "$private" ] || fail "headers for nobody else are installed: $private"
# A package that names its build tree works only on the machine it was built on.
# The path must begin and end there: a clone in /quire is not named by ${DIR}/quire-targets.cmake.
path=$(printf '%s|%s' "$source_dir" "$build_dir" | sed 's/[.+*?^${}()[\]\\]/\\&/g')
if grep -rnE "(^|[^[:alnum:]_.}/-])($path)(/|[^[:alnum:]_.-]|\$)" "$work/prefix" --include='*.cmake' --include='*.h'; then
  fail "the package names the tree it was built in"
fi

cp -r "$source_dir/examples/embed_state" "$work/example"
"$cmake" -S "$work/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE="${CMAKE_BUILD_TYPE:-Release}" >"$work/configure.log" 2>&1 || {
  cat "$work/configure.log"
  fail "the example does not configure"
}
grep -q "^quire_DIR:PATH=$work/prefix/" "$work/build/CMakeCache.txt" || fail "another quire package was found"
"$cmake" --build "$work/build" >"$work/build.log" 2>&1 || {
  cat "$work/build.log"
  fail "the example does not build"
}
"$work/build/embed_state" >"$work/output" || {
  cat "$work/output"
  fail "the example ends with an error"
}
cat "$work/output"

says() {
  grep -qE -- "$1" "$work/output" || fail "the example does not say: $1"
}
# Shared: the first two pages of both have the same numbers, and the mark of a page with several holders.
says '^ *first +\|3\*You are \|4\*a poet\. \|5 Roses ar\|6 '
says '^ *shared +\|3\*You are \|4\*a poet\. \|7 Snow is'
says '16 of its 23 prompt tokens were reused, 7 computed'
# Forked: first all four pages are shared; then the last one is a copy.
says '^ *forked +\|3\*You are \|4\*a poet\. \|5\*Roses ar\|6\*'
says '^ *forked +\|3\*You are \|4\*a poet\. \|5\*Roses ar\|9 e[a-z]{3}!'
# Refused: the message has the numbers.
says '^ *beforehand: the pool is exhausted: 256384 bytes wanted, 196608 available$'
says '^ *asked for:  the pool is exhausted: 253952 bytes wanted, 187904 available$'
# At the end nothing is held.
says '^ *pages: 0 held \+ 2 cached \+ 187 free = 189; states: 0 held \+ 1 cached \+ 503 free = 504$'
says 'every page and state accounted for: yes'
