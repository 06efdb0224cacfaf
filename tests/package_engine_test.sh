#!/usr/bin/env bash
# Installs the state library and the engine into a temporary prefix, copies the example out of the tree, builds it there
# against the installed package alone, and runs it on the demo model. Compiler and flags come from the environment
# (ctest). Nothing is written outside the temporary folder, except the list of installed files that cmake leaves in
# BUILD_DIR. With UPDATE=1 it also writes the list of installed headers to tests/installed_headers.txt.
# usage: [UPDATE=1] tests/package_engine_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=${1:?usage: tests/package_engine_test.sh SOURCE_DIR BUILD_DIR}
build_dir=${2:?usage: tests/package_engine_test.sh SOURCE_DIR BUILD_DIR}
cmake=${CMAKE:-cmake}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# Runs a command and shows its output only if it fails. $1: the name of the action for the error; the rest: the command.
quietly() {
  local what=$1
  shift
  "$@" >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "$what"
  }
}

for component in state engine; do
  quietly "the $component does not install" "$cmake" --install "$build_dir" --component $component --prefix "$work/prefix"
done
# The headers for users are installed, and the library's own headers are not.
(cd "$work/prefix/include/quire" && find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort) >"$work/headers"
[ "${UPDATE:-}" != 1 ] || cp "$work/headers" "$source_dir/tests/installed_headers.txt"
diff -u "$source_dir/tests/installed_headers.txt" "$work/headers" ||
  fail "other headers are installed than tests/installed_headers.txt has; if they are meant to be, run this with UPDATE=1"
# Each of them compiles: its includes are installed too.
mkdir "$work/headers_user"
sed 's|.*|#include <quire/&>|' "$work/headers" >"$work/headers_user/all.cpp"
cat >"$work/headers_user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(headers_user LANGUAGES CXX)
find_package(quire 0.1 REQUIRED COMPONENTS engine)
add_library(headers_user OBJECT all.cpp)
target_link_libraries(headers_user PRIVATE quire::engine quire::text)
END
quietly "a program with every header does not configure" "$cmake" -S "$work/headers_user" -B "$work/headers_build" \
  -DCMAKE_PREFIX_PATH="$work/prefix"
quietly "the installed headers include one that is not installed" "$cmake" --build "$work/headers_build"

cp -r "$source_dir/examples/embed_engine" "$work/example"
quietly "the example does not configure" "$cmake" -S "$work/example" -B "$work/build" \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE="${CMAKE_BUILD_TYPE:-Release}"
quietly "the example does not build" "$cmake" --build "$work/build"
"$work/build/embed_engine" "$source_dir/models/quire-demo-hybrid-q8_0.gguf" >"$work/output" ||
  fail "the example ends with an error"
cat "$work/output"
[ "$(grep -c 'prompt tokens were found' "$work/output")" = 3 ] || fail "there are not three answers"
grep -q '    0 of [0-9]* prompt tokens' "$work/output" || fail "the first found something in an empty pool"
[ "$(grep -c '    16 of [0-9]* prompt tokens' "$work/output")" = 2 ] || fail "the others did not share the beginning"
