# One target per folder of src/. Each has an include folder of its own in the build tree, in which quire/<module> points
# at src/<module>, so code includes "quire/state/x.h" in the tree exactly as a program that uses the installed package
# does. A target sees the headers of the modules that it names, and of those that their headers include; it sees no
# others, so an include against the arrow of docs/design.md does not compile. That it names all that it includes itself,
# and nothing else, is a test (tests/named_modules_test.sh), which reads what is written to <build>/modules here.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(quire-options INTERFACE)
target_compile_options(quire-options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-align
                                               -Woverloaded-virtual -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in plain string concatenation where there are none (its bug 105329).
  target_compile_options(quire-options INTERFACE -Wno-restrict)
endif()

file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/modules)

# quire_named_modules(<target> <list of libraries> <line>...): which of the libraries are modules, for the test, behind
# the given lines: "folder <path>" or "source <path>" say what the target consists of.
function(quire_named_modules target libraries)
  list(FILTER libraries INCLUDE REGEX "^quire::")
  list(TRANSFORM libraries REPLACE "^quire::" "names ")
  list(JOIN ARGN "\n" lines)
  list(JOIN libraries "\n" names)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/modules/${target} CONTENT "${lines}\n${names}\n" @ONLY)
endfunction()

# quire_module(<name> [DEPS <modules or libraries>...] [PRIVATE_DEPS ...]): a library of every *.cpp of the folder that
# is not a test, a benchmark or a fuzzer (x_test.cpp, x_bench.cpp, x_fuzz.cpp). DEPS are what its headers include,
# PRIVATE_DEPS what only its sources do: whoever uses the module sees the headers of the first, and links both.
function(quire_module name)
  cmake_parse_arguments(M "" "" "DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB_RECURSE M_SOURCES CONFIGURE_DEPENDS *.cpp)
  list(FILTER M_SOURCES EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
  set(link_dir ${CMAKE_BINARY_DIR}/include/${name}/quire)
  file(MAKE_DIRECTORY ${link_dir})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${link_dir}/${name} SYMBOLIC)
  add_library(quire-${name} STATIC ${M_SOURCES})
  add_library(quire::${name} ALIAS quire-${name})
  set_target_properties(quire-${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(quire-${name} PUBLIC cxx_std_23)
  target_include_directories(quire-${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include/${name}>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(quire-${name} PUBLIC ${M_DEPS} PRIVATE $<BUILD_INTERFACE:quire-options> ${M_PRIVATE_DEPS})
  # Tests, benchmarks and fuzzers of a module see what it sees.
  set(named ${M_DEPS} ${M_PRIVATE_DEPS})
  list(FILTER named INCLUDE REGEX "^quire::")
  set_target_properties(quire-${name} PROPERTIES QUIRE_MODULES "quire::${name};${named}")
  set(headers ${M_DEPS})
  list(FILTER headers INCLUDE REGEX "^quire::")
  list(TRANSFORM headers REPLACE "^quire::" "headers ")
  quire_named_modules(quire-${name} "${named}" "module ${name}" "folder ${CMAKE_CURRENT_SOURCE_DIR}" ${headers})
endfunction()

# quire_program(<name> <module> <source> [DEPS ...]): a program beside a module: a benchmark, or the program itself.
function(quire_program name module source)
  cmake_parse_arguments(P "" "" "DEPS" ${ARGN})
  get_target_property(modules quire-${module} QUIRE_MODULES)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${modules} ${P_DEPS} quire-options)
  get_filename_component(path ${source} ABSOLUTE)
  quire_named_modules(${name} "${modules};${P_DEPS}" "source ${path}")
endfunction()

# What all tests are compiled with, and the headers that they all include: these take longer to read than most tests
# themselves, and are read once, by a program that does nothing.
function(quire_test_options)
  add_library(quire-test-options INTERFACE)
  # What is tested is built as it is released; the tests themselves need not be, and take half as long to build so.
  target_compile_options(quire-test-options INTERFACE $<$<CONFIG:Release>:-O1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The standard library turns these off around the copies of strings, and GCC forgets that when it precompiles them.
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

# quire_test(<module> SOURCES <x_test.cpp>... [LABELS ...] [DEPS ...] [TIMEOUT seconds]): one program per test file, one
# ctest entry per behaviour, labelled with the module's name. It sees what the module sees, and DEPS.
function(quire_test module)
  if(NOT QUIRE_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LABELS;DEPS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  include(GoogleTest)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
    # It keeps what is compiled with precompiled headers only where it need not look into them for the date and defines.
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
    # A list among the properties above is taken apart on its way to ctest: its second label would become a property of
    # its own and the timeout that one's value. So labels are set when ctest has read which tests there are.
    set(labels ${module} ${T_LABELS})
    set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${test_name}_labels.cmake)
    file(CONFIGURE OUTPUT ${labels_file} @ONLY CONTENT
         "if(@test_name@_TESTS)\n  set_tests_properties(\${@test_name@_TESTS} PROPERTIES LABELS \"@labels@\")\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
  endforeach()
endfunction()

# quire_fuzzer(<module> <source> [DEPS ...]): a libFuzzer program. The target `fuzzers` builds all of them and what they
# need; `make fuzz` runs them.
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
