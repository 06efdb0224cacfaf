#!/usr/bin/env bash
# Whoever uses the installed package with clang needs no flags of their own: the headers show std::expected, which
# libstdc++ offers to clang before 19 only with a macro that the package brings along. Skipped (77) where there is no clang.
# usage: tests/package_clang_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=${1:?usage: tests/package_clang_test.sh SOURCE_DIR BUILD_DIR}
build_dir=${2:?usage: tests/package_clang_test.sh SOURCE_DIR BUILD_DIR}
cmake=${CMAKE:-cmake}
clang=$(command -v clang++-16 || command -v clang++ || true)
[ -n "$clang" ] || { echo "there is no clang here"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/user"
cp "$source_dir/examples/embed_state/main.cpp" "$work/user"
# Objects only: a library made for one compiler's sanitizer does not link with the other's.
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(quire 0.1 REQUIRED)
add_library(user OBJECT main.cpp)
target_compile_options(user PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(user PRIVATE quire::state)
END
{
  "$cmake" --install "$build_dir" --component state --prefix "$work/prefix" &&
    CXXFLAGS='' "$cmake" -S "$work/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$clang" &&
    "$cmake" --build "$work/build"
} >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  echo "FAILED: $clang does not compile a program on the installed headers" >&2
  exit 1
}
echo "$clang compiles a program on the installed headers"
