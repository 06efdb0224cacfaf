# Tests of the package as users get it, which no single module can test. They build in temporary folders, with the compiler
# and the flags of this build (a library that was built for a sanitizer needs programs built for it too).

# quire_script_test(<name> <script> LABELS <label>...): runs a script of tests/ with the source and the build folder. Exit
# code 77 skips the test: this machine lacks something that it needs.
function(quire_script_test name script)
  cmake_parse_arguments(T "" "" "LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/${script} ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT 300 SKIP_RETURN_CODE 77)
  set_property(TEST ${name} PROPERTY ENVIRONMENT
               "CMAKE=${CMAKE_COMMAND}"
               "CMAKE_GENERATOR=${CMAKE_GENERATOR}"
               "CMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}"
               "CXX=${CMAKE_CXX_COMPILER}"
               "CXXFLAGS=${CMAKE_CXX_FLAGS}")
endfunction()

quire_script_test(Package.TheExampleBuildsAndRunsAgainstTheInstalledLibrary package_example_test.sh LABELS state)
quire_script_test(Package.TheExampleOfThePartsBuildsAndRunsAgainstTheInstalledLibrary package_plain_test.sh LABELS state)
quire_script_test(Package.TheStateLibraryStandsAlone package_alone_test.sh LABELS state)
quire_script_test(Package.ClangCompilesProgramsOnTheInstalledLibrary package_clang_test.sh LABELS state)
if(TARGET quire-engine)
  quire_script_test(Modules.EveryTargetNamesTheModulesThatItIncludes named_modules_test.sh LABELS base)
  quire_script_test(Modules.TheDesignPageShowsTheIncludesThereAre include_graph_test.sh LABELS base)
  quire_script_test(Docs.FilesAndFunctionsThatThePagesNameAreThere docs_names_test.sh LABELS docs)
  quire_script_test(Cluster.TheScriptTrustsOnlyItsOwnFolderAndRemembersItsOptions cluster_script_test.sh LABELS tiers)
  quire_script_test(Package.TheEngineExampleBuildsAndRunsAgainstTheInstalledLibrary package_engine_test.sh LABELS engine)
endif()
