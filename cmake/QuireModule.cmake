# One target per folder of src/. Each has its own include folder in the build tree, in which quire/<module> points to
# src/<module>. So code in the tree includes "quire/state/x.h" exactly as a program with the installed package does. A
# target sees only the headers of the modules that it names, and of those that their headers include. So an include
# against the arrows of docs/design.md does not compile. tests/named_modules_test.sh checks that a target names exactly the
# modules that it includes. The functions here write the records for it to <build>/modules.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(quire-options INTERFACE)
target_compile_options(quire-options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-align
                                               -Woverloaded-virtual -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns falsely about overlapping copies in string concatenation (GCC bug 105329).
  target_compile_options(quire-options INTERFACE -Wno-restrict)
endif()

# There are some hundred test programs, and gold links each in a third of the time. It is part of Debian's binutils. With
# clang it warns about the sanitizers' symbols, so there the default linker stays.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold QUIRE_HAS_GOLD)
if(QUIRE_HAS_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_link_options(quire-options INTERFACE $<HOST_LINK:-fuse-ld=gold>)
endif()

# Most of a file's compile time goes into the headers that it shares with its neighbours. So sources are compiled eight
# together, in a third of the time. The preset debug compiles each alone: a missing include is noticed.
option(QUIRE_UNITY "Compile the sources of a module in groups" ON)
if(QUIRE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Two sources of a group may have an alias of the same name. Only clang calls that shadowing.
  target_compile_options(quire-options INTERFACE -Wno-shadow)
endif()

file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/modules)

# quire_named_modules(<target> <list of libraries> <line>...): writes the record of a target for the test: the given lines,
# then the libraries that are modules. The lines "folder <path>" or "source <path>" say what the target consists of.
function(quire_named_modules target libraries)
  list(FILTER libraries INCLUDE REGEX "^quire::")
  list(TRANSFORM libraries REPLACE "^quire::" "names ")
  list(JOIN ARGN "\n" lines)
  list(JOIN libraries "\n" names)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/modules/${target} CONTENT "${lines}\n${names}\n" @ONLY)
endfunction()

# quire_module(<name> [DEPS <modules or libraries>...] [PRIVATE_DEPS ...] [SEPARATE <source>...]): a library of every *.cpp
# of the folder, except tests, benchmarks and fuzzers (x_test.cpp, x_bench.cpp, x_fuzz.cpp). Its headers include DEPS; only
# its sources include PRIVATE_DEPS. Users of the module see the headers of DEPS, and link both. SEPARATE sources are never
# compiled in a group: they define a name that another source of the module defines differently.
function(quire_module name)
  cmake_parse_arguments(M "" "" "DEPS;PRIVATE_DEPS;SEPARATE" ${ARGN})
  file(GLOB_RECURSE M_SOURCES CONFIGURE_DEPENDS *.cpp)
  list(FILTER M_SOURCES EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
  set(link_dir ${CMAKE_BINARY_DIR}/include/${name}/quire)
  file(MAKE_DIRECTORY ${link_dir})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${link_dir}/${name} SYMBOLIC)
  add_library(quire-${name} STATIC ${M_SOURCES})
  add_library(quire::${name} ALIAS quire-${name})
  set_target_properties(quire-${name} PROPERTIES EXPORT_NAME ${name} UNITY_BUILD ${QUIRE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${M_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_compile_features(quire-${name} PUBLIC cxx_std_23)
  target_include_directories(quire-${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include/${name}>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(quire-${name} PUBLIC ${M_DEPS} PRIVATE $<BUILD_INTERFACE:quire-options> ${M_PRIVATE_DEPS})
  # Tests, benchmarks and fuzzers of a module see the same headers as the module.
  set(named ${M_DEPS} ${M_PRIVATE_DEPS})
  list(FILTER named INCLUDE REGEX "^quire::")
  set_target_properties(quire-${name} PROPERTIES QUIRE_MODULES "quire::${name};${named}")
  set(headers ${M_DEPS})
  list(FILTER headers INCLUDE REGEX "^quire::")
  list(TRANSFORM headers REPLACE "^quire::" "headers ")
  quire_named_modules(quire-${name} "${named}" "module ${name}" "folder ${CMAKE_CURRENT_SOURCE_DIR}" ${headers})
endfunction()

# quire_program(<name> <module> <source> [DEPS ...]): a program in a module's folder: a benchmark, or quire itself.
function(quire_program name module source)
  cmake_parse_arguments(P "" "" "DEPS" ${ARGN})
  get_target_property(modules quire-${module} QUIRE_MODULES)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${modules} ${P_DEPS} quire-options)
  get_filename_component(path ${source} ABSOLUTE)
  quire_named_modules(${name} "${modules};${P_DEPS}" "source ${path}")
endfunction()

# The compile options of all tests, and the headers that they all include. These headers take longer to compile than most
# tests, so they are precompiled once, for a program that does nothing.
function(quire_test_options)
  add_library(quire-test-options INTERFACE)
  # The modules are built as they are released. The tests themselves are not: with -O1 they build in half the time.
  target_compile_options(quire-test-options INTERFACE $<$<CONFIG:Release>:-O1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The standard library turns these warnings off around string copies, but GCC loses that in precompiled headers.
    target_compile_options(quire-test-options INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
  target_compile_definitions(quire-test-options INTERFACE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             QUIRE_BUILD_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(quire-test-options INTERFACE quire::base quire-options GTest::gtest GTest::gmock)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT "int main() {}\n")
  add_executable(quire-test-headers ${CMAKE_BINARY_DIR}/test_headers.cpp)
  target_link_libraries(quire-test-headers PRIVATE quire-test-options)
  target_precompile_headers(quire-test-headers PRIVATE <algorithm> <cstdint> <cstring> <filesystem> <random> <string>
                            <vector> <gmock/gmock.h> <gtest/gtest.h>)
endfunction()

# The preset tsan has the modules whose threads share something. The others start none, or (backend, model) only give the
# parts of a job to a team of threads, as the tests of engine do with real models and 1 to 16 threads.
set(QUIRE_TEST_MODULES "" CACHE STRING "Build the tests of these modules only; empty: of all")

# quire_test(<module> SOURCES <x_test.cpp>... [LABELS ...] [DEPS ...] [TIMEOUT seconds]): one program per test file, one
# ctest entry per test, labelled with the module's name. It sees the same headers as the module, and DEPS.
function(quire_test module)
  if(NOT QUIRE_TESTS OR (QUIRE_TEST_MODULES AND NOT module IN_LIST QUIRE_TEST_MODULES))
    return()
  endif()
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LABELS;DEPS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  include(GoogleTest)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
    # ccache stores objects that use precompiled headers only if it may ignore time macros and defines in them.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  if(NOT TARGET quire-test-options)
    quire_test_options()
  endif()
  get_target_property(modules quire-${module} QUIRE_MODULES)
  foreach(source ${T_SOURCES})
    get_filename_component(test_name ${source} NAME_WE)
    get_filename_component(path ${source} ABSOLUTE)
    add_executable(${test_name} ${source})
    target_link_libraries(${test_name} PRIVATE ${modules} ${T_DEPS} quire-test-options GTest::gtest_main)
    quire_named_modules(${test_name} "${modules};${T_DEPS}" "source ${path}")
    target_precompile_headers(${test_name} REUSE_FROM quire-test-headers)
    gtest_discover_tests(${test_name} PROPERTIES TIMEOUT ${T_TIMEOUT} DISCOVERY_TIMEOUT 60)
    # A list in the properties above would be split on its way to ctest: the second label would become a property with the
    # timeout as its value. So labels are set after ctest has discovered the tests.
    set(labels ${module} ${T_LABELS})
    set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${test_name}_labels.cmake)
    file(CONFIGURE OUTPUT ${labels_file} @ONLY CONTENT
         "if(@test_name@_TESTS)\n  set_tests_properties(\${@test_name@_TESTS} PROPERTIES LABELS \"@labels@\")\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
  endforeach()
endfunction()

# quire_fuzzer(<module> <source> [DEPS ...]): a libFuzzer program. The target `fuzzers` builds all of them with their
# dependencies; `make fuzz` runs them.
function(quire_fuzzer module source)
  if(NOT QUIRE_FUZZERS)
    return()
  endif()
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  cmake_parse_arguments(F "" "" "DEPS" ${ARGN})
  get_filename_component(name ${source} NAME_WE)
  quire_program(${name} ${module} ${source} DEPS ${F_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${name})
endfunction()
